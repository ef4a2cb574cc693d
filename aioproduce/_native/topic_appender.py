"""The way of a record into a batch that is open already: what `send()` does when there is nothing to decide.

One `TopicAppender` per topic, owned by the RecordAccumulator, which tells it the open batches and the sticky
partition. `append()` gives None whenever there is something to decide (no open batch, a full one, the sticky
partition's share used up): the accumulator then decides.

Invariants:

1. It appends only to batches that the accumulator opened here and has not closed.
2. Bytes of keyless records are counted until the accumulator takes the count (KIP-794).

One source, two builds: compiled by Cython as it stands (pure Python mode), or interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.delivery import BatchResult, make_delivery
from aioproduce._native.murmur2 import partition_for_key
from aioproduce._native.record_batch import RecordBatchBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce._native import _cython_shadow as cython
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.records import Header
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if cython.compiled:
    # The same again as C knows them: calls between the compiled modules cost a nanosecond then.
    from cython.cimports.aioproduce._native.delivery import (  # type: ignore[import-untyped,import-not-found,no-redef,unused-ignore]
        make_delivery,
    )
    from cython.cimports.aioproduce._native.murmur2 import (  # type: ignore[import-untyped,import-not-found,no-redef,unused-ignore]
        partition_for_key,
    )
    from cython.cimports.aioproduce._native.record_batch import (  # type: ignore[import-untyped,import-not-found,no-redef,unused-ignore]
        RecordBatchBuffer,
    )

NO_PARTITION = -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _written(buffer: RecordBatchBuffer) -> cython.Py_ssize_t:
    if cython.compiled:
        return buffer._position
    else:
        return buffer.size


@cython.final
@cython.cclass
class TopicAppender:
    """The open batches of one topic.

    Args:
        ignore_keys: Whether keys have no say in the choice of the partition (`partitioner.ignore.keys`).
    """

    __slots__ = (
        "_buffers",
        "_ignore_keys",
        "_partition_count",
        "_results",
        "_sticky",
        "_sticky_bytes",
        "_sticky_left",
    )

    _buffers: list[RecordBatchBuffer | None]
    _results: list[BatchResult | None]
    _partition_count: cython.Py_ssize_t
    _ignore_keys: cython.bint
    _sticky: cython.Py_ssize_t
    _sticky_bytes: cython.longlong
    _sticky_left: cython.longlong

    def __init__(self, *, ignore_keys: bool) -> None:
        self._buffers = []
        self._results = []
        self._partition_count = 0
        self._ignore_keys = ignore_keys
        self._sticky = NO_PARTITION
        self._sticky_bytes = 0
        self._sticky_left = 0

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
        self._sticky = partition
        self._sticky_left = left
        self._sticky_bytes = 0

    def bulk_state(
        self,
    ) -> tuple[list[RecordBatchBuffer | None], list[BatchResult | None], int, bool, int, int]:
        """What `bulk_append` needs to append many records at once.

        Returns:
            The open batches and their results by partition, how many partitions there are, whether keys have
            no say, the sticky choice, and how many bytes may go there until it is to be decided anew.
        """
        return (
            self._buffers,
            self._results,
            self._partition_count,
            self._ignore_keys,
            self._sticky,
            self._sticky_left - self._sticky_bytes,
        )

    def add_sticky_bytes(self, count: int) -> None:
        """So many bytes of keyless records were appended otherwise than by `append()`."""
        self._sticky_bytes += count

    @property
    def is_share_used(self) -> bool:
        """Whether the sticky choice is to be decided anew, however much room its open batch has."""
        return self._sticky < 0 or self._sticky_left <= self._sticky_bytes

    def take_sticky_bytes(self) -> int:
        """Bytes of keyless records appended here since `set_sticky()` or the last time they were taken."""
        taken = self._sticky_bytes
        self._sticky_bytes = 0
        return taken

    @cython.ccall
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
            partition: Its partition, or `NO_PARTITION` for the key, or the sticky choice, to decide.
            timestamp: Milliseconds since the epoch.
            key: Bytes or None.
            value: Bytes or None.
            headers: A list or tuple of `(name, value)`, or None.

        Returns:
            The record's future, or None if the accumulator has to decide something first.
        """
        buffer: RecordBatchBuffer | None
        is_sticky: cython.bint = False
        before: cython.Py_ssize_t = 0
        if partition < 0:
            if key is not None and not self._ignore_keys:
                if self._partition_count == 0:
                    return None
                partition = partition_for_key(key, self._partition_count)
            else:
                partition = self._sticky
                is_sticky = True
                if partition < 0 or self._sticky_left <= self._sticky_bytes:
                    return None
        if partition >= self._partition_count or partition >= len(self._buffers):
            return None
        buffer = self._buffers[partition]
        if buffer is None:
            return None
        if is_sticky:
            before = _written(buffer)
        index: cython.Py_ssize_t = buffer.try_append(timestamp, key, value, headers)
        if index < 0:
            return None
        if is_sticky:
            self._sticky_bytes += _written(buffer) - before
        return make_delivery(
            self._results[partition],  # type: ignore[arg-type]  # there is one wherever there is a buffer
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
