"""Rules that choose a partition for each keyless record.

Used by `core.batching.partitioning`, which draws many choices at once, and by `send_batch()` for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.partitioners.protocol import TopicView


@final
class RoundRobin:
    """The partitions with a leader in turn, or all if none has one. Kafka's default up to 2.3.

    Java's `RoundRobinPartitioner` is asked again when a new batch starts, and so skips every other partition
    (KAFKA-9965). Here a turn counts when a record uses it.

    Args:
        random: Chooses the first partition: `random(n)` from 0 to n - 1, so that not every producer begins with
            the same one.
    """

    __slots__ = ("_random", "_turn")

    def __init__(self, random: Callable[[int], int]) -> None:
        self._random = random
        self._turn: int | None = None

    def next(self, view: TopicView) -> int:
        """Return the next partition."""
        row = view.available or range(view.partition_count)
        if self._turn is None:
            self._turn = self._random(len(row))
        partition = row[self._turn % len(row)]
        self._turn += 1
        return partition

    def give_back(self, count: int) -> None:
        """Return the last `count` turns, which were not used, so that the next records use them."""
        if self._turn is not None:
            self._turn -= count


@final
class UniformRandom:
    """A random partition with a leader for each record, or any if none has one.

    Args:
        random: Uniform choice, `random(n)` from 0 to n - 1.
    """

    __slots__ = ("_random",)

    def __init__(self, random: Callable[[int], int]) -> None:
        self._random = random

    def next(self, view: TopicView) -> int:
        """Return the next partition."""
        row = view.available or range(view.partition_count)
        return row[self._random(len(row))]

    def give_back(self, count: int) -> None:
        """Do nothing: unused choices do not affect later ones."""
