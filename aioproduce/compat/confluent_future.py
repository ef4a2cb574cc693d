"""The future of one message: what confluent-kafka's tells of it, made when somebody asks.

Made by `confluent.AIOProducer.produce()`, one for each message.

Invariants:

1. To asyncio it is a future (`asyncio.isfuture`): `gather`, `wait`, `wait_for`, `shield` and callbacks take it.
2. One object for each message, beside the producer's own: each more that the garbage collector follows costs as
   much as the rest of the message.
3. What it raises is a KafkaException; a failure that nobody asked for is counted and logged by the producer.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, final

from aioproduce.compat.confluent_errors import kafka_exception
from aioproduce.errors import ProducerError

from confluent_kafka import (  # isort: skip  # confluent_errors tells of the extra where it is missing
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    Message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import Header, RecordMetadata

    OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]
    # Value, key, headers, timestamp (ms since the epoch), and when it was taken (by the monotonic clock).
    About: TypeAlias = tuple[bytes | None, bytes | None, list[Header] | None, int, float]
    # Or asyncio's, which types leave without what `gather()` reads of it.
    Outcome: TypeAlias = DeliveryFuture | Any


@final
class MessageFuture:
    """What becomes of a message: a `confluent_kafka.Message`, or a `KafkaException`.

    Cancelling it wakes whoever waits for it; the message goes on, as with confluent-kafka's.

    Args:
        outcome: The producer's own future of the message; where it has none, one of asyncio's.
        about: What was produced.
    """

    __slots__ = ("__weakref__", "_about", "_outcome")

    # Tells `asyncio.isfuture()` that this is one; no task is parked on it.
    _asyncio_future_blocking = False

    def __init__(self, outcome: Outcome, about: About) -> None:
        self._outcome = outcome
        self._about = about

    def __await__(self) -> Generator[Any, None, Message]:
        outcome = self._outcome
        was_done = outcome.done()
        try:
            metadata = yield from outcome.__await__()
        except ProducerError as error:
            raise kafka_exception(error)  # noqa: B904  # it has its cause
        return message_of(metadata, self._about, None, None if was_done else monotonic() - self._about[4])

    __iter__ = __await__

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "finished" if self.done() else "pending"
        return f"<MessageFuture {state}>"

    # -- what asyncio asks of a future ---

    def done(self) -> bool:
        """Whether there is an outcome, or it was cancelled."""
        return self._outcome.done()

    def cancelled(self) -> bool:
        """Whether it was cancelled; that says nothing of the message."""
        return self._outcome.cancelled()

    def cancel(self, msg: object = None) -> bool:
        """Wake all who wait for it; False if the outcome was there already. The message goes on."""
        return self._outcome.cancel(msg)

    def result(self) -> Message:
        """The message.

        Raises:
            KafkaException: it was not delivered.
            asyncio.CancelledError: this was cancelled.
            asyncio.InvalidStateError: there is no outcome yet.
        """
        try:
            metadata = self._outcome.result()
        except ProducerError as error:
            raise kafka_exception(error)  # noqa: B904  # it has its cause
        return message_of(metadata, self._about, None, None)

    def exception(self) -> BaseException | None:
        """Why it was not delivered, as a KafkaException; `None` if it was. Raises as `result()` otherwise."""
        error = self._outcome.exception()
        return None if error is None else kafka_exception(error)

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `callback(self)` on the loop once the outcome is there."""
        told: Any = _Told(self, callback)
        self._outcome.add_done_callback(told, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget a callback, and tell how often it was there."""
        told: Any = _Told(self, callback)
        return self._outcome.remove_done_callback(told)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The producer's event loop."""
        loop: asyncio.AbstractEventLoop = self._outcome.get_loop()
        return loop

    @property
    def _cancel_message(self) -> object:
        return self._outcome._cancel_message

    def _make_cancelled_error(self) -> BaseException:
        return self._outcome._make_cancelled_error()


def message_of(
    metadata: RecordMetadata, about: About, failure: KafkaError | None, latency: float | None
) -> Message:
    """A message, where it is, and how long it took (seconds)."""
    topic, partition, offset, timestamp, _, _ = metadata
    value, key, headers, own_timestamp, _ = about
    # Its latency is a float or left out.
    more = () if latency is None else (latency,)
    return Message(
        topic,
        partition,
        offset if offset >= 0 else OFFSET_INVALID,
        key,
        value,
        None if headers is None else [*headers],
        failure,
        # The broker's time of a record is told in place of its own.
        (TIMESTAMP_CREATE_TIME if timestamp == own_timestamp else TIMESTAMP_LOG_APPEND_TIME, timestamp),
        *more,
    )


class _Told:
    """A callback of a MessageFuture, equal to another of the same."""

    __slots__ = ("_callback", "_future")

    def __init__(self, future: MessageFuture, callback: Callable[[Any], object]) -> None:
        self._future = future
        self._callback = callback

    def __call__(self, _: object) -> None:
        self._callback(self._future)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Told) and other._callback == self._callback

    def __hash__(self) -> int:
        return hash(self._callback)
