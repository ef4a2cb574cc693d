"""Batches that users fill themselves and send whole, e.g. in ETL and Spark code.

`Producer.create_batch()` makes a batch and `Producer.send_batch()` sends it. If no partition is given,
`BatchPartitions` chooses one.

Invariants:

1. A batch is sent once. A `send_batch()` that raised has queued nothing, and the batch can be sent again.
2. A record that is refused, or does not fit, does not change the batch.
3. An unsent batch uses memory of its own. Sending copies the records to leased memory and releases the batch's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from aioproduce._native.bulk_append import BulkAppender
from aioproduce._native.columns import ByteColumn
from aioproduce._native.delivery import BatchResult
from aioproduce._native.key_hash import NO_HASH
from aioproduce._native.record_batch import (
    RECORD_BATCH_OVERHEAD,
    RecordBatchBuffer,
    encode_headers,
    record_size_upper_bound,
)
from aioproduce._native.topic_appender import TopicAppender
from aioproduce.errors import BatchClosedError, RecordTooLargeError
from aioproduce.partitioners import UniformSticky
from aioproduce.producer.input import header_list, timestamp_ms
from aioproduce.producer.value_types import Generic, K, V

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioproduce.config import ProducerConfig
    from aioproduce.partitioners import TopicView
    from aioproduce.producer.input import RecordInput
    from aioproduce.records import Headers

_ITS_TOPIC: Final = "of a batch"
_DEFAULT_SIZE: Final = 16_384


class _State(Enum):
    OPEN = auto()
    CLOSED = auto()
    BEING_SENT = auto()
    SENT = auto()


@final
class BatchBuilder(Generic[K, V]):
    """Records for one partition, appended until the batch is full.

    Example:
        >>> batch = producer.create_batch()
        >>> for line in lines:
        ...     if batch.append(line) is None:
        ...         await producer.send_batch(batch, "orders")
        ...         batch = producer.create_batch()
        ...         batch.append(line)
        >>> deliveries = await producer.send_batch(batch, "orders")
    """

    __slots__ = ("_input", "_limit", "_records", "_state", "_wall_ms")

    def __init__(
        self,
        record_input: RecordInput,
        config: ProducerConfig,
        wall_ms: Callable[[], int],
        max_size: int | None = None,
    ) -> None:
        limit, limited_by = min(
            (config.max_request_size, "max.request.size"), (config.buffer_memory, "buffer.memory")
        )
        if max_size is None:
            # batch.size=0 means one record per batch; a batch that is filled by hand should still hold several.
            max_size = min(
                config.batch_size if config.batch_size > RECORD_BATCH_OVERHEAD else _DEFAULT_SIZE, limit
            )
        if max_size <= RECORD_BATCH_OVERHEAD:
            raise ValueError(
                f"max_size must be above a batch's own {RECORD_BATCH_OVERHEAD} bytes, not {max_size}"
            )
        if max_size > limit:
            raise _too_large("the batch", max_size, limit, limited_by)
        self._input = record_input
        self._wall_ms = wall_ms
        self._limit = limit, limited_by
        self._records = RecordBatchBuffer(bytearray(max_size))
        self._state = _State.OPEN

    def append(
        self,
        value: V | None,
        key: K | None = None,
        *,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> int | None:
        """Append one record.

        Args:
            value: Bytes, None (a tombstone), or an input of the value serializer.
            key: Bytes, None, or an input of the key serializer; it does not choose the partition.
            timestamp: Milliseconds since the epoch or an aware datetime; `None` means now.
            headers: `(name, value)` pairs.

        Returns:
            The record's index in the batch, or `None` if the batch is full. An empty batch accepts a record that is
            larger than the batch.

        Raises:
            InvalidRecordError: if this record can never be sent.
            BatchClosedError: if the batch was closed or sent.
        """
        self._check_open()
        key_bytes = None if key is None else self._input.key(_ITS_TOPIC, key)
        value_bytes = None if value is None else self._input.value(_ITS_TOPIC, value)
        listed = None if headers is None else header_list(headers)
        at = self._wall_ms() if timestamp is None else timestamp_ms(timestamp)
        index = self._records.try_append(at, key_bytes, value_bytes, listed)
        if index >= 0:
            return index
        size = RECORD_BATCH_OVERHEAD + record_size_upper_bound(key_bytes, value_bytes, listed)
        limit, limited_by = self._limit
        if size > limit:
            raise _too_large("the record", size, limit, limited_by)
        if self._records.record_count:
            return None
        self._records = RecordBatchBuffer(bytearray(size))
        return self._records.try_append(at, key_bytes, value_bytes, listed)

    def append_many(
        self,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None = None,
        *,
        start: int = 0,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Append as many records as fit.

        Args:
            values: The values.
            keys: As many keys as values, or None.
            start: The index of the first value to append.
            timestamp: The timestamp of all records.
            headers: The headers of all records.

        Returns:
            The number of records appended from `start` on; fewer than given if the batch is full.

        Raises:
            ValueError: if there are not as many keys as values; nothing was appended.
            InvalidRecordError: if a record can never be sent; the records before it are in the batch.
            BatchClosedError: if the batch was closed or sent.

        Example:
            >>> batch = producer.create_batch(max_size=1_000_000)
            >>> batch.append_many([b"1", b"2", b"3"])
            3
        """
        self._check_open()
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"give as many keys as values, not {len(keys)} for {len(values)}")
        listed = None if headers is None else header_list(headers)
        bulk = BulkAppender(_only(self._records), 0, encode_headers(listed))
        columns = ByteColumn(list(values)), None if keys is None else ByteColumn(list(keys))
        at = self._wall_ms() if timestamp is None else timestamp_ms(timestamp)
        first = start
        while start < len(values):
            if not self._input.has_serializers:
                start += len(bulk.append(*columns, None, None, None, at, start, len(values)))
                if start == len(values):
                    break
            # The batch is full, or this record is not plain bytes: append() finds out.
            key = None if keys is None else keys[start]
            before = self._records
            if self.append(values[start], key, timestamp=at, headers=listed) is None:
                break
            start += 1
            if self._records is not before:
                break  # the record was larger than the batch and is its only one
        return start - first

    @property
    def record_count(self) -> int:
        """Number of records in the batch."""
        return self._records.record_count

    @property
    def size(self) -> int:
        """Size of the batch in bytes on the wire, without compression."""
        return self._records.size

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._state is not _State.OPEN

    def close(self) -> None:
        """Accept no more records; `send_batch()` also closes the batch."""
        if self._state is _State.OPEN:
            self._state = _State.CLOSED

    @contextmanager
    def _being_sent(self) -> Iterator[RecordBatchBuffer]:
        """Yield the records to the producer, which queues them or raises."""
        if self._state is _State.SENT or self._state is _State.BEING_SENT:
            raise BatchClosedError(
                "this batch was sent: a batch is sent once, make another with create_batch()"
            )
        self._state = _State.BEING_SENT
        try:
            yield self._records
        except BaseException:
            self._state = _State.CLOSED  # nothing was queued
            raise
        self._state = _State.SENT
        self._records.release()

    def _check_open(self) -> None:
        if self._state is not _State.OPEN:
            raise BatchClosedError("this batch is closed: make another with create_batch()")

    def __len__(self) -> int:
        return self._records.record_count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<BatchBuilder {self.record_count} records, {self.size} bytes, {self._state.name.lower()}>"


