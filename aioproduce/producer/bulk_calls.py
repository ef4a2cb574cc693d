"""The Producer's calls that send many records at once, with their documentation; `Bulk` implements them.

`Producer` inherits this class and creates its attributes.
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
    """The calls of `Producer` for many records."""

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
        """Accept many records for one topic; wait for room as `send()` does.

        Args:
            topic: The topic.
            values: Any iterable of values; it is read some items at a time.
            keys: As many keys as values, or None.
            partition: The partition of all records.
            timestamp: The timestamp of all records.
            headers: The headers of all records.
            timeout: Maximum seconds of each wait, if that is less than `max.block.ms`.
            on_delivery: Called once per record. Without it, no object is created per record.

        Returns:
            One handle for all records: await it for all metadata, or read each record's outcome.

        Raises:
            PartialSendError: if a record could not be accepted, or there were not as many keys as values; the
                records before it are accepted, and the error's `deliveries` has them.
            ProducerStateError: as in `send()`; nothing was accepted.
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
        """Return an empty batch to fill and send whole, for records in groups or partitions of your own choice.

        Args:
            max_size: Maximum bytes of the batch; `batch.size` by default.

        Returns:
            An empty batch for `send_batch()`. It uses no `buffer.memory` before it is sent.

        Raises:
            ValueError: if `max_size` is too small for any record.
            RecordTooLargeError: if `max_size` is above `max.request.size` or `buffer.memory`.
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
        """Send a batch of `create_batch()` whole, after the records accepted for its partition before.

        Interceptors see the acknowledgements of its records, not the records.

        Args:
            batch: The batch; this call closes it.
            topic: The topic.
            partition: The partition of the whole batch. With `None` the built-in partitioner chooses, as for
                records without a key: the choice changes after `batch.size` bytes. Keys in the batch do not affect
                it; to partition by key, choose the partition yourself.
            timeout: Maximum seconds to wait for the topic and for room, if that is less than `max.block.ms`.
            on_delivery: Called once per record, as in `send()`.

        Returns:
            One handle for all its records.

        Raises:
            BatchClosedError: if the batch was sent before.
            RecordTooLargeError: if the batch is above `max.request.size` or `buffer.memory`.
            MaxBlockTimeoutError: as in `send()`; the batch was not sent and can be sent again.
            InvalidRecordError: if the topic's name is invalid, or the topic has no such partition.
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
        """Send the rows of Arrow data, straight from its buffers. It needs the extra `aioproduce[arrow]`.

        Columns are found by name. Only `value` is required, and columns with other names are ignored:

        - `value`, `key`: binary or string of any kind, also dictionary-encoded; sent as they are, not serialized. A
          null is a tombstone, or a null key.
        - `headers`: a map, or a list of structs of name (or key) and value. A null means no headers.
        - `partition`: integers. A null leaves the choice to the key or the partitioner.
        - `timestamp`: any timestamp (without a zone it is UTC), or integers: milliseconds since the epoch. A null
          means the time of sending.
        - `topic`: strings, if the call names no topic.

        Args:
            topic: The topic of all rows, or None if a column has it.
            data: A `pyarrow.RecordBatch`, `Table` or `RecordBatchReader`, or any object with the Arrow C interface
                (`__arrow_c_stream__` or `__arrow_c_array__`), e.g. a Polars or pandas frame.
            columns: Other column names, e.g. `{"value": "payload"}`; a column that is named here must exist.
            partition: The partition of rows that have none.
            timestamp: The timestamp of rows that have none.
            headers: The headers of all rows, if there is no `headers` column.
            timeout: Maximum seconds to wait for each batch of records, if that is less than `max.block.ms`.
            on_delivery: Called once per record, as in `send()`.

        Returns:
            One handle for all rows, in their order.

        Raises:
            ArrowColumnError: if a column is missing or its type cannot be sent; nothing was queued.
            TypeError: if `data` is not Arrow data.
            MissingExtraError: if pyarrow is not installed.
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
