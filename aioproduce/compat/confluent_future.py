"""The future of one message, with confluent-kafka's results, which are created when they are read.

Created by `confluent.AIOProducer.produce()`, one for each message.

Invariants:

1. For asyncio it is a future (`asyncio.isfuture`): `gather`, `wait`, `wait_for`, `shield` and callbacks accept it.
2. There is one object for each message in addition to the producer's own: each further object that the garbage
   collector tracks costs as much as the rest of the message.
3. It raises only KafkaException. The producer counts and logs failures that nobody reads.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, final

from aioproduce.compat.confluent_errors import kafka_exception
from aioproduce.errors import ProducerError

from confluent_kafka import (  # isort: skip  # confluent_errors reports a missing extra
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
    # Value, key, headers, timestamp (ms since the epoch), and when it was accepted (monotonic clock).
    About: TypeAlias = tuple[bytes | None, bytes | None, list[Header] | None, int, float]
    # Or asyncio's, whose type stubs lack what `gather()` reads.
    Outcome: TypeAlias = DeliveryFuture | Any


@final
class MessageFuture:
    """The outcome of a message: a `confluent_kafka.Message`, or a `KafkaException`.

    Cancelling it wakes its waiters; the message is still sent, as in confluent-kafka.

    Args:
        outcome: The producer's own future of the message, or one of asyncio's if the producer has none.
        about: The produced message.
    """

    __slots__ = ("__weakref__", "_about", "_outcome")

    # Marks it as a future for `asyncio.isfuture()`; no task is parked on it.
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
            raise kafka_exception(error)  # noqa: B904  # already has its cause
        return message_of(metadata, self._about, None, None if was_done else monotonic() - self._about[4])

    __iter__ = __await__

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "finished" if self.done() else "pending"
        return f"<MessageFuture {state}>"

    # -- asyncio's interface of a future ---

    def done(self) -> bool:
        """Return whether there is an outcome, or it was cancelled."""
        return self._outcome.done()

    def cancelled(self) -> bool:
        """Return whether it was cancelled, which does not affect the message."""
        return self._outcome.cancelled()

    def cancel(self, msg: object = None) -> bool:
        """Wake all waiters, while the message is still sent; return False if there already is an outcome."""
        return self._outcome.cancel(msg)

    def result(self) -> Message:
        """Return the message.

        Raises:
            KafkaException: If it was not delivered.
            asyncio.CancelledError: If this future was cancelled.
            asyncio.InvalidStateError: If there is no outcome yet.
        """
        try:
            metadata = self._outcome.result()
        except ProducerError as error:
            raise kafka_exception(error)  # noqa: B904  # already has its cause
        return message_of(metadata, self._about, None, None)

    def exception(self) -> BaseException | None:
        """Return the reason as a KafkaException if it was not delivered, else `None`; raise as `result()` does."""
        error = self._outcome.exception()
        return None if error is None else kafka_exception(error)

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `callback(self)` on the loop when there is an outcome."""
        told: Any = _Told(self, callback)
        self._outcome.add_done_callback(told, context=context)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Remove a callback, and return how often it was registered."""
        told: Any = _Told(self, callback)
        return self._outcome.remove_done_callback(told)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the producer's event loop."""
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
    """Return a message with its position and its latency in seconds."""
    topic, partition, offset, timestamp, _, _ = metadata
    value, key, headers, own_timestamp, _ = about
    # The latency must be a float or be omitted.
    more = () if latency is None else (latency,)
    return Message(
        topic,
        partition,
        offset if offset >= 0 else OFFSET_INVALID,
        key,
        value,
        None if headers is None else [*headers],
        failure,
        # If the broker sets the timestamp, it replaces the record's own.
        (TIMESTAMP_CREATE_TIME if timestamp == own_timestamp else TIMESTAMP_LOG_APPEND_TIME, timestamp),
        *more,
    )


class _Told:
    """A callback of a MessageFuture; two with the same function are equal."""

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
