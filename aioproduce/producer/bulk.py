"""The bulk calls of the Producer: many records at once, from iterables, ready-made batches and Arrow columns.

Called by `Producer.send_many()`, `send_batch()` and `send_arrow()`, which stay thin. The compiled `BulkAppender`
appends rows to open batches. A row that needs a decision or a wait (a new batch, memory, metadata) takes the path
of `send()`, in its turn among all senders.

Invariants:

1. Records are accepted in their order. If one is refused, those before it are accepted and none after it.
2. At most `_MOST_ROWS` items are read from an iterable ahead of the accepted ones, and fewer if it is slow.
3. The loop gets its turn about every millisecond, as with `send()`: before rows are accepted, never after the
   last. An exception of the turn must not hide that rows are queued.
4. The default timestamp is read after the iterable has returned the records.
"""

from __future__ import annotations

import time
from random import randrange
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.bulk_append import BulkAppender
from aioproduce._native.columns import ByteColumn
from aioproduce._native.record_span import span_of_batch
from aioproduce._native.topic_appender import NO_PARTITION
from aioproduce.errors import PartialSendError, PartitionOutOfRangeError
from aioproduce.producer.arrow import Columns, ReadyRows, arrow_pieces
from aioproduce.producer.batches import BatchBuilder, BatchPartitions
from aioproduce.producer.deliveries import Deliveries
from aioproduce.producer.input import RecordInput, check_topic, header_list
from aioproduce.producer.interceptors import tell_refused
from aioproduce.producer.rows import Defaults, Rows, row_as_record, serialized_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from datetime import datetime

    from aioproduce._native.delivery import BatchResult, DeliveryCallback, DeliveryFuture
    from aioproduce._native.record_batch import RecordBatchBuffer
    from aioproduce._native.topic_appender import TopicAppender
    from aioproduce.producer.arrow import TopicRun
    from aioproduce.producer.interceptors import Interceptors
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transaction_life import OwnersLife, TransactionLife
    from aioproduce.records import Headers

# Most rows that are read at once: at 0.1 us per record they take a fraction of `_PACE`.
_MOST_ROWS: Final = 1024
# Target seconds for reading and serializing rows at once; a slower iterable is read in smaller steps.
_PACE: Final = 0.0005


