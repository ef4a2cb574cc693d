"""The partitions whose first batch can be sent now, in turn, by leader.

Owned by `Readiness`, which decides what is ready.

Invariants:

1. A partition is here once at most: in the queue of the node that led it when it was added, or among the leaderless
   if it had no leader. `PartitionQueue.ready_node` says where.
2. Each call costs O(1), except the queries about all nodes or topics.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aioproduce.core.batching.topic_queues import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioproduce.core.batching.topic_queues import PartitionQueue


class ReadyQueues:
    """The ready partitions of each node, first come, first served."""

    __slots__ = ("_by_node", "_leaderless")

    def __init__(self) -> None:
        self._by_node: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self._leaderless: OrderedDict[PartitionQueue, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def add(self, queue: PartitionQueue) -> bool:
        """Add a partition to the end of its leader's queue, unless it is there; return whether it was added."""
        node = queue.leader_id
        if queue.ready_node == node:
            return False
        self.remove(queue)
        queue.ready_node = node
        if node == NO_LEADER:
            self._leaderless[queue] = None
        else:
            ready = self._by_node.get(node)
            if ready is None:
                ready = self._by_node[node] = OrderedDict()
            ready[queue] = None
        return True

    def remove(self, queue: PartitionQueue) -> None:
        """Remove a partition, if it is here."""
        node = queue.ready_node
        if node is None:
            return
        queue.ready_node = None
        if node == NO_LEADER:
            del self._leaderless[queue]
            return
        ready = self._by_node[node]
        del ready[queue]
        if not ready:
            del self._by_node[node]

    @property
    def nodes(self) -> Collection[int]:
        """The nodes that lead a partition here."""
        return self._by_node.keys()

    @property
    def leaderless_topics(self) -> list[str]:
        """The topics of the partitions without a leader."""
        return list(dict.fromkeys(queue.topic_partition.topic for queue in self._leaderless))

    def count(self, node: int) -> int:
        """Return how many ready partitions a node leads."""
        return len(self._by_node.get(node, ()))

    def first(self, node: int) -> PartitionQueue | None:
        """Return the partition whose turn it is at a node."""
        ready = self._by_node.get(node)
        return None if ready is None else next(iter(ready))
