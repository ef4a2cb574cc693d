"""The way of a record into a batch that is open already: what `send()` does when there is nothing to decide.

One `TopicAppender` per topic, owned by the RecordAccumulator, which tells it the open batches and where records go
that neither name a partition nor have a key with a say: *keyless* ones, here and in the other modules. All of
them go to one *sticky* partition until its share is used up, or each to the next in a *line* of partitions.
`append()` gives None whenever there is something to decide (no open batch, a full one, share or line used up):
the accumulator then decides.

Invariants:

1. It appends only to batches that the accumulator opened here and has not closed.
2. Bytes of keyless records are counted until the accumulator takes the count (KIP-794).
3. A record that is not appended takes no place in the line: it is asked for again (Java's round robin lost every
   other place so, KAFKA-9965).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        key_rule: What keys have to say (`key_hash`).
    """

    def __init__(self, key_rule: int) -> None:
        self._buffers: list[RecordBatchBuffer | None] = []
        self._results: list[BatchResult | None] = []
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
        """The topic's records are numbered; called before the first of them."""
        self._numbers = numbers
        self._is_numbered = True

    def set_partition_count(self, count: int) -> None:
        """The topic has so many partitions; keys are hashed to them."""
        self._partition_count = count

    def open(self, partition: int, buffer: RecordBatchBuffer, result: BatchResult) -> None:
        """Records of this partition go into this batch."""
        while len(self._buffers) <= partition:
            self._buffers.append(None)
            self._results.append(None)
        self._buffers[partition] = buffer
        self._results[partition] = result

    def close(self, partition: int) -> None:
        """The partition's batch takes no more records."""
        self._buffers[partition] = None
        self._results[partition] = None

    def set_sticky(self, partition: int, left: int) -> None:
        """Keyless records go to this partition until `left` bytes more of them are there; -1: decide anew."""
        self._line = None
        self._sticky = partition
        self._sticky_left = left
        self._sticky_bytes = 0

    def end_share(self) -> None:
        """The present choice takes no more keyless records: decide anew. What it took is still to be told."""
        self._sticky_left = 0

    def spreads(self, *, has_keys: bool) -> bool:
        """Whether records without a partition may go to several before anything is to be decided."""
        return self._line is not None or (has_keys and self._key_rule & HASHES != NO_HASH)

    def set_line(self, line: list[int]) -> None:
        """Keyless records go to these partitions, one to each, and then it is to be decided anew."""
        self._line = line
        self._line_at = 0

    @property
    def turns_left(self) -> int:
        """How many places of the line are not taken."""
        return 0 if self._line is None else max(len(self._line) - self._line_at, 0)

    def next_keyless(self) -> cython.Py_ssize_t:
        """Where the next keyless record goes; `NO_PARTITION` where that is to be decided."""
        if self._line is not None:
            return self._line[self._line_at] if self._line_at < len(self._line) else -1
        return self._sticky if self._sticky_bytes < self._sticky_left else -1

    def count_keyless(self, size: cython.Py_ssize_t) -> cython.void:
        """One more keyless record of so many bytes is where `next_keyless()` said."""
        self._sticky_bytes += size
        self._line_at += 1

    def take_sticky_bytes(self) -> int:
        """Bytes of keyless records appended here since `set_sticky()` or the last time they were taken."""
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
            partition: Its partition, or `NO_PARTITION` for the key, or else the choice of keyless ones, to decide.
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
        if partition >= self._partition_count or partition >= len(self._buffers):
            return None
        buffer: RecordBatchBuffer | None = self._buffers[partition]
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
            self._results[partition],  # type: ignore[arg-type]  # there is one wherever there is a buffer
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