@final
class BatchPartitions:
    """Partition choice for batches that are sent without a partition: `uniform_sticky`, by topic.

    Keyless records have a partitioner of their own. With a shared one they would lie in the open batch of the same
    partition, which each ready-made batch closes.

    Args:
        sticky_batch_size: Bytes that go to a partition before the next one is chosen: `batch.size`.
        random: Uniform choice: `random(n)` returns 0 to n - 1.
    """

    __slots__ = ("_partitioners", "_random", "_sticky_batch_size")

    def __init__(self, sticky_batch_size: int, random: Callable[[int], int]) -> None:
        self._sticky_batch_size = sticky_batch_size
        self._random = random
        self._partitioners: dict[str, UniformSticky] = {}

    def choose(self, topic: str, view: TopicView, size: int) -> int:
        """Return the partition of a batch of `size` bytes; they count at once, so that waiting batches spread."""
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = UniformSticky(self._sticky_batch_size, self._random)
            self._partitioners[topic] = partitioner
        partition = partitioner.peek(view)
        partitioner.on_appended(partition, size, view)
        return partition


def _only(records: RecordBatchBuffer) -> TopicAppender:
    """Return an appender whose only open batch is this one."""
    appender = TopicAppender(NO_HASH)
    appender.set_partition_count(1)
    # Nobody waits for this result: the batch gets its own when it is queued.
    appender.open(0, records, BatchResult("", 0, None))  # type: ignore[arg-type]  # as said
    return appender


def _too_large(what: str, size: int, limit: int, limited_by: str) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"{what} takes up to {size} bytes, more than {limited_by}={limit}: raise {limited_by}, or make it smaller",
        size=size,
        limit=limit,
        limited_by=limited_by,
    )
