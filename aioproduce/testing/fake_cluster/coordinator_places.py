"""The transaction coordinators' brokers: which broker leads which partition of `__transaction_state`.

Used by `transaction_coordinator`. Java's hash assigns a transactional id to a partition, whose leader coordinates
it. The partition of a group's offsets is computed here, too; all groups have one coordinator (`groups`).

Invariants:
1. A partition's leader is a running broker, or -1: none is running, or a test removed it.
2. Each change of leader raises the coordinator epoch, which the markers contain.
3. All other brokers answer NOT_COORDINATOR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.partition import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce.testing.fake_cluster.state import ClusterState

OFFSETS_TOPIC: Final = "__consumer_offsets"
# transaction.state.log.num.partitions and offsets.topic.num.partitions, with their defaults.
_PARTITIONS: Final = 50


@final
@dataclass(slots=True)
class _Place:
    """The leader of one partition of `__transaction_state`."""

    leader: int
    epoch: int = 0
    is_loading: bool = False
    is_taken: bool = False


@final
@dataclass(slots=True, eq=False, repr=False)
class CoordinatorPlaces:
    """The leaders of `__transaction_state`.

    Args:
        state: The cluster.
        elected: Called with a partition whose leader has changed.
    """

    _state: ClusterState
    _elected: Callable[[int], None]
    _places: list[_Place] = field(init=False)

    def __post_init__(self) -> None:
        self._places = [_Place(self._candidate(partition)) for partition in range(_PARTITIONS)]

    def leader(self, partition: int) -> int:
        """Return the broker, or -1."""
        return self._places[partition].leader

    def epoch(self, partition: int) -> int:
        """Return the coordinator epoch."""
        return self._places[partition].epoch

    def is_loading(self, partition: int) -> bool:
        """Return whether it was just elected and is still reading its partition."""
        return self._places[partition].is_loading

    def refusal(self, partition: int, broker_id: int) -> int:
        """Return a broker's error code for requests about this partition; 0 if it coordinates."""
        place = self._places[partition]
        if place.leader != broker_id:
            return ErrorCode.not_coordinator
        return ErrorCode.coordinator_load_in_progress if place.is_loading else ErrorCode.none

    def led_by(self, broker_id: int) -> Iterable[int]:
        """Return the partitions that a broker leads."""
        return (number for number, place in enumerate(self._places) if place.leader == broker_id)

    def move(self, partition: int, to_broker: int) -> None:
        """Make a running broker the leader."""
        self._places[partition].is_taken = False
        self._lead(partition, to_broker)

    def take(self, partition: int) -> None:
        """Remove a partition's leader until `move` or `give_back`."""
        self._places[partition].is_taken = True
        self._lead(partition, NO_LEADER)

    def give_back(self, partition: int) -> None:
        """Undo `take`."""
        self._places[partition].is_taken = False
        self.brokers_changed()

    def give_all_back(self) -> None:
        """Undo every `take`."""
        for place in self._places:
            place.is_taken = False
        self.brokers_changed()

    def loaded(self, partition: int, epoch: int) -> bool:
        """Record that the leader elected with this epoch has read the partition; return False if it is outdated."""
        place = self._places[partition]
        if place.epoch != epoch or place.leader == NO_LEADER:
            return False
        place.is_loading = False
        return True

    def brokers_changed(self) -> None:
        """Handle that a broker stopped or started."""
        brokers = self._state.brokers
        for partition, place in enumerate(self._places):
            has_leader = place.leader != NO_LEADER and brokers[place.leader].is_running
            if not has_leader and not place.is_taken:
                self._lead(partition, self._candidate(partition))

    def _lead(self, partition: int, broker_id: int) -> None:
        place = self._places[partition]
        if place.leader == broker_id:
            return
        place.leader = broker_id
        place.epoch += 1
        place.is_loading = True
        self._elected(partition)

    def _candidate(self, partition: int) -> int:
        """Return the first running broker in the order of assignment."""
        broker_ids = sorted(self._state.brokers)
        order = [broker_ids[(partition + step) % len(broker_ids)] for step in range(len(broker_ids))]
        return next((each for each in order if self._state.brokers[each].is_running), NO_LEADER)


def partition_of(name: str) -> int:
    """Return a name's partition of `__transaction_state` or `__consumer_offsets`."""
    return _java_hash(name) % _PARTITIONS


def _java_hash(text: str) -> int:
    """Return `Utils.abs(text.hashCode())`, which is 0 for the smallest number."""
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = (31 * total + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    signed = total - (1 << 32) if total & 0x8000_0000 else total
    return 0 if signed == -(1 << 31) else abs(signed)
