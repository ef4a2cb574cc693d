"""The sending calls of `BlockingProducer` and its transactions, except `send()` itself, which is in `BlockingPath`.

Invariants:

1. If `send()` raises, it has handed over nothing. If it returns, it has handed over the record exactly once.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aioproduce._native.blocking_delivery import new_delivery
from aioproduce._native.hand_over import BlockingPath
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.blocking.deliveries import BlockingDeliveries
from aioproduce.errors import PartialSendError, ProducerError
from aioproduce.producer.bulk import partial_send
from aioproduce.producer.input import check_partition, check_topic, header_list
from aioproduce.producer.interceptors import tell_refused
from aioproduce.producer.rows import Rows
from aioproduce.producer.value_types import Generic, K, V
from aioproduce.records import NOT_GIVEN, NotGiven

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aioproduce._native.blocking_delivery import BlockingDelivery
    from aioproduce._native.delivery import DeliveryCallback
    from aioproduce.blocking.way import Way
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.interceptors import OnOutcome
    from aioproduce.records import Headers, ProducerRecord, RecordMetadata

# Rows that `send_many()` reads from its iterables at a time: a hand-over costs as much as a hundred records.
_ROWS: Final = 4096


class BlockingSending(BlockingPath, Generic[K, V]):
    """Sends records through a `Way`."""

    # As in `Producer`: CPython 3.12 and later look up `send` for each record if the `__dict__` is not empty.
    # In the interpreted build, BlockingPath already has both.
    __slots__ = () if BlockingPath.__dictoffset__ else ("__dict__", "__weakref__")

    def _way_in(self) -> Way:
        """Return the way for a record of the calling thread.

        Raises:
            ProducerStateError: If there is none.
        """
        raise NotImplementedError

    if TYPE_CHECKING:
        # As BlockingPath has it, which is compiled and knows no types of keys and values.

        def send(  # noqa: D102  # BlockingPath has it, and an editor shows it
            self,
            topic: str | ProducerRecord,
            value: V | NotGiven | None = NOT_GIVEN,
            key: K | None = None,
            *,
            partition: int | None = None,
            timestamp: int | datetime | None = None,
            headers: Headers | None = None,
            timeout: float | None = None,
            on_delivery: DeliveryCallback | None = None,
        ) -> BlockingDelivery:
            raise NotImplementedError

    def send_and_wait(
        self,
        topic: str | ProducerRecord,
        value: V | NotGiven | None = NOT_GIVEN,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordMetadata:
        """Send a record with `send()`, then wait for the acknowledgement.

        `timeout` bounds the wait for room and metadata, as in `send()`, and not the wait for the acknowledgement.

        Raises:
            DeliveryError: If the record was not acknowledged.
            ProducerError: If `send()` raises.
        """
        return self.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
            on_delivery=on_delivery,
        ).result()

    def _send_slowly(
        self,
        topic: str | ProducerRecord,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        timeout: float | None,
        on_delivery: DeliveryCallback | None,
    ) -> BlockingDelivery:
        way = self._way_in()
        session, sending = way.session, way.sending
        bound = session.config.max_block
        if timeout is not None:
            check_timeout(timeout)
            bound = min(bound, timeout)
        record: ProducerRecord | None = None
        on_outcome: OnOutcome | None = None
        try:
            record, on_outcome = sending._as_record(topic, value, key, partition, timestamp, headers)
            serialized = sending._input.read_record(record, time.time_ns() // 1_000_000)
            name, key, value, given, number, milliseconds = serialized
            check_topic(name)
            if number is not None:
                check_partition(number)
            size = sending._life.sender.accumulator.size_of(serialized)
            listed = None if given is None else list(given)
            delivery = new_delivery(
                way.hand_over,
                name,
                key,
                value,
                listed,
                NO_PARTITION if number is None else number,
                milliseconds,
                _both(on_outcome, on_delivery),
            )
            if size <= session.config.buffer_memory and way.hand_over.knows(name, number):
                way.put(delivery, bound)
            else:
                session.call(way.accept, delivery, bound)
        except BaseException as error:
            if isinstance(error, ProducerError):
                session.refused()
            if record is not None and on_outcome is not None:
                tell_refused(record, on_outcome, error)
            raise
        return delivery

    def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        keys: Iterable[K | None] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> BlockingDeliveries:
        """Accept many records of one topic, waiting for room as `send()` does.

        Args:
            topic: The topic.
            values: The values, from any iterable; it is read in this thread, some at a time.
            keys: As many keys as values, or None.
            partition: The partition of all records.
            timestamp: The timestamp of all records.
            headers: The headers of all records.
            timeout: Maximum seconds per wait, capped by `max.block.ms`.
            on_delivery: Called once per record, in the loop thread.

        Returns:
            One handle for all records.

        Raises:
            PartialSendError: If a record could not be accepted, or if the numbers of keys and values differ. The
                records before it are accepted, and are in the error's `deliveries`.
            ProducerStateError: If `send()` would raise it; no record was then accepted.
        """
        way = self._way_in()
        session = way.session
        session.check_may_wait("send_many()")
        rows = Rows(values, keys)
        deliveries = BlockingDeliveries(session)
        settings: dict[str, Any] = {
            "partition": partition,
            "timestamp": timestamp,
            "headers": headers if headers is None else header_list(headers),
            "timeout": timeout,
            "on_delivery": on_delivery,
        }
        try:
            while True:
                taken, taken_keys, failure = rows.take(_ROWS)
                if taken:
                    send = partial(way.send_many, **settings)
                    deliveries._add(session.call(send, topic, taken, taken_keys))
                if failure is not None:
                    raise failure
                if len(taken) < _ROWS:
                    return deliveries
        except Exception as error:
            if isinstance(error, PartialSendError):
                deliveries._add(cast("Deliveries", error.deliveries))
                cause = error.__cause__
                assert isinstance(cause, Exception)
                error = cause
            raise partial_send("send_many", deliveries, error) from error  # type: ignore[arg-type]  # of threads


def _both(on_outcome: OnOutcome | None, on_delivery: DeliveryCallback | None) -> DeliveryCallback | None:
    if on_outcome is None or on_delivery is None:
        return on_outcome or on_delivery

    def both(metadata: RecordMetadata, error: BaseException | None) -> None:
        on_outcome(metadata, error)  # logs its own errors
        on_delivery(metadata, error)

    return both


def check_timeout(timeout: float | None) -> None:
    """Refuse a timeout that is negative or not a number."""
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
