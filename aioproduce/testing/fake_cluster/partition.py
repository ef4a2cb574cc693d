"""One partition: its log, its leader, and the progress of each replica.

Created by `state`. `state` elects and stops brokers, `replicator` (which has the time) lets followers catch up,
`produce` and `fetch` read the high watermark.

There is one log, the leader's. A follower is a number: the offset up to which it has that log. This is exact as
long as no replica ever leads with a log of its own that others have abandoned, so:

1. A change of leader truncates the log at once to what the new leader has. In Kafka the old leader keeps its
   unreplicated suffix until it follows, and then loses it. No client can read it meanwhile, and it comes back only
   by an unclean election of exactly that replica, which here finds the truncated log.
2. No replica's end is beyond the log's end, and each ISR member's is at or beyond the high watermark.
3. The high watermark falls only when a replica outside the ISR is elected (unclean).
4. The ISR is never empty: its last member stays in it when it stops, and the partition then has no leader.
   (KIP-966's eligible leader replicas are not modelled: with `min.insync.replicas` above 1 Kafka finds a clean
   leader more often.)

Without replication (`Replicas` is absent) all replicas, including stopped ones, always have everything: the ISR is
what is running, and the high watermark is the end of the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.log import PartitionLog

NO_LEADER: Final = -1
NEVER: Final = float("inf")


@final
@dataclass(slots=True)
class ReplicationConfig:
    """How followers replicate. The fields may be changed at any time.

    Attributes:
        lag: Seconds until followers have an append.
        lag_timeout: `replica.lag.time.max.ms` in seconds: a follower that has been behind for longer leaves
            the ISR.
        holds_under_min_isr: Whether the high watermark stands still while the ISR is smaller than
            `min.insync.replicas`, as in Kafka 4 (KIP-966): a producer that waits with acks=all gets
            REQUEST_TIMED_OUT. Older brokers continued with the rest of the ISR, and answered
            NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    """

    lag: float = 0.0
    lag_timeout: float = 30.0
    holds_under_min_isr: bool = True


@final
@dataclass(slots=True, eq=False)
class Replicas:
    """The progress of one partition's replicas.

    Attributes:
        isr: The in-sync replicas, in the order of assignment; at first all.
        high_watermark: Every ISR member has everything before it.
        epoch_start: The end of the log when the leader was elected; a follower must reach it to join the ISR.
        behind_since: Follower -> since when it has been behind.
        appended: (time, end of the log then) of appends that followers are about to get.
        replicates_at: When they get the next of them.
        looks_at: When the replicator checks which followers have been behind for too long.
        seen_epoch: The leader's epoch for which `behind_since` holds.

    The last five are maintained by `replicator`.
    """

    isr: tuple[int, ...]
    high_watermark: int = 0
    epoch_start: int = 0
    behind_since: dict[int, float] = field(default_factory=dict)
    appended: deque[tuple[float, int]] = field(default_factory=deque)
    replicates_at: float = NEVER
    looks_at: float = NEVER
    seen_epoch: int = 0
    _ends: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._ends = dict.fromkeys(self.isr, 0)

    def end_of(self, replica: int) -> int:
        """Return up to where a follower has the log (for the leader: when it became one)."""
        return self._ends[replica]

    def set_end(self, replica: int, end: int) -> None:
        """Record that a replica has the log up to here."""
        self._ends[replica] = end

    def truncate_to(self, end: int) -> None:
        """Handle that the log now ends here."""
        for replica, own in self._ends.items():
            self._ends[replica] = min(own, end)
        self.high_watermark = min(self.high_watermark, end)
        self.appended.clear()


@final
@dataclass(slots=True, eq=False)
class PartitionState:
    """One partition.

    Attributes:
        is_leader_pinned: Whether a test has removed the leader, so that there is no election until it allows one.
        tracked: The replicas' progress; `None` if every replica has everything at once.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log: PartitionLog
    leader_id: int = NO_LEADER
    leader_epoch: int = 0
    is_leader_pinned: bool = False
    tracked: Replicas | None = None

    @property
    def high_watermark(self) -> int:
        """Where consumers stop reading, and what acks=all waits for."""
        return self.log.end_offset if self.tracked is None else self.tracked.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where consumers with isolation level read_committed stop reading."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def min_insync(self) -> int:
        """`min.insync.replicas`, or the number of replicas if there are fewer."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def end_of(self, replica: int) -> int:
        """Return up to where a replica has the log."""
        if self.tracked is None or replica == self.leader_id:
            return self.log.end_offset
        return self.tracked.end_of(replica)

    def lead_by(self, broker_id: int) -> None:
        """Change the leader, or remove it with -1. Records that the new one lacks are lost."""
        if broker_id == self.leader_id:
            return
        if self.tracked is not None:
            if self.leader_id != NO_LEADER:
                self.tracked.set_end(self.leader_id, self.log.end_offset)
            if broker_id != NO_LEADER:
                self._lose_beyond(self.tracked.end_of(broker_id))
                self.tracked.epoch_start = self.log.end_offset
                self.tracked.behind_since.pop(broker_id, None)
        self.leader_id = broker_id
        self.leader_epoch += 1

    def truncate(self, offset: int) -> None:
        """Remove every batch that reaches beyond `offset` on every replica; the leader's epoch rises."""
        self._lose_beyond(offset)
        self.leader_epoch += 1

    def add_replica(self, broker_id: int) -> None:
        """Add a replica that has everything, as reassignment does."""
        self.replicas = (*self.replicas, broker_id)
        if self.tracked is not None:
            self.tracked.set_end(broker_id, self.log.end_offset)
            self.tracked.isr = (*self.tracked.isr, broker_id)

    def leave_isr(self, broker_id: int) -> bool:
        """Remove a stopped or slow replica from the ISR, unless it is the last; return whether the ISR changes."""
        tracked = self.tracked
        if tracked is None or broker_id not in tracked.isr or len(tracked.isr) == 1:
            return False
        tracked.isr = tuple(replica for replica in tracked.isr if replica != broker_id)
        return True

    def join_isr(self, broker_id: int) -> bool:
        """Add a follower to the ISR if its log is long enough; return whether the ISR changes."""
        tracked = self.tracked
        if tracked is None or broker_id in tracked.isr:
            return False
        if tracked.end_of(broker_id) < max(tracked.high_watermark, tracked.epoch_start):
            return False
        tracked.isr = tuple(
            replica for replica in self.replicas if replica in tracked.isr or replica == broker_id
        )
        return True

    def advance(self, *, holds_under_min_isr: bool) -> bool:
        """Raise the high watermark to what every ISR member has; return whether it rose."""
        tracked = self.tracked
        if tracked is None or self.leader_id == NO_LEADER:
            return False
        if holds_under_min_isr and len(tracked.isr) < self.min_insync:
            return False
        committed = min(self.end_of(replica) for replica in tracked.isr)
        if committed <= tracked.high_watermark:
            return False
        tracked.high_watermark = committed
        return True

    def _lose_beyond(self, offset: int) -> None:
        if offset < self.log.end_offset:
            self.log.truncate_to(offset)
        if self.tracked is not None:
            self.tracked.truncate_to(self.log.end_offset)
