"""All calls that send: one record, or many at once.

The base of Producer and Transaction. Both send the same way; `_way_in` makes their different checks.

Invariants:

1. A `send()` that raises has queued nothing. A `send()` that returns has queued the record exactly once. A
   cancelled `send()` has queued nothing: it waits only before the record is queued, never after.
2. With the topic known and room in the buffer `send()` does not suspend, except for one turn of the loop after
   about 1 ms of uninterrupted sending: a loop that only sends must not starve acknowledgements and timers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aioproduce._native.send_path import SendPath
from aioproduce.errors import InvalidRecordError
from aioproduce.producer.bulk_calls import BulkCalls
from aioproduce.producer.interceptors import tell_refused
from aioproduce.producer.value_types import K, V
from aioproduce.records import NOT_GIVEN, NotGiven, ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.producer.interceptors import Interceptors, OnOutcome
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transaction_life import OwnersLife, TransactionLife
    from aioproduce.records import Headers

OnDelivery = Callable[[RecordMetadata, BaseException | None], object]


class Sending(SendPath, BulkCalls[K, V]):
    """The base of classes that send records; they create its attributes."""

    # CPython 3.12 and later look `send` up again for each record if the instance has a `__dict__`. The slot creates
    # it only when a user adds an attribute.
    __slots__ = (
        # The interpreted SendPath has them already.
        *(() if SendPath.__dictoffset__ else ("__dict__", "__weakref__")),
        "_bulk",
        "_input",
        "_interceptors",
        "_life",
        "_sending_task",
        "_way_in",
        "config",
    )

    _interceptors: Interceptors | None
    _way_in: ProducerLife | TransactionLife | OwnersLife
    _sending_task: object

    if TYPE_CHECKING:
        # SendPath implements them; it is compiled and knows no types of keys and values.

        def send(  # noqa: D102  # SendPath has it, and an editor shows it
            self,
            topic: str | ProducerRecord,
            value: V | NotGiven | None = NOT_GIVEN,
            key: K | None = None,
            *,
            partition: int | None = None,
            timestamp: int | datetime | None = None,
            headers: Headers | None = None,
            timeout: float | None = None,
            on_delivery: OnDelivery | None = None,
        ) -> Coroutine[Any, Any, DeliveryFuture]:
            raise NotImplementedError

        def send_and_wait(  # noqa: D102
            self,
            topic: str | ProducerRecord,
            value: V | NotGiven | None = NOT_GIVEN,
            key: K | None = None,
            *,
            partition: int | None = None,
            timestamp: int | datetime | None = None,
            headers: Headers | None = None,
            timeout: float | None = None,
            on_delivery: OnDelivery | None = None,
        ) -> Coroutine[Any, Any, RecordMetadata]:
            raise NotImplementedError

    def try_send(
        self,
        topic: str | ProducerRecord,
        value: V | NotGiven | None = NOT_GIVEN,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> DeliveryFuture:
        """Accept one record without ever waiting.

        Raises:
            BufferExhaustedError: if there is no room now.
            MetadataTimeoutError: if the topic is not known yet; it was requested, so try again later.
            InvalidRecordError: as in `send()`.
            ProducerStateError: as in `send()`.
        """
        self._way_in.check_callable()
        record: ProducerRecord | None = None
        on_outcome: OnOutcome | None = None
        try:
            record, on_outcome = self._as_record(topic, value, key, partition, timestamp, headers)
            serialized = self._input.read_record(record, self._way_in.wall_ms())
            delivery = self._way_in.admission.append_now(serialized)
        except BaseException as error:
            self._refused(record, on_outcome, error)
            raise
        _add_callbacks(delivery, on_outcome, on_delivery)
        return delivery

    def _as_record(
        self,
        topic: str | ProducerRecord,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
    ) -> tuple[ProducerRecord, OnOutcome | None]:
        """Return the record as the interceptors returned it, and the callback for its outcome."""
        if value is NOT_GIVEN:
            _check_tombstone(topic, key)
            value = None
        if isinstance(topic, ProducerRecord):
            if any(given is not None for given in (value, key, partition, timestamp, headers)):
                raise TypeError("send() takes a ProducerRecord whole: put value, key, ... into the record")
            record = topic
        else:
            record = ProducerRecord(
                topic=topic, value=value, key=key, partition=partition, timestamp=timestamp, headers=headers
            )
        return (record, None) if self._interceptors is None else self._interceptors.intercept(record)

    async def _send_slowly(
        self,
        topic: str | ProducerRecord,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        timeout: float | None,
        on_delivery: OnDelivery | None,
    ) -> DeliveryFuture:
        self._way_in.check_callable()
        record: ProducerRecord | None = None
        on_outcome: OnOutcome | None = None
        try:
            if self._turn_is_due():
                await self._give_turn()
            now_ms = self._way_in.wall_ms()
            if self._interceptors is None and not isinstance(topic, ProducerRecord):
                if value is NOT_GIVEN:
                    _check_tombstone(topic, key)
                    value = None
                serialized = self._input.read(topic, value, key, partition, timestamp, headers, now_ms)
            else:
                record, on_outcome = self._as_record(topic, value, key, partition, timestamp, headers)
                serialized = self._input.read_record(record, now_ms)
            delivery = self._way_in.admission.append_at_once(serialized)
            if delivery is None:
                delivery = await self._way_in.admission.append_waiting(serialized, timeout)
        except BaseException as error:
            self._refused(record, on_outcome, error)
            raise
        _add_callbacks(delivery, on_outcome, on_delivery)
        return delivery

    def _refused(
        self, record: ProducerRecord | None, on_outcome: OnOutcome | None, error: BaseException
    ) -> None:
        """Report a record that was never queued, because of an error or a cancelled wait."""
        self._way_in.count_refusal(error)
        if record is not None and on_outcome is not None:
            tell_refused(record, on_outcome, error)

    async def _heed_turn(self) -> None:
        if self._turn_is_due():
            await self._give_turn()

    async def _give_turn(self) -> None:
        """Give the loop the turn that is due, if one task keeps sending (invariant 2).

        A thousand tasks that send once each suspend anyway, and must keep their order.
        """
        task = self._way_in.driver.current_task()
        if task is self._sending_task:
            await self._way_in.driver.yield_once()
            self._way_in.check_running()
        else:
            # Else all later senders in this turn of the loop would take the slow path.
            self._put_turn_off()
        self._sending_task = task


def _check_tombstone(topic: object, key: object) -> None:
    """Refuse a call without a value, unless it has a key (a tombstone) or a ProducerRecord.

    Raises:
        InvalidRecordError: if there is no key either: the value was forgotten.
    """
    if key is None and not isinstance(topic, ProducerRecord):
        raise InvalidRecordError(
            f"the record for topic {topic!r:.300} has neither a value nor a key: give it a value, or write "
            "value=None if an empty record is meant"
        )


def _add_callbacks(
    delivery: DeliveryFuture, on_outcome: OnOutcome | None, on_delivery: OnDelivery | None
) -> None:
    if on_outcome is not None:
        delivery._add_delivery_callback(on_outcome)
    if on_delivery is not None:
        delivery._add_delivery_callback(on_delivery)
