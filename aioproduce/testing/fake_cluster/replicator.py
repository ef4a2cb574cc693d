"""Replication over time: the ends of followers, the ISR, the high watermark.

Called by `model` (appends, changes of leaders, of faults, of brokers), which passes the time. It does nothing for
partitions that are not tracked. Followers do not fetch over the network: `ReplicationConfig.lag` after an append,
each follower that can fetch has it. A follower can fetch while it and the leader run, neither is stalled, and it
is not paused (`Faults.pause_replication`).

Invariants:
1. The high watermark moves only when a follower's end or the ISR changes. `committed` is called after that, and
   after any other change that a waiting request must see.
2. A follower leaves the ISR when it has been behind for `lag_timeout`, counted as in Kafka: since it last had
   everything, or since it stopped fetching if that was earlier. It returns when it has everything up to the high
   watermark and up to the start of the leader's epoch.
3. A stalled leader does not shrink the ISR; when it continues, the time of the followers that fetch starts again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from aioproduce.testing.fake_cluster.partition import NEVER, NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing.fake_cluster.faults import Faults
    from aioproduce.testing.fake_cluster.partition import PartitionState, Replicas, ReplicationConfig
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.timers import Timers


@final
@dataclass(slots=True, eq=False, repr=False)
class Replicator:
    """The followers of all partitions.

    Args:
        state: The cluster.
        faults: Which brokers cannot fetch.
        timers: For later actions.
        committed: Called with (partition, now) when waiting requests should be checked again.
        described: Called when an ISR has changed.
    """

    _state: ClusterState
    _faults: Faults
    _timers: Timers
    _committed: Callable[[PartitionState, float], None]
    _described: Callable[[], None]
    _idle_since: dict[int, float] = field(default_factory=dict)

    def appended(self, partition: PartitionState, now: float) -> None:
        """Handle an append to the leader's log."""
        tracked, config = partition.tracked, self._state.replication
        if tracked is None or config is None:
            self._committed(partition, now)
            return
        for follower in partition.replicas:
            if follower != partition.leader_id:
                self._falls_behind(partition, tracked, follower, now)
        self._plan(partition, tracked, config, now)
        if len(tracked.isr) == 1:
            self._advance(partition, config, now)

    def partition_changed(self, partition: PartitionState, now: float) -> None:
        """Handle a changed leader or ISR, a truncated log, or a follower that can fetch again."""
        tracked, config = partition.tracked, self._state.replication
        if tracked is not None and config is not None and partition.leader_id != NO_LEADER:
            if tracked.seen_epoch != partition.leader_epoch:
                tracked.seen_epoch = partition.leader_epoch
                tracked.behind_since.clear()
            for follower in partition.replicas:
                is_behind = partition.end_of(follower) < partition.log.end_offset
                if follower != partition.leader_id and (is_behind or follower not in tracked.isr):
                    self._falls_behind(partition, tracked, follower, now)
            self._plan(partition, tracked, config, now)
            partition.advance(holds_under_min_isr=config.holds_under_min_isr)
        self._committed(partition, now)

    def faults_changed(self, now: float) -> None:
        """Handle a stalled, paused or released broker: note when it stopped fetching; let others catch up."""
        resumed = []
        for broker_id, broker in self._state.brokers.items():
            is_idle = not (broker.is_running and self._is_able(broker_id))
            if is_idle:
                self._idle_since.setdefault(broker_id, now)
            elif self._idle_since.pop(broker_id, None) is not None:
                resumed.append(broker_id)
        if not resumed:
            return
        for partition in tuple(self._state.partitions()):
            tracked = partition.tracked
            if tracked is not None and tracked.behind_since:
                if partition.leader_id in resumed:
                    tracked.behind_since.clear()
                self.partition_changed(partition, now)

    # Inside

    def _is_able(self, broker_id: int) -> bool:
        return not (self._faults.is_stalled(broker_id) or self._faults.is_replication_paused(broker_id))

    def _is_fetching(self, partition: PartitionState, follower: int) -> bool:
        brokers, leader = self._state.brokers, partition.leader_id
        return (
            leader != NO_LEADER
            and brokers[leader].is_running
            and brokers[follower].is_running
            and not self._faults.is_stalled(leader)
            and self._is_able(follower)
        )

    def _falls_behind(self, partition: PartitionState, tracked: Replicas, follower: int, now: float) -> None:
        if follower in tracked.behind_since:
            return
        tracked.behind_since[follower] = since = min(now, self._idle_since.get(follower, NEVER))
        if follower in tracked.isr:
            self._look_at(partition, tracked, since)

    def _look_at(self, partition: PartitionState, tracked: Replicas, since: float) -> None:
        config = self._state.replication
        at = NEVER if config is None else since + config.lag_timeout
        if at < tracked.looks_at:
            tracked.looks_at = at
            self._timers.call_at(at, lambda now: self._look_for_lag(partition, now))

    def _look_for_lag(self, partition: PartitionState, now: float) -> None:
        """Remove followers that were behind for too long from the ISR; plan the next check."""
        tracked, config, leader = partition.tracked, self._state.replication, partition.leader_id
        if tracked is None or config is None or now < tracked.looks_at:
            return
        tracked.looks_at = NEVER
        has_left = False
        for follower, since in tuple(tracked.behind_since.items()):
            if follower not in tracked.isr:
                continue
            if since + config.lag_timeout > now:
                self._look_at(partition, tracked, since)
            elif leader != NO_LEADER and not self._faults.is_stalled(leader):
                has_left = partition.leave_isr(follower) or has_left
        if has_left:
            self._described()
            self._advance(partition, config, now)

    def _plan(
        self, partition: PartitionState, tracked: Replicas, config: ReplicationConfig, now: float
    ) -> None:
        tracked.appended.append((now, partition.log.end_offset))
        if config.lag <= 0:
            tracked.replicates_at = now
            self._replicate(partition, now)
        else:
            self._replicate_at(partition, tracked, now + config.lag)

    def _replicate_at(self, partition: PartitionState, tracked: Replicas, at: float) -> None:
        if at < tracked.replicates_at:
            tracked.replicates_at = at
            self._timers.call_at(at, lambda now: self._replicate(partition, now))

    def _replicate(self, partition: PartitionState, now: float) -> None:
        """Copy to the followers what was appended longer than the lag ago."""
        tracked, config = partition.tracked, self._state.replication
        if tracked is None or config is None or now < tracked.replicates_at:
            return
        tracked.replicates_at = NEVER
        end = -1
        while tracked.appended and tracked.appended[0][0] + config.lag <= now:
            end = tracked.appended.popleft()[1]
        if tracked.appended:
            self._replicate_at(partition, tracked, tracked.appended[0][0] + config.lag)
        if end < 0 or partition.leader_id == NO_LEADER:
            return
        has_joined = False
        for follower in partition.replicas:
            if follower != partition.leader_id and self._is_fetching(partition, follower):
                self._catch_up(partition, tracked, follower, end)
                has_joined = partition.join_isr(follower) or has_joined
        if has_joined:
            self._described()
        self._advance(partition, config, now)

    def _catch_up(self, partition: PartitionState, tracked: Replicas, follower: int, end: int) -> None:
        if tracked.end_of(follower) < end:
            tracked.set_end(follower, end)
        if tracked.end_of(follower) >= partition.log.end_offset:
            tracked.behind_since.pop(follower, None)
        elif tracked.appended:
            # It has everything it lacked before; what it lacks now is newer.
            tracked.behind_since[follower] = tracked.appended[0][0]
            if follower in tracked.isr:
                self._look_at(partition, tracked, tracked.appended[0][0])

    def _advance(self, partition: PartitionState, config: ReplicationConfig, now: float) -> None:
        if partition.advance(holds_under_min_isr=config.holds_under_min_isr):
            self._committed(partition, now)
