"""Keyless records one by one: each to a partition of its own choice.

Called by `core.batching.partitioning`, which draws many choices at once, and by `send_batch()` for each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.partitioners.protocol import TopicView


@final
class RoundRobin:
    """The partitions that have a leader, in turn; all in turn where none has one. Kafka's default up to 2.3.

    Java's `RoundRobinPartitioner` asks again when a new batch is begun, and so leaves out every other partition
    (KAFKA-9965); here a turn counts when a record takes it.

    Args:
        random: Where in the row it begins: `random(n)` from 0 to n - 1. So not every producer begins with the
            first.
    """

    __slots__ = ("_random", "_turn")

    def __init__(self, random: Callable[[int], int]) -> None:
        self._random = random
        self._turn: int | None = None

    def next(self, view: TopicView) -> int:
        """The next partition."""
        row = view.available or range(view.partition_count)
        if self._turn is None:
            self._turn = self._random(len(row))
        partition = row[self._turn % len(row)]
        self._turn += 1
        return partition

    def give_back(self, count: int) -> None:
        """The last `count` turns were not taken: those that come next take them."""
        if self._turn is not None:
            self._turn -= count


@final
class UniformRandom:
    """Any partition that has a leader, by chance, for each record; any at all where none has one.

    Args:
        random: Uniform choice, `random(n)` from 0 to n - 1.
    """

    __slots__ = ("_random",)

    def __init__(self, random: Callable[[int], int]) -> None:
        self._random = random

    def next(self, view: TopicView) -> int:
        """The next partition."""
        row = view.available or range(view.partition_count)
        return row[self._random(len(row))]

    def give_back(self, count: int) -> None:
        """The last `count` choices were not taken. No other depends on them."""
