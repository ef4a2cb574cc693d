"""The batches of one partition, the oldest first.

Owned by `topic_queues.PartitionQueue`. The batches themselves are linked. There is one as a rule, and a deque of
one has a block of 0.5 KB: with thousands of partitions these fill the processor's caches.

Invariants:

1. A batch is in one queue at most. Outside of it, its `ahead` and `behind` are `None`.
2. Each call costs O(1).
3. The queue does not change while somebody iterates over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.core.batching.producer_batch import ProducerBatch


class BatchQueue:
    """A doubly linked list of batches.

    Attributes:
        first: The oldest batch, or `None`.
        last: The newest batch, or `None`.
    """

    __slots__ = ("_count", "first", "last")

    def __init__(self) -> None:
        self.first: ProducerBatch | None = None
        self.last: ProducerBatch | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ProducerBatch]:
        batch = self.first
        while batch is not None:
            yield batch
            batch = batch.behind

    def append(self, batch: ProducerBatch) -> None:
        """Add a batch behind the last one."""
        self.insert(batch, None)

    def insert(self, batch: ProducerBatch, behind: ProducerBatch | None) -> None:
        """Add a batch in front of the batch `behind`, which is in the queue; at the end if that is `None`."""
        ahead = self.last if behind is None else behind.ahead
        batch.ahead, batch.behind = ahead, behind
        if ahead is None:
            self.first = batch
        else:
            ahead.behind = batch
        if behind is None:
            self.last = batch
        else:
            behind.ahead = batch
        self._count += 1

    def remove(self, batch: ProducerBatch) -> None:
        """Remove a batch, which is in the queue.

        Raises:
            ValueError: If it is in no queue. Nothing changes.
        """
        ahead, behind = batch.ahead, batch.behind
        if ahead is None and self.first is not batch:
            raise ValueError(f"batch {batch.batch_id} is not in the queue")
        batch.ahead = batch.behind = None
        if ahead is None:
            self.first = behind
        else:
            ahead.behind = behind
        if behind is None:
            self.last = ahead
        else:
            behind.ahead = ahead
        self._count -= 1
