"""Sticky rules for keyless records: all go to one partition until it has received its share.

Each topic has one such rule, owned by the owner of the topic's queues. For each keyless record the caller asks
`peek()`, appends the record to that partition's queue, and reports the bytes to `on_appended()`.

1. The choice changes only in `on_appended()` and after `leave()`.
2. A partition without leader is chosen only if no partition has one. A choice that loses its leader is left. Java
   keeps it for `batch.size` bytes, which are many records at a low rate.
3. Randomness is an argument: `random(n)` returns a number from 0 to n - 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aioproduce.partitioners.load import LoadTable
    from aioproduce.partitioners.protocol import TopicView

_UNCHOSEN: Final = -1
_UNBOUNDED: Final = 2**62


class _Sticky:
    """The base of the sticky rules: the current choice, and the bytes that went to it."""

    __slots__ = ("_partition", "_produced", "_random")

    def __init__(self, random: Callable[[int], int]) -> None:
        self._random = random
        self._partition = _UNCHOSEN
        self._produced = 0

    def peek(self, view: TopicView) -> int:
        """Return the partition for the next record, without changing the choice."""
        if self._partition == _UNCHOSEN or self._partition >= view.partition_count:
            # The latter happens if the topic was created again with fewer partitions.
            self._produced = 0
            self._partition = self._next_partition(view)
        return self._partition

    def leave(self) -> None:
        """Make the next `peek()` choose again."""
        self._partition = _UNCHOSEN

    def _next_partition(self, view: TopicView) -> int:
        row = view.available or range(view.partition_count)
        return row[self._random(len(row))]


@final
class UniformSticky(_Sticky):
    """One partition for a batch's worth of bytes (KIP-794): Kafka's default since 3.3.

    The choice changes after `batch_size` bytes if that leaves no fractional batch behind (`can_switch`), and after
    twice as many bytes in any case.

    Args:
        batch_size: Bytes that go to a partition before the next one is chosen: `batch.size`.
        random: Uniform choice, `random(n)` from 0 to n - 1.
        loads: Called at each switch. It returns the table to draw the next partition from, or `None` for a uniform
            choice, which is also the default.

    Raises:
        ValueError: If `batch_size` is not positive.
    """

    __slots__ = ("_batch_size", "_loads")

    def __init__(
        self,
        batch_size: int,
        random: Callable[[int], int],
        loads: Callable[[TopicView], LoadTable | None] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        super().__init__(random)
        self._batch_size = batch_size
        self._loads = loads

    @property
    def bytes_left(self) -> int:
        """How many more bytes may go to the current choice before it changes in any case."""
        return 2 * self._batch_size - self._produced

    def on_appended(self, partition: int, appended: int, view: TopicView, *, can_switch: bool = True) -> None:
        """Count bytes that were appended to a partition, and choose the next one if it had enough.

        Args:
            partition: The partition; bytes for another than the current choice are not counted.
            appended: The number of bytes; 0 only checks again whether to switch.
            view: The topic's partitions.
            can_switch: Whether every batch of the partition's queue is full. Otherwise a switch would send
                fractional batches when `linger.ms` is high, so it waits until twice the size.
        """
        if partition != self._partition:
            return
        self._produced += appended
        if self._produced >= (self._batch_size if can_switch else 2 * self._batch_size):
            self._partition = self._next_partition(view)
            self._produced = 0

    def _next_partition(self, view: TopicView) -> int:
        loads = None if self._loads is None else self._loads(view)
        if loads is not None:
            return loads.partition_at(self._random(loads.total))
        return super()._next_partition(view)


@final
class StickyPerBatch(_Sticky):
    """One partition until its batch is full or sent (KIP-480): Kafka's default from 2.4 to 3.2.

    A slow broker's batches take longer to be sent, so they grow larger, and most records go to the slowest broker.
    This is why KIP-794 counts bytes instead.

    Args:
        random: Uniform choice, `random(n)` from 0 to n - 1.
    """

    __slots__ = ()

    bytes_left: Final = _UNBOUNDED

    def on_appended(self, partition: int, appended: int, view: TopicView, *, can_switch: bool = True) -> None:
        """Count bytes that were appended, and choose another partition if a new batch would be started.

        Args:
            partition: The partition; bytes for another than the current choice are not counted.
            appended: The number of bytes.
            view: The topic's partitions.
            can_switch: Whether no batch of the partition accepts more records. A partition that was just chosen and
                has received nothing is kept, because its first batch is about to start.
        """
        if partition != self._partition:
            return
        self._produced += appended
        if can_switch and self._produced:
            self._partition = self._another(view)
            self._produced = 0

    def _another(self, view: TopicView) -> int:
        """Return another partition than the current one, if there is one."""
        row = view.available or range(view.partition_count)
        number = self._random(len(row))
        if row[number] == self._partition and len(row) > 1:
            # One of the other partitions, all equally likely.
            number = (number + 1 + self._random(len(row) - 1)) % len(row)
        return row[number]
