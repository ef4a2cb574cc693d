"""Replication in the broker model under any order of events: what must hold whatever happens.

1. What acks=all acknowledged is in the log, at its offset, until an unclean election.
2. No replica is beyond the log, no ISR member behind the high watermark; that falls by unclean elections only.
3. Every request is answered within its timeout, unless its broker has stopped (reset) or is stalled.
4. When everything is well again, all replicas are in sync and have everything.
5. The same events give the same log, answers and times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.testing import ClusterModel, ReplicationConfig, TopicConfig
from tests.unit.fake_broker_peer import Peer, batch, model, produce_request

BROKERS = 3
TIMEOUT = 1.0
LAG = 0.05

_brokers = st.integers(0, BROKERS - 1)
_events = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from([-1, -1, -1, 1])),
    st.tuples(st.just("produce"), st.sampled_from([-1, -1, -1, 1])),
    st.tuples(st.just("wait"), st.sampled_from([0.01, LAG, 0.3, 2.0, 20.0])),
    st.tuples(st.sampled_from(["pause", "resume", "stop", "start", "stall", "go on", "move"]), _brokers),
)
_unclean = st.tuples(st.just("unclean"), _brokers)


@dataclass
class Asked:
    """A request without an answer; `since` when its broker could have worked on it."""

    peer: Peer
    broker: int
    value: bytes
    acks: int
    since: float


class World:
    """One partition, its cluster, and what was acknowledged."""

    def __init__(self, min_insync: int, holds: bool) -> None:
        config = ReplicationConfig(LAG, lag_timeout=5.0, holds_under_min_isr=holds)
        self.cluster: ClusterModel = model(BROKERS, replication=config)
        self.cluster.state.create_topic("t", 1, config=TopicConfig(min_insync_replicas=min_insync))
        self.partition = self.cluster.state.require_partition("t", 0)
        self.now = 0.0
        self.sent = 0
        self.asked: list[Asked] = []
        self.acknowledged: dict[int, bytes] = {}
        self.high_watermark = 0
        self.story: list[object] = []

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self.cluster.next_timer()) is not None and at <= until:
            self.now = max(self.now, at)
            self.cluster.handle_timer(self.now)
            self.check()
        self.now = until
        self.cluster.handle_timer(until)
        self.check()

    def apply(self, event: tuple[str, Any]) -> None:
        kind, value = event
        state, faults = self.cluster.state, self.cluster.faults
        is_running = kind in ("produce", "wait") or state.brokers[value].is_running
        if kind == "produce":
            self.produce(value)
        elif kind == "wait":
            self.wait(value)
        elif kind == "stop" and is_running:
            self.cluster.broker_stopped(value, self.now)
        elif kind == "start" and not is_running:
            self.cluster.broker_started(value, self.now)
        elif kind == "move" and is_running and value in state.isr(self.partition):
            state.move_leader("t", 0, value)
        elif kind == "unclean" and is_running:
            state.elect_unclean("t", 0, value)
            end = self.partition.log.end_offset
            self.acknowledged = {at: value for at, value in self.acknowledged.items() if at < end}
            self.high_watermark = min(self.high_watermark, end)
        else:
            {
                "pause": faults.pause_replication,
                "resume": faults.resume_replication,
                "stall": faults.stall,
                "go on": faults.resume,
            }.get(kind, lambda _: None)(value)
        self.wait(0.0)

    def produce(self, acks: int) -> None:
        leader = self.partition.leader_id
        if leader == -1:
            return
        value = b"%d" % self.sent
        self.sent += 1
        peer = Peer(self.cluster, leader, now=self.now)
        request = produce_request("t", {0: batch(value)}, acks=acks, timeout=TIMEOUT)
        peer.send(request, now=self.now)
        self.asked.append(Asked(peer, leader, value, acks, self.now))

    def check(self) -> None:
        partition, tracked = self.partition, self.partition.tracked
        assert tracked is not None
        assert tracked.isr
        assert all(partition.end_of(replica) <= partition.log.end_offset for replica in partition.replicas)
        assert all(partition.end_of(replica) >= partition.high_watermark for replica in tracked.isr)
        assert partition.high_watermark >= self.high_watermark
        self.high_watermark = partition.high_watermark
        if partition.leader_id != -1:
            assert partition.leader_id in tracked.isr
        self.collect()
        values = [record.value for kept in partition.log.batches for record in kept.records()]
        assert all(values[offset] == value for offset, value in self.acknowledged.items())

    def collect(self) -> None:
        waiting = []
        for asked in self.asked:
            answers = asked.peer.answers()
            if answers:
                (only,) = answers[0].responses[0].partition_responses
                self.story.append((self.now, asked.value, only.error_code.value, only.base_offset))
                if only.error_code.value == 0 and asked.acks == -1:
                    self.acknowledged[only.base_offset] = asked.value
            elif not asked.peer.is_closed:
                if self.cluster.faults.is_stalled(asked.broker):
                    asked.since = self.now
                assert self.now <= asked.since + TIMEOUT
                waiting.append(asked)
        self.asked = waiting

    def heal(self) -> None:
        for broker in range(BROKERS):
            self.apply(("start", broker))
        self.cluster.faults.clear()
        self.wait(10.0)


def run(events: list[tuple[str, Any]], min_insync: int, *, holds: bool) -> World:
    world = World(min_insync, holds)
    for event in events:
        world.apply(event)
    world.heal()
    return world


@settings(max_examples=150, deadline=None)
@given(st.lists(_events, max_size=40), st.integers(1, 3), st.booleans())
def test_whatever_happens_without_an_unclean_election(
    events: list[tuple[str, Any]], min_insync: int, holds: bool
) -> None:
    world = run(events, min_insync, holds=holds)

    partition = world.partition
    assert partition.tracked is not None
    assert partition.tracked.isr == partition.replicas
    assert {partition.end_of(replica) for replica in partition.replicas} == {partition.high_watermark}
    assert partition.high_watermark == partition.log.end_offset
    assert world.asked == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(_events, _events, _unclean), max_size=40))
def test_the_same_events_tell_the_same_story(events: list[tuple[str, Any]]) -> None:
    first, second = (run(events, 2, holds=True) for _ in range(2))

    assert first.story == second.story
    assert [kept.content for kept in first.partition.log.batches] == [
        kept.content for kept in second.partition.log.batches
    ]