@final
class Bulk:
    """Sends many records for one producer.

    Args:
        life: The life of the producer or its transaction.
        record_input: The producer's serializers.
        interceptors: The producer's interceptors, or None.
        batch_size: `batch.size`.
        heed_turn: Gives the loop its turn when that is due.
        send: `Producer.send()`, used if there are interceptors, which see each record.
    """

    __slots__ = (
        "_batch_partitions",
        "_heed_turn",
        "_input",
        "_interceptors",
        "_life",
        "_plain_input",
        "_send",
    )

    def __init__(
        self,
        life: ProducerLife | TransactionLife | OwnersLife,
        record_input: RecordInput,
        interceptors: Interceptors | None,
        *,
        batch_size: int,
        heed_turn: Callable[[], Awaitable[None]],
        send: Callable[..., Awaitable[DeliveryFuture]],
    ) -> None:
        self._life = life
        self._input = record_input
        # Arrow data is bytes already.
        self._plain_input = RecordInput()
        self._interceptors = interceptors
        self._batch_partitions = BatchPartitions(max(batch_size, 1), randrange)
        self._heed_turn = heed_turn
        self._send = send

    # -- from iterables ---

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        *,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        timeout: float | None,
        on_delivery: DeliveryCallback | None,
    ) -> Deliveries:
        """Send many records; see `Producer.send_many()`."""
        self._life.check_callable()
        listed = None if headers is None else header_list(headers)
        rows = Rows(values, keys)
        deliveries = Deliveries()
        try:
            if self._interceptors is not None or topic.__class__ is not str:
                await self._send_each(
                    deliveries,
                    rows,
                    topic,
                    partition=partition,
                    timestamp=timestamp,
                    headers=listed,
                    timeout=timeout,
                    on_delivery=on_delivery,
                )
            else:
                with self._life.counting_refusals():
                    await self._send_rows(
                        deliveries,
                        rows,
                        topic,
                        lambda: Defaults(
                            partition=partition,
                            timestamp=timestamp,
                            headers=listed,
                            timeout=timeout,
                            on_delivery=on_delivery,
                        ),
                    )
        except Exception as error:
            raise partial_send("send_many", deliveries, error) from error
        return deliveries

    async def _send_each(self, deliveries: Deliveries, rows: Rows, topic: str, **settings: Any) -> None:
        while True:
            values, keys, failure = rows.take(1)
            if values:
                with self._life.counting_refusals():
                    check_topic(topic)  # send() would accept a ProducerRecord here
                key = None if keys is None else keys[0]
                deliveries._add_future(await self._send(topic, values[0], key, **settings))
            elif failure is not None:
                raise failure
            else:
                return

    async def _send_rows(
        self, deliveries: Deliveries, rows: Rows, topic: str, make_defaults: Callable[[], Defaults]
    ) -> None:
        defaults: Defaults | None = None
        # A list's items cost nothing to read; the cost of an iterator's items is not known yet.
        count = _MOST_ROWS if rows.is_ready and not self._input.has_serializers else 1
        while True:
            began_at = time.perf_counter()
            values, keys, failure = rows.take(count)
            if values and defaults is None:
                defaults = make_defaults()
            if self._input.has_serializers:
                failure = self._serialize(topic, values, keys) or failure
            took = time.perf_counter() - began_at
            if defaults is not None:
                columns = Columns(ByteColumn(values), None if keys is None else ByteColumn(keys))
                await self.append(deliveries, topic, columns, defaults, 0, len(values))
            if failure is not None:
                raise failure
            if len(values) < count:
                return
            if took > _PACE:
                count = max(count // 2, 1)
            elif took < _PACE / 4:
                count = min(count * 4, _MOST_ROWS)

    def _serialize(self, topic: str, values: list[Any], keys: list[Any] | None) -> BaseException | None:
        """Serialize in place, up to the first record that fails; return its error."""
        for index, value in enumerate(values):
            try:
                if value is not None:
                    values[index] = self._input.value(topic, value)
                if keys is not None and keys[index] is not None:
                    keys[index] = self._input.key(topic, keys[index])
            except Exception as error:
                del values[index:]
                if keys is not None:
                    del keys[index:]
                return error
        return None

    # -- rows into batches ---

    async def append(
        self,
        deliveries: Deliveries,
        topic: str,
        columns: Columns,
        defaults: Defaults,
        start: int,
        stop: int,
    ) -> None:
        """Accept rows; wait if a row must wait."""
        bulk: BulkAppender | None = None
        bulk_of: TopicAppender | None = None
        while start < stop:
            # Before rows are accepted, never after: an exception of the turn says nothing about accepted rows.
            await self._heed_turn()
            now = self._life.wall_ms() if defaults.timestamp is None else defaults.timestamp
            appender = self._life.appenders.get(topic) if defaults.has_plain_partition else None
            if appender is not None:
                if bulk is None or appender is not bulk_of:
                    bulk = BulkAppender(
                        appender,
                        NO_PARTITION if defaults.partition is None else defaults.partition,
                        defaults.encoded_headers,
                    )
                    bulk_of = appender
                end = min(stop, start + _MOST_ROWS)
                start += _append_open(bulk, columns, now, start, end, deliveries, defaults.on_delivery)
                if start == end:
                    continue
            delivery = await self._append_one(topic, columns, start, defaults, now)
            deliveries._add_future(delivery)
            if defaults.on_delivery is not None:
                delivery._add_delivery_callback(defaults.on_delivery)
            start += 1

    async def _append_one(
        self, topic: str, columns: Columns, row: int, defaults: Defaults, now: int
    ) -> DeliveryFuture:
        """Accept one row as `send()` would."""
        record = serialized_row(topic, columns, row, defaults, now)
        admission = self._life.admission
        delivery = admission.append_at_once(record)
        if delivery is None:
            delivery = await admission.append_waiting(record, defaults.timeout)
        return delivery

    # -- ready-made batches ---

    async def send_batch(
        self,
        batch: BatchBuilder,
        topic: str,
        *,
        partition: int | None,
        timeout: float | None,
        on_delivery: DeliveryCallback | None,
    ) -> Deliveries:
        """Send a ready-made batch; see `Producer.send_batch()`."""
        self._life.check_callable()
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"send_batch() takes a batch of create_batch(), not {type(batch).__name__}")
        await self._heed_turn()
        deliveries = Deliveries()
        with batch._being_sent() as records:
            if records.record_count:
                with self._life.counting_refusals(records.record_count):
                    result = await self._append_batch(topic, partition, records, timeout)
                # The batch is queued: nothing may suspend from here on.
                deliveries._add_span(span_of_batch(records, result))
        callbacks: list[DeliveryCallback] = []
        if self._interceptors is not None:
            callbacks.append(self._interceptors.on_acknowledgement)
        if on_delivery is not None:
            callbacks.append(on_delivery)
        if callbacks:
            for delivery in deliveries:
                for callback in callbacks:
                    delivery._add_delivery_callback(callback)
        return deliveries

    async def _append_batch(
        self, topic: str, partition: int | None, records: RecordBatchBuffer, timeout: float | None
    ) -> BatchResult:
        admission, driver = self._life.admission, self._life.driver
        if partition is not None:
            return await admission.append_batch(topic, partition, records, timeout)
        check_topic(topic)
        began_at = driver.now()
        deadline = admission.deadline(began_at, timeout)
        while True:
            with admission.waiting(began_at):
                view = await admission.topic(topic, None, began_at, deadline)
            partition = self._batch_partitions.choose(topic, view, records.size)
            try:
                return await admission.append_batch(
                    topic, partition, records, max(deadline - driver.now(), 0)
                )
            except PartitionOutOfRangeError:
                continue  # the topic was recreated with fewer partitions; the caller did not choose this one

    # -- from Arrow ---

    async def send_arrow(
        self,
        topic: str | None,
        data: object,
        names: Mapping[str, str] | None,
        *,
        partition: int | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        timeout: float | None,
        on_delivery: DeliveryCallback | None,
    ) -> Deliveries:
        """Send Arrow data; see `Producer.send_arrow()`."""
        self._life.check_callable()
        pieces: Iterable[tuple[Columns, list[TopicRun] | None]]
        if isinstance(data, ReadyRows):
            pieces = data.pieces
        else:
            pieces = arrow_pieces(data, names or {}, has_topic=topic is not None)
        deliveries = Deliveries()
        try:
            defaults = Defaults(
                partition=partition,
                timestamp=timestamp,
                headers=None if headers is None else header_list(headers),
                timeout=timeout,
                on_delivery=on_delivery,
            )
            for columns, topics in pieces:
                await self._heed_turn()
                for each, start, stop in [(topic, 0, len(columns))] if topics is None else topics:
                    with self._life.counting_refusals():
                        check_topic(each)
                    assert each is not None
                    with self._life.counting_refusals():
                        if self._interceptors is None:
                            await self.append(deliveries, each, columns, defaults, start, stop)
                        else:
                            await self._send_rows_each(deliveries, each, columns, defaults, start, stop)
        except Exception as error:
            raise partial_send("send_arrow", deliveries, error) from error
        return deliveries

    async def _send_rows_each(
        self,
        deliveries: Deliveries,
        topic: str,
        columns: Columns,
        defaults: Defaults,
        start: int,
        stop: int,
    ) -> None:
        """Accept rows one by one, so that interceptors see each."""
        interceptors = self._interceptors
        assert interceptors is not None
        for row in range(start, stop):
            await self._heed_turn()
            record, on_outcome = interceptors.intercept(row_as_record(topic, columns, row, defaults))
            try:
                serialized = self._plain_input.read_record(record, self._life.wall_ms())
                admission = self._life.admission
                delivery = admission.append_at_once(serialized)
                if delivery is None:
                    delivery = await admission.append_waiting(serialized, defaults.timeout)
            except BaseException as error:
                tell_refused(record, on_outcome, error)
                raise
            delivery._add_delivery_callback(on_outcome)
            if defaults.on_delivery is not None:
                delivery._add_delivery_callback(defaults.on_delivery)
            deliveries._add_future(delivery)


def _append_open(
    bulk: BulkAppender,
    columns: Columns,
    now: int,
    start: int,
    stop: int,
    deliveries: Deliveries,
    on_delivery: DeliveryCallback | None,
) -> int:
    """Append rows to open batches while they have room; return the number of rows."""
    span = bulk.append(
        columns.values,
        columns.keys,
        columns.headers,
        columns.partitions,
        columns.timestamps,
        now,
        start,
        stop,
    )
    deliveries._add_span(span)
    if on_delivery is not None:
        for index in range(len(deliveries) - len(span), len(deliveries)):
            deliveries[index]._add_delivery_callback(on_delivery)
    return len(span)


def partial_send(call: str, deliveries: Deliveries, error: Exception) -> PartialSendError:
    """Return the error of a call that accepted a part of its records."""
    count = len(deliveries)
    return PartialSendError(
        f"record {count} of {call}() was not accepted ({error}). The {count} before it are accepted and still "
        "being sent: their futures are in `deliveries`",
        deliveries=deliveries,
        index=count,
    )
