"""The partitions that keyless records may go to, and the load of each.

`BrokerLoads` belongs to the producer: the Sender reports the time, and the brokers that keep batches waiting.
`Candidates` belongs to a topic: it leaves out partitions outside the rack (KIP-1123), and makes the table of loads
of KIP-794.

Invariants:

1. The cost of a table grows with the topic's partitions. A table is made only for a switch, and made again only
   after `_REFRESH` seconds and a time that grows with the partitions. Java makes one at each wake-up of its sender.
2. A partition that has never had a batch counts as an empty queue. Java chooses uniformly until each has had one.
3. A broker is slow while batches wait for it and have waited for longer than
   `partitioner.availability.timeout.ms`. A broker without waiting batches is tried again; Java leaves it out until
   a record with a key goes there. If all brokers of the rack are slow, partitions outside the rack are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from aioproduce.partitioners import LoadTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioproduce.core.batching.topic_queues import PartitionQueue
    from aioproduce.core.cluster.cluster_metadata import ClusterMetadata
    from aioproduce.core.cluster.metadata_views import TopicView
    from aioproduce.partitioners import TopicView as Row

_REFRESH: Final = 0.005
_PARTITIONS_PER_REFRESH: Final = 500


class BrokerLoads:
    """Which brokers are slow, and when tables may be made again.

    Args:
        availability_timeout: Seconds that batches may wait for a broker before it counts as slow; 0: no broker
            ever does.

    Attributes:
        refreshes: How many refresh intervals have begun; a table's age is counted in these.
    """

    __slots__ = ("_availability_timeout", "_blocked_since", "_next_refresh", "_now", "refreshes")

    def __init__(self, availability_timeout: float) -> None:
        self._availability_timeout = availability_timeout
        self._blocked_since: dict[int, float] = {}
        # No broker is slow before the first call of pass_time().
        self._now = float("-inf")
        self._next_refresh = float("-inf")
        self.refreshes: int = 0

    def pass_time(self, waiting: Collection[int], now: float) -> None:
        """Note the time, and the nodes that batches wait for."""
        if now < self._next_refresh:
            return
        self._next_refresh = now + _REFRESH
        self._now = now
        self.refreshes += 1
        for node in [node for node in self._blocked_since if node not in waiting]:
            del self._blocked_since[node]

    def blocked(self, node: int, now: float) -> None:
        """Note that batches wait for a node that accepts no request now."""
        self._blocked_since.setdefault(node, now)

    def drained(self, node: int) -> None:
        """Note that batches were sent to a node."""
        self._blocked_since.pop(node, None)

    @property
    def slow(self) -> set[int]:
        """The nodes that are slow now."""
        if not self._availability_timeout:
            return set()
        return {
            node
            for node, since in self._blocked_since.items()
            if self._now - since > self._availability_timeout
        }


@final
@dataclass(frozen=True, slots=True)
class _Near:
    """The partitions of a topic whose leaders are in the rack."""

    partition_count: int
    available: Sequence[int]


@final
class Candidates:
    """The partitions of one topic that keyless records may go to.

    Args:
        loads: The producer's broker loads.
        metadata: The brokers' racks.
        queues: The topic's queues, by partition.
        rack: The rack for the records, as long as a broker there leads a partition; `None`: any.
    """

    __slots__ = ("_due", "_loads", "_metadata", "_near", "_queues", "_rack", "_table", "_table_of", "_view")

    def __init__(
        self,
        loads: BrokerLoads,
        metadata: ClusterMetadata,
        queues: Mapping[int, PartitionQueue],
        rack: str | None,
    ) -> None:
        self._loads = loads
        self._metadata = metadata
        self._queues = queues
        self._rack = rack
        self._near: _Near | None = None
        self._view: TopicView | None = None
        self._due = 0
        self._table: LoadTable | None = None
        self._table_of: Sequence[int] = ()

    def of(self, view: TopicView) -> Row:
        """Return the topic with only the partitions that a rule may choose."""
        self._view = view
        if self._rack is None:
            return view
        if self._near is None:
            near = [p for p in view.available if self._rack_of(view.partitions[p].leader_id) == self._rack]
            self._near = _Near(view.partition_count, tuple(near) or view.available)
        return self._near

    def _rack_of(self, node: int) -> str | None:
        broker = self._metadata.broker(node)
        return None if broker is None else broker.rack

    def forget(self) -> None:
        """Drop what was derived from the old leaders."""
        self._near = None
        self._due = 0

    def loads(self, row: Row) -> LoadTable | None:
        """Return the table to draw from, no older than invariant 1 allows; `None` if all loads are equal."""
        available = row.available
        if self._loads.refreshes >= self._due or available is not self._table_of:
            self._due = self._loads.refreshes + 1 + len(available) // _PARTITIONS_PER_REFRESH
            self._table_of = available
            self._table = self._make_table(available)
        return self._table

    def _make_table(self, available: Sequence[int]) -> LoadTable | None:
        slow = self._loads.slow
        queues = self._queues
        partitions = available
        if slow:
            assert self._view is not None  # the row came from it
            leaders = self._view.partitions
            partitions = [p for p in available if leaders[p].leader_id not in slow]
            if not partitions and self._rack is not None:
                partitions = [p for p in self._view.available if leaders[p].leader_id not in slow]
        if not partitions:
            return None
        lengths = [len(queues[p].batches) if p in queues else 0 for p in partitions]
        if partitions is available and min(lengths) == max(lengths):
            return None
        return LoadTable(partitions, lengths)
