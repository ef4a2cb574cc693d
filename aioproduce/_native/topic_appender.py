"""The append of a record to an open batch: the part of `send()` that needs no decision.

The RecordAccumulator owns one `TopicAppender` per topic. It sets the open batches and the partitions of *keyless*
records: records without a partition and without a key that chooses one. Keyless records go to one *sticky*
partition until its share is used up, or each to the next in a *line* of partitions. `append()` returns None if
something must be decided (no open batch, a full batch, a share or a line used up). The accumulator then decides.

Invariants:

1. It appends only to batches that the accumulator opened and has not closed.
2. Bytes of keyless records are counted until the accumulator takes the count (KIP-794).
3. A record that is not appended uses no place in the line, because it comes again. Java's round robin lost every
   second place that way (KAFKA-9965).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce._native.delivery import BatchResult
from aioproduce._native.key_hash import HASHES, NO_HASH
from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce._native.record_numbers import RecordNumbers

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native.delivery import make_delivery
    from aioproduce._native.key_hash import _HASHES_NULL, partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import Header

NO_PARTITION = -1


class TopicAppender:
    """The open batches of one topic.

    Args:
        key_rule: How keys choose a partition (`key_hash`).
    """

    def __init__(self, key_rule: int) -> None:
        # Of partition p the open batch's buffer at 2p and its result at 2p + 1: together, because with thousands of
        # partitions neither is in a cache.
        self._open: list[Any] = []
        self._partition_count = 0
        self._key_rule = key_rule
        self._line: list[int] | None = None
        self._line_at = 0
        self._sticky = NO_PARTITION
        self._sticky_bytes = 0
        self._sticky_left = 0
        self._numbers: RecordNumbers | None = None
        self._is_numbered = False

    def set_numbers(self, numbers: RecordNumbers) -> None:
        """Number the topic's records; called before the first record."""
        self._numbers = numbers
        self._is_numbered = True

    def set_partition_count(self, count: int) -> None:
        """Set the number of partitions that keys are hashed to."""
        self._partition_count = count

    def open(self, partition: cython.Py_ssize_t, buffer: RecordBatchBuffer, result: BatchResult) -> None:
        """Set the open batch of a partition."""
        while len(self._open) <= 2 * partition:
            self._open += (None, None)
        self._open[2 * partition] = buffer
        self._open[2 * partition + 1] = result

    def close(self, partition: cython.Py_ssize_t) -> None:
        """Append no more records to the partition's batch."""
        self._open[2 * partition] = self._open[2 * partition + 1] = None

    def set_sticky(self, partition: int, left: int) -> None:
        """Send the next `left` bytes of keyless records to a partition; -1: decide at the next record."""
        self._line = None
        self._sticky = partition
        self._sticky_left = left
        self._sticky_bytes = 0

    def end_share(self) -> None:
        """End the present choice: decide at the next keyless record. The count of its bytes stays readable."""
        self._sticky_left = 0

    def spreads(self, *, has_keys: bool) -> bool:
        """Return whether records without a partition may go to several partitions without a decision."""
        return self._line is not None or (has_keys and self._key_rule & HASHES != NO_HASH)

    def set_line(self, line: list[int]) -> None:
        """Send one keyless record to each of these partitions; then a decision is due."""
        self._line = line
        self._line_at = 0

    @property
    def turns_left(self) -> int:
        """The number of unused places in the line."""
        return 0 if self._line is None else max(len(self._line) - self._line_at, 0)

    def next_keyless(self) -> cython.Py_ssize_t:
        """Return the partition of the next keyless record; `NO_PARTITION` if a decision is due."""
        if self._line is not None:
            return self._line[self._line_at] if self._line_at < len(self._line) else -1
        return self._sticky if self._sticky_bytes < self._sticky_left else -1

    def count_keyless(self, size: cython.Py_ssize_t) -> cython.void:
        """Count a keyless record that was appended to the partition of `next_keyless()`."""
        self._sticky_bytes += size
        self._line_at += 1

    def take_sticky_bytes(self) -> int:
        """Return the bytes of keyless records since `set_sticky()` or the last call, and reset the count."""
        taken = self._sticky_bytes
        self._sticky_bytes = 0
        return taken

    def append(
        self,
        partition: cython.Py_ssize_t,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
    ) -> DeliveryFuture | None:
        """Append one record to an open batch.

        Args:
            partition: Its partition; with `NO_PARTITION` the key chooses, or the rule for keyless records.
            timestamp: Milliseconds since the epoch.
            key: Bytes or None.
            value: Bytes or None.
            headers: A list or tuple of `(name, value)`, or None.

        Returns:
            The record's future, or None if the accumulator has to decide something first.
        """
        is_keyless: cython.bint = False
        before: cython.Py_ssize_t = 0
        if partition < 0:
            if key is not None or self._key_rule & _HASHES_NULL:
                partition = partition_of(self._key_rule, key, self._partition_count)
            if partition < 0:
                is_keyless = True
                partition = self.next_keyless()
                if partition < 0:
                    return None
        if partition >= self._partition_count or 2 * partition >= len(self._open):
            return None
        buffer: RecordBatchBuffer | None = self._open[2 * partition]
        if buffer is None:
            return None
        if is_keyless:
            before = buffer.size
        index: cython.Py_ssize_t
        if self._is_numbered:
            index = self._numbers.append(buffer, timestamp, key, value, headers)  # type: ignore[union-attr]  # numbered
        else:
            index = buffer.try_append(timestamp, key, value, headers)
        if index < 0:
            return None
        if is_keyless:
            self.count_keyless(buffer.size - before)
        return make_delivery(
            self._open[2 * partition + 1],
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
