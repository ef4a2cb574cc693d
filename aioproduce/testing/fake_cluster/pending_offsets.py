"""The offsets that groups committed, and those of undecided transactions.

Called by `offset_apis` (commits and reads) and by `markers` (the ends of transactions). It follows
`OffsetMetadataManager` of Apache Kafka 4.3.1.

Invariants:
1. A pending offset takes effect with the commit marker of its transaction, not before; an abort drops it.
2. Of two offsets of one partition the one committed later wins, whichever was decided later.
3. `__consumer_offsets` has no log here. Each of its partitions knows its producers, like a topic's partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

from aioproduce.testing.fake_cluster.coordinator_places import partition_of
from aioproduce.testing.fake_cluster.failures import SequenceError
from aioproduce.testing.fake_cluster.producer_state import ProducerState

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.control_batch import Marker
    from aioproduce.testing.fake_cluster.transaction_states import Place, Producer


@final
class CommittedOffset(NamedTuple):
    """One offset of a group.

    Attributes:
        position: Number of the commit in the cluster, from 1.
    """

    offset: int
    leader_epoch: int
    metadata: str | None
    position: int


@final
@dataclass(slots=True, eq=False, repr=False)
class PendingOffsets:
    """The offsets of all groups.

    Attributes:
        committed: By group, by partition.
    """

    committed: dict[str, dict[Place, CommittedOffset]] = field(default_factory=dict)
    # By producer id, by group.
    _pending: dict[int, dict[str, dict[Place, CommittedOffset]]] = field(default_factory=dict)
    _producers: dict[int, ProducerState] = field(default_factory=dict)
    _position: int = 0

    def commit(
        self, group_id: str, place: Place, offset: int, leader_epoch: int, metadata: str | None
    ) -> None:
        """Commit an offset that takes effect at once."""
        made = self._made(offset, leader_epoch, metadata)
        self.committed.setdefault(group_id, {})[place] = made

    def commit_in_transaction(
        self,
        producer: Producer,
        group_id: str,
        place: Place,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
    ) -> None:
        """Commit an offset that takes effect when its transaction is committed."""
        self.producers_of(group_id).begin(*producer)
        groups = self._pending.setdefault(producer.producer_id, {})
        groups.setdefault(group_id, {})[place] = self._made(offset, leader_epoch, metadata)

    def is_unstable(self, group_id: str, place: Place) -> bool:
        """Return whether an undecided transaction has an offset of this partition."""
        return any(place in groups.get(group_id, ()) for groups in self._pending.values())

    def producers_of(self, group_id: str) -> ProducerState:
        """Return the producers that the group's partition of `__consumer_offsets` knows."""
        return self._producers.setdefault(partition_of(group_id), ProducerState())

    def complete(self, partition: int, marker: Marker) -> int:
        """Append a marker to one partition of `__consumer_offsets`. Return an error code."""
        producers = self._producers.setdefault(partition, ProducerState())
        try:
            producers.check_marker(marker)
        except SequenceError as refusal:
            return refusal.code
        producers.append_marker(marker, -1)
        groups = self._pending.get(marker.producer_id, {})
        for group_id in [each for each in groups if partition_of(each) == partition]:
            for place, pending in groups.pop(group_id).items():
                self._decide(group_id, place, pending, marker.is_commit)
        if not groups:
            self._pending.pop(marker.producer_id, None)
        return 0

    def _decide(self, group_id: str, place: Place, pending: CommittedOffset, is_commit: bool) -> None:
        if is_commit:
            offsets = self.committed.setdefault(group_id, {})
            known = offsets.get(place)
            if known is None or known.position < pending.position:
                offsets[place] = pending

    def _made(self, offset: int, leader_epoch: int, metadata: str | None) -> CommittedOffset:
        self._position += 1
        return CommittedOffset(offset, leader_epoch, metadata, self._position)
