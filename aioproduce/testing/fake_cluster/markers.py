"""Delivers markers: the leader of each partition of a decided transaction is told the decision.

Used by `transaction_coordinator` (begin, cancel) and by `apis`, which reports when a failed attempt may succeed.
The logs (`log`) and the pending offsets (`pending_offsets`) apply them.

Invariants:
1. A transaction is complete when each of its partitions has its marker, committed as acks=all would wait for it.
2. Partitions that cannot accept a marker (no leader, a stalled broker, too few in-sync replicas) are retried after
   a change. Partitions of deleted topics are skipped.
3. A coordinator that is stalled or replaced writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.control_batch import Marker
from aioproduce.testing.fake_cluster.coordinator_places import OFFSETS_TOPIC
from aioproduce.testing.fake_cluster.failures import RefusedError
from aioproduce.testing.fake_cluster.partition import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.partition import PartitionState
    from aioproduce.testing.fake_cluster.pending_offsets import PendingOffsets
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Timer, Timers
    from aioproduce.testing.fake_cluster.transaction_states import Place, Transaction


@final
@dataclass(slots=True, eq=False)
class _Writing:
    """The markers of one transaction; `written` has the offsets of those that wait for replicas."""

    transaction: Transaction
    coordinated_at: int
    marker: Marker
    written: dict[Place, int] = field(default_factory=dict)
    timer: Timer | None = None
    is_writing: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it is waiting for a change elsewhere."""
        return self.timer is None and not self.is_writing


@final
@dataclass(slots=True, eq=False, repr=False)
class MarkerWriter:
    """The markers of all transactions.

    Args:
        state: The cluster.
        faults: The stalled brokers.
        timers: For the delay.
        offsets: The offsets that groups committed in transactions.
        wall_ms: `now` -> milliseconds since the epoch.
        appended: Called with (partition, now) after a marker was appended.
        leader: Returns the leader of a partition of `__transaction_state`.
    """

    _state: ClusterState
    _faults: Faults
    _timers: Timers
    _offsets: PendingOffsets
    _wall_ms: Callable[[float], int]
    _appended: Callable[[PartitionState, float], None]
    _leader: Callable[[int], int]
    _writings: list[_Writing] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        """Whether any are being delivered."""
        return bool(self._writings)

    def begin(self, transaction: Transaction, partition: int, coordinator_epoch: int, now: float) -> None:
        """Write the markers of a prepared transaction, after the configured delay.

        Args:
            transaction: It is completed when they are written.
            partition: The partition of `__transaction_state` whose leader writes.
            coordinator_epoch: That leader's epoch.
            now: The time.
        """
        marker = Marker(*transaction.producer, transaction.is_commit, coordinator_epoch, transaction.version)
        writing = _Writing(transaction, partition, marker)
        self._writings.append(writing)
        delay = self._state.transactions.marker_delay
        if delay <= 0:
            self._write(writing, now)
        else:
            writing.timer = self._timers.call_at(now + delay, lambda at: self._write_first(writing, at))

    def cancel(self, partition: int) -> None:
        """Stop, because this partition of `__transaction_state` has another leader."""
        for writing in tuple(self._writings):
            if writing.coordinated_at == partition:
                self._writings.remove(writing)
                if writing.timer is not None:
                    writing.timer.cancel()

    def look_again(self, now: float) -> None:
        """Retry the markers that could not be written."""
        for writing in tuple(self._writings):
            if writing.is_waiting and writing in self._writings:
                self._write(writing, now)

    def committed(self, partition: PartitionState, now: float) -> None:
        """Handle that the high watermark of a partition has risen, or that it has another leader."""
        place = (partition.topic, partition.partition)
        for writing in tuple(self._writings):
            is_meant = writing.is_waiting and place in writing.transaction.partitions
            if is_meant and writing in self._writings:
                self._write(writing, now)

    def write(self, place: Place, marker: Marker, now: float) -> tuple[int, int]:
        """Append one marker to a log; return (error code, its offset)."""
        partition = self._state.partition(*place)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition, -1
        if partition.leader_id == NO_LEADER or self._faults.is_stalled(partition.leader_id):
            return ErrorCode.not_leader_or_follower, -1
        if len(self._state.isr(partition)) < partition.min_insync:
            return ErrorCode.not_enough_replicas, -1
        try:
            offset = partition.log.append_marker(
                marker, leader_epoch=partition.leader_epoch, wall_ms=self._wall_ms(now)
            )
        except RefusedError as refusal:
            return refusal.code, -1
        self._appended(partition, now)
        return ErrorCode.none, offset

    def _write_first(self, writing: _Writing, now: float) -> None:
        writing.timer = None
        self._write(writing, now)

    def _write(self, writing: _Writing, now: float) -> None:
        leader = self._leader(writing.coordinated_at)
        if leader == NO_LEADER or self._faults.is_stalled(leader):
            return
        partitions = writing.transaction.partitions
        writing.is_writing = True
        for place in tuple(partitions):
            if self._is_settled(writing, place, now):
                partitions.pop(place, None)
        writing.is_writing = False
        if not partitions and writing in self._writings:
            self._writings.remove(writing)
            writing.transaction.complete(now)

    def _is_settled(self, writing: _Writing, place: Place, now: float) -> bool:
        """Return whether a partition has its marker, or never will; write it if possible."""
        topic, number = place
        if topic == OFFSETS_TOPIC:
            controller = self._state.controller_id
            if controller == NO_LEADER or self._faults.is_stalled(controller):
                return False
            self._offsets.complete(number, writing.marker)
            return True
        partition = self._state.partition(topic, number)
        if partition is None:
            return True
        offset = writing.written.get(place)
        if offset is None or offset >= partition.log.end_offset:
            code, offset = self.write(place, writing.marker, now)
            if code in (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced):
                return True
            if code != ErrorCode.none:
                return False
            writing.written[place] = offset
        return partition.high_watermark > offset
