"""How busy partitions are, as a table to draw from: the adaptive part of KIP-794.

Created by `core.batching.partitioning` at a bounded rate, drawn from by `UniformSticky` at each switch.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class LoadTable:
    """Partitions with weights: the fewer batches wait for one, the more likely it is drawn.

    A partition's weight is one more than the longest queue, minus its own queue. In Kafka's own example, queues of
    0, 3 and 1 batches have the weights 4, 1 and 3, and the cumulative weights 4, 5 and 8. Of the numbers 0 to 7,
    0 to 3 draw the first partition, 4 the second and 5 to 7 the third.

    Args:
        partitions: The partitions that may be drawn; at least one.
        queue_lengths: How many batches wait for each partition.

    Attributes:
        total: The sum of the weights.

    Example:
        >>> table = LoadTable([0, 1, 2], [0, 3, 1])
        >>> [table.partition_at(number) for number in range(table.total)]
        [0, 0, 0, 0, 1, 2, 2, 2]
    """

    __slots__ = ("_cumulative", "_partitions", "total")

    def __init__(self, partitions: Sequence[int], queue_lengths: Sequence[int]) -> None:
        highest = max(queue_lengths) + 1
        self._partitions = partitions
        self._cumulative = list(accumulate(highest - length for length in queue_lengths))
        self.total: int = self._cumulative[-1]

    def partition_at(self, number: int) -> int:
        """Return the partition for a number from 0 to `total` - 1."""
        return self._partitions[bisect_right(self._cumulative, number)]
