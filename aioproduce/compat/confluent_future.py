"""The future of one message: a future of asyncio's, which is itself what the producer calls back.

Made by `confluent.AIOProducer.produce()`, one for each message.

Invariants:

1. It is told once, on the event loop: then it has the message or its error, and the callback has been called.
2. One object for each message: each more that the garbage collector follows costs as much as the rest.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, final

from aioproduce.compat.confluent_errors import kafka_exception

from confluent_kafka import (  # isort: skip  # confluent_errors tells of the extra where it is missing
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    Message,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.compat.confluent_room import MessageRoom
    from aioproduce.records import Header, RecordMetadata

    # Not by its name in an annotation that is evaluated: asyncio's is generic for type checkers only.
    _Base: TypeAlias = asyncio.Future[Message]
    OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]
else:
    _Base = asyncio.Future


@final
class MessageFuture(_Base):
    """What becomes of a message.

    Attributes:
        room: Where it has its place.
        value: The payload; key and headers likewise.
        headers: As pairs.
        timestamp: Milliseconds since the epoch.
        on_delivery: Called with `(KafkaError or None, Message)`; or None.
        on_failure: Called with the KafkaError of a failure; or None.
        taken_at: When it was taken, by the monotonic clock.
    """

    __slots__ = ("headers", "key", "on_delivery", "on_failure", "room", "taken_at", "timestamp", "value")

    room: MessageRoom
    value: bytes | None
    key: bytes | None
    headers: list[Header] | None
    timestamp: int
    on_delivery: OnDelivery | None
    on_failure: Callable[[KafkaError], None] | None
    taken_at: float

    def __call__(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """The producer is done with the message."""
        self.room.give_back()
        self.tell(metadata, error)

    def tell(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Have the outcome known; the message may keep its place."""
        failure: KafkaError | None = None
        if error is not None:
            exception = kafka_exception(error)
            failure = exception.args[0]
            if self.on_failure is not None:
                self.on_failure(failure)
            if not self.done():
                self.set_exception(exception)
            if self.on_delivery is None:
                return
        timestamp = metadata.timestamp
        message = Message(
            metadata.topic,
            metadata.partition,
            metadata.offset if metadata.offset >= 0 else OFFSET_INVALID,
            self.key,
            self.value,
            None if self.headers is None else [*self.headers],
            failure,
            # The broker's time of a record is told in place of its own.
            (TIMESTAMP_CREATE_TIME if timestamp == self.timestamp else TIMESTAMP_LOG_APPEND_TIME, timestamp),
            monotonic() - self.taken_at,
        )
        if failure is None and not self.done():
            self.set_result(message)
        if self.on_delivery is not None:
            self._call_back(self.on_delivery, failure, message)

    def _call_back(self, on_delivery: OnDelivery, failure: KafkaError | None, message: Message) -> None:
        try:
            on_delivery(failure, message)
        except Exception as error:
            context: dict[str, Any] = {
                "message": f"on_delivery raised for a message of {message.topic()}",
                "exception": error,
                "future": self,
            }
            self.get_loop().call_exception_handler(context)
