"""The calls of the Producer that send many records at once: what users read; `Bulk` does it.

A part of `Producer`, which inherits it and has made what it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.producer.batches import BatchBuilder
from aioproduce.producer.value_types import Generic, K, V

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from aioproduce._native.delivery import DeliveryCallback
    from aioproduce.config import ProducerConfig
    from aioproduce.producer.bulk import Bulk
    from aioproduce.producer.deliveries import Deliveries
    from aioproduce.producer.input import RecordInput
    from aioproduce.producer.life import ProducerLife
    from aioproduce.producer.transaction_life import TransactionLife
    from aioproduce.records import Headers


class BulkCalls(Generic[K, V]):
    """What `Producer` has for many records."""

    __slots__ = ()

    config: ProducerConfig
    _bulk: Bulk
    _input: RecordInput
    _life: ProducerLife | TransactionLife

    async def send_many(
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
    ) -> Deliveries:
        """Accept many records of one topic, waiting for room as `send()` does.

        Args:
            topic: The topic.
            values: The values, from any iterable; it is asked for some at a time.
            keys: As many keys as values, or None.
            partition: Of all of them.
            timestamp: Of all of them.
            headers: Of all of them.
            timeout: Seconds to wait at most each time, where that is less than `max.block.ms`.
            on_delivery: Called once per record. Without it, a record costs no object here.

        Returns:
            One handle for all: await it for all their metadata, or ask for each record's outcome.

        Raises:
            PartialSendError: a record could not be accepted, or there were not as many keys as values; those
                before it are accepted and are in the error's `deliveries`.
            ProducerStateError: as in `send()`; of a call that was never allowed, there is no first part.
        """
        return await self._bulk.send_many(
            topic,
            values,
            keys,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
            on_delivery=on_delivery,
        )

    def create_batch(self, max_size: int | None = None) -> BatchBuilder[K, V]:
        """Make a batch to fill and to send whole: where records come in groups, or partitions are yours to choose.

        Args:
            max_size: Bytes that it may take; `batch.size` by default.

        Returns:
            An empty batch, for `send_batch()`. It takes no room in `buffer.memory` before it is sent.

        Raises:
            ValueError: `max_size` is too small for any record.
            RecordTooLargeError: `max_size` is above `max.request.size` or `buffer.memory`.
        """
        return BatchBuilder(self._input, self.config, self._life.wall_ms, max_size)

    async def send_batch(
        self,
        batch: BatchBuilder[Any, Any],
        topic: str,
        *,
        partition: int | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Deliveries:
        """Send a batch of `create_batch()` whole, behind what was accepted for its partition before.

        Interceptors see the acknowledgement of its records, not the records.

        Args:
            batch: The batch; it is closed by this.
            topic: The topic.
            partition: The partition of the whole batch. `None` leaves it to the built-in partitioner, as for
                records without a key: the choice changes after `batch.size` bytes. Keys in the batch have no say:
                where they should have, the partition is yours to choose.
            timeout: Seconds to wait for the topic and for room, where that is less than `max.block.ms`.
            on_delivery: Called once per record, as in `send()`.

        Returns:
            One handle for all its records.

        Raises:
            BatchClosedError: the batch was sent before.
            RecordTooLargeError: it is above `max.request.size` or `buffer.memory`.
            MaxBlockTimeoutError: as in `send()`; the batch was not sent and can be sent again.
            InvalidRecordError: no such topic's name, or no such partition.
            ProducerStateError: as in `send()`.

        Example:
            >>> batch = producer.create_batch(max_size=1_000_000)
            >>> batch.append_many(lines)
            10000
            >>> deliveries = await producer.send_batch(batch, "orders", partition=3)
            >>> await deliveries.wait()
        """
        return await self._bulk.send_batch(
            batch, topic, partition=partition, timeout=timeout, on_delivery=on_delivery
        )

    async def send_arrow(
        self,
        topic: str | None,
        data: object,
        *,
        columns: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Deliveries:
        """Send the rows of Arrow data, straight from its buffers. Needs the extra `aioproduce[arrow]`.

        The columns are found by name; others are passed over, and only the value must be there:

        - `value`, `key`: binary or string of any kind, also dictionary-encoded; sent as they are, not serialized. A
          null is a tombstone, or a null key.
        - `headers`: a map, or a list of structs of name (or key) and value. A null is none.
        - `partition`: integers. A null leaves it to the key or the partitioner.
        - `timestamp`: any timestamp (without a zone it is UTC), or integers: milliseconds since the epoch. A null
          is the time of sending.
        - `topic`: strings, where no topic is given.

        Args:
            topic: The topic of all rows, or None where a column tells.
            data: A `pyarrow.RecordBatch`, `Table` or `RecordBatchReader`, or whatever else has the Arrow C
                interface (`__arrow_c_stream__` or `__arrow_c_array__`): a Polars or pandas frame, say.
            columns: Other names, e.g. `{"value": "payload"}`; a column that is named here must be there.
            partition: Of rows without one of their own.
            timestamp: Likewise.
            headers: Of all rows, where there is no such column.
            timeout: Seconds to wait at most for each batch of records, where that is less than `max.block.ms`.
            on_delivery: Called once per record, as in `send()`.

        Returns:
            One handle for all rows, in their order.

        Raises:
            ArrowColumnError: a column is missing or of a type that cannot be sent; nothing was queued.
            TypeError: this is no Arrow data.
            MissingExtraError: pyarrow is not installed.
            PartialSendError: as in `send_many()`.
            ProducerStateError: as in `send()`.

        Example:
            >>> table = pyarrow.table({"key": ["a", "b"], "value": [b"1", b"2"]})
            >>> deliveries = await producer.send_arrow("orders", table)
            >>> await deliveries.wait()
        """
        return await self._bulk.send_arrow(
            topic,
            data,
            columns,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
            on_delivery=on_delivery,
        )
