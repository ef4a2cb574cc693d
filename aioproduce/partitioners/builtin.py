"""The default choice for records without a key: one partition for a batch's worth of bytes (KIP-794).

One `BuiltInPartitioner` per topic, made by whoever owns the topic's queues. For each such record the caller
asks `peek()`, appends the record to that partition's queue, and reports the bytes to `on_appended()`. The
adaptive part of KIP-794 (queue sizes as weights) is not here.

1. The choice changes only in `on_appended()`: once `sticky_batch_size` bytes went to a partition, but then
   only when that leaves no fractional batch behind (`can_switch`); at twice as many bytes in any case.
2. A partition without leader is chosen only where no partition has one.
3. Randomness is given: `random(n)` answers a number from 0 to n - 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aioproduce.partitioners.protocol import TopicView

_UNCHOSEN: Final = -1


@final
class BuiltInPartitioner:
    """The sticky choice of one topic.

    Args:
        topic: The topic's name.
        sticky_batch_size: Bytes that go to a partition before the next one is chosen: `batch.size`.
        random: Uniform choice, `random(n)` from 0 to n - 1.

    Raises:
        ValueError: `sticky_batch_size` is not positive.
    """

    __slots__ = ("_partition", "_produced", "_random", "_sticky_batch_size", "topic")

    def __init__(self, topic: str, sticky_batch_size: int, random: Callable[[int], int]) -> None:
        if sticky_batch_size < 1:
            raise ValueError(f"sticky_batch_size must be at least 1, not {sticky_batch_size}")
        self.topic = topic
        self._sticky_batch_size = sticky_batch_size
        self._random = random
        self._partition = _UNCHOSEN
        self._produced = 0

    @property
    def bytes_left(self) -> int:
        """How many bytes may still go to the present choice before it changes in any case."""
        return 2 * self._sticky_batch_size - self._produced

    def peek(self, view: TopicView) -> int:
        """The partition that the next record goes to. Asking does not change it.

        A choice outlives its leader: the records wait, as Java's do, and the bytes appended end it.
        """
        if self._partition == _UNCHOSEN or self._partition >= view.partition_count:
            # The latter when the topic was made again with fewer partitions.
            self._produced = 0
            self._partition = self._next_partition(view)
        return self._partition

    def is_changed(self, partition: int) -> bool:
        """Whether the choice is another than `partition`, peeked before a wait: then peek again."""
        return self._partition != partition

    def on_appended(self, partition: int, appended: int, view: TopicView, *, can_switch: bool = True) -> None:
        """Count bytes that were appended to a partition, and choose the next one if it had enough.

        Args:
            partition: Where they went; bytes for another than the present choice are not counted.
            appended: How many; 0 asks again whether it is time to switch.
            view: The topic's partitions.
            can_switch: Whether every batch of the partition's queue is full. A switch away from a batch that
                is not would send fractional batches when `linger.ms` is high; so the switch waits, up to
                twice the size.
        """
        if partition != self._partition:
            return
        self._produced += appended
        size = self._sticky_batch_size
        if self._produced >= (size if can_switch else 2 * size):
            self._partition = self._next_partition(view)
            self._produced = 0

    def _next_partition(self, view: TopicView) -> int:
        available = view.available
        if available:
            return available[self._random(len(available))]
        return self._random(view.partition_count)
