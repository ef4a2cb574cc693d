"""Replication in the broker model: what acks=all waits for, the ISR, elections and what they lose.

The rules are those of Kafka 4.3's `Partition` and `DelayedProduce`. Real brokers are asked for the codes that are
expected here in `tests/integration/test_fake_broker_against_kafka.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from aioproduce.testing import ClusterModel, ReplicationConfig, TopicConfig
from tests.unit.fake_broker_peer import (
    ANSWERS_AFTER_TRUNCATION,
    REPLICATED_ANSWERS,
    REPLICATED_BEFORE_TRUNCATION,
    WRITTEN_BEFORE_TRUNCATION,
    Peer,
    batch,
    fetch_request,
    model,
    produce_request,
    replicate,
)

LAG = 0.01


def replicated(
    brokers: int = 3, *, lag: float = LAG, lag_timeout: float = 30.0, holds: bool = True, **config: Any
) -> ClusterModel:
    """Topic `t` with one partition, led by broker 0, on brokers 0, 1 and 2."""
    cluster = model(brokers, replication=ReplicationConfig(lag, lag_timeout, holds))
    cluster.state.create_topic("t", 1, config=TopicConfig(**config))
    return cluster


def partition(cluster: ClusterModel) -> Any:
    return cluster.state.require_partition("t", 0)


def values(cluster: ClusterModel) -> list[bytes | None]:
    return [record.value for kept in partition(cluster).log.batches for record in kept.records()]


def run_until(cluster: ClusterModel, until: float) -> None:
    """Let everything happen that is due until then, each at its time."""
    while (at := cluster.next_timer()) is not None and at <= until:
        cluster.handle_timer(at)
    cluster.handle_timer(until)


def outcome(peer: Peer) -> tuple[int, int] | None:
    """(error code, base offset) of the one answer that has come, if one has."""
    answers = peer.answers()
    if not answers:
        return None
    (answer,) = answers
    (response,) = answer.responses
    (only,) = response.partition_responses
    return only.error_code.value, only.base_offset


def send(peer: Peer, content: bytes, *, now: float = 0.0, acks: int = -1) -> None:
    """A Produce request whose timeout is one second."""
    peer.send(produce_request("t", {0: content}, acks=acks), now=now)


def test_acks_all_waits_for_the_followers_and_acks_1_does_not() -> None:
    cluster = replicated()
    waiting, quick = Peer(cluster), Peer(cluster)

    send(waiting, batch(b"a"))
    assert outcome(waiting) is None
    send(quick, batch(b"b"), now=0.004, acks=1)
    assert outcome(quick) == (0, 1)
    run_until(cluster, LAG)

    assert outcome(waiting) == (0, 0)
    assert partition(cluster).high_watermark == 1
    run_until(cluster, 1.0)
    assert partition(cluster).high_watermark == 2


def test_one_connection_is_served_in_order_while_it_waits() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    for n in range(3):
        send(peer, batch(b"%d" % n, producer=(7, 0, n)))
    assert partition(cluster).log.end_offset == 1

    run_until(cluster, 1.0)

    assert [answer.responses[0].partition_responses[0].base_offset for answer in peer.answers()] == [0, 1, 2]


def test_without_a_lag_everything_is_committed_at_once() -> None:
    cluster = replicated(lag=0.0)

    assert Peer(cluster).produce("t", batch(b"a")).base_offset == 0
    assert partition(cluster).high_watermark == 1
    assert cluster.next_timer() is None or cluster.next_timer() == 30.0


def test_consumers_read_what_is_committed() -> None:
    cluster = replicated()
    producer, consumer = Peer(cluster), Peer(cluster)
    send(producer, batch(b"a"), acks=1)
    early = consumer.ask(fetch_request(cluster))
    consumer.send(fetch_request(cluster, max_wait=1), now=0.001)
    assert consumer.frames() == []

    run_until(cluster, LAG)

    (late,) = consumer.answers()
    assert [entry.responses[0].partitions[0].high_watermark for entry in (early, late)] == [0, 1]
    assert not early.responses[0].partitions[0].records
    assert late.responses[0].partitions[0].records == partition(cluster).log.batches[0].content


def test_a_request_waits_no_longer_than_its_timeout() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    cluster.faults.pause_replication(2)

    send(peer, batch(b"a"))
    run_until(cluster, 0.999)
    assert outcome(peer) is None
    run_until(cluster, 1.0)

    assert outcome(peer) == (7, 0)
    assert values(cluster) == [b"a"]


def test_a_retry_of_a_batch_that_is_not_committed_waits_too() -> None:
    cluster = replicated()
    first, second = Peer(cluster), Peer(cluster)
    cluster.faults.pause_replication(1)
    content = batch(b"a", b"b", producer=(7, 0, 0))

    send(first, content)
    run_until(cluster, 1.0)
    assert outcome(first) == (7, 0)
    send(second, content, now=1.1)
    run_until(cluster, 1.5)
    assert outcome(second) is None
    cluster.faults.resume_replication(1)
    run_until(cluster, 2.0)

    assert outcome(second) == (0, 0)
    assert values(cluster) == [b"a", b"b"]


def test_a_follower_that_lags_leaves_the_isr_and_comes_back() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    cluster.faults.pause_replication(1)
    run_until(cluster, 5.0)

    send(peer, batch(b"a"), now=20.0)
    assert partition(cluster).tracked.isr == (0, 1, 2)
    # Behind since it stopped to fetch, not since the append: Kafka's lastCaughtUpTimeMs.
    run_until(cluster, 29.9)
    assert partition(cluster).tracked.isr == (0, 1, 2)
    run_until(cluster, 35.0)
    assert partition(cluster).tracked.isr == (0, 2)
    assert partition(cluster).high_watermark == 1
    cluster.faults.resume_replication(1)
    run_until(cluster, 36.0)

    assert partition(cluster).tracked.isr == (0, 1, 2)


def test_a_follower_joins_when_it_has_all_that_is_committed() -> None:
    """Until then it fetches, and is waited for by nobody."""
    cluster = replicated()
    for broker in (1, 2):
        cluster.broker_stopped(broker, 0.0)
    run_until(cluster, 0.0)
    peer = Peer(cluster)
    peer.produce("t", batch(b"a"), now=1.0)
    cluster.broker_started(1, 1.004)
    run_until(cluster, 1.004)
    peer.produce("t", batch(b"b"), now=1.008)
    assert partition(cluster).high_watermark == 2

    run_until(cluster, 1.0 + LAG)
    assert (partition(cluster).end_of(1), partition(cluster).tracked.isr) == (1, (0,))
    run_until(cluster, 1.5)
    assert (partition(cluster).end_of(1), partition(cluster).tracked.isr) == (2, (0, 1))


def test_a_follower_that_keeps_up_stays() -> None:
    cluster = replicated(lag=0.5, lag_timeout=1.0)
    peer = Peer(cluster)
    for n in range(100):
        run_until(cluster, 0.1 * n)
        peer.produce("t", batch(b"v"), now=0.1 * n, acks=1)
        assert partition(cluster).tracked.isr == (0, 1, 2)
    run_until(cluster, 20.0)

    assert partition(cluster).high_watermark == 100


def test_a_lag_longer_than_the_timeout_shrinks_the_isr() -> None:
    cluster = replicated(lag=2.0, lag_timeout=1.0)
    Peer(cluster).produce("t", batch(b"v"), acks=1)

    run_until(cluster, 1.0)
    assert partition(cluster).tracked.isr == (0,)
    run_until(cluster, 2.0)
    assert partition(cluster).tracked.isr == (0, 1, 2)


@pytest.mark.scenario(35, "S")
def test_too_few_in_sync_replicas_refuse_before_the_append() -> None:
    cluster = replicated(min_insync_replicas=2)
    for broker in (1, 2):
        cluster.broker_stopped(broker, 0.0)
    peer = Peer(cluster)

    refused, taken = peer.produce("t", batch(b"a")), peer.produce("t", batch(b"b"), acks=1)

    assert (refused.error_code.value, taken.error_code.value) == (19, 0)
    assert values(cluster) == [b"b"]


def test_more_in_sync_replicas_than_there_are_cannot_be_demanded() -> None:
    cluster = replicated(1, min_insync_replicas=2)

    assert Peer(cluster).produce("t", batch(b"a")).error_code.value == 0


@pytest.mark.scenario(35, "S")
@pytest.mark.parametrize(("holds", "until", "code"), [(True, 1.0, 7), (False, 0.5, 20)])
def test_the_isr_shrinks_after_the_append(holds: bool, until: float, code: int) -> None:
    """Kafka 4 lets the high watermark stand still under min.insync.replicas; older brokers answered 20."""
    cluster = replicated(min_insync_replicas=2, holds=holds)
    peer = Peer(cluster)
    cluster.faults.pause_replication(1)
    cluster.faults.pause_replication(2)
    send(peer, batch(b"a"))
    run_until(cluster, 0.4)
    for broker in (1, 2):
        cluster.broker_stopped(broker, 0.5)
    assert outcome(peer) is None
    run_until(cluster, until)

    assert outcome(peer) == (code, 0)
    assert partition(cluster).tracked.isr == (0,)
    assert values(cluster) == [b"a"]
    assert partition(cluster).high_watermark == (0 if holds else 1)


def test_a_leader_that_moves_ends_the_wait_and_what_was_not_replicated() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    peer.produce("t", batch(b"a", producer=(7, 0, 0)), acks=1)
    run_until(cluster, 1.0)
    send(peer, batch(b"b", producer=(7, 0, 1)), now=1.0)

    cluster.state.move_leader("t", 0, 1)
    run_until(cluster, 1.0)

    assert outcome(peer) == (6, 1)
    assert values(cluster) == [b"a"]
    # The new leader knows the producer as far as it has its batches.
    retry = Peer(cluster, 1)
    send(retry, batch(b"b", producer=(7, 0, 1)), now=1.1)
    run_until(cluster, 1.2)
    assert outcome(retry) == (0, 1)


def test_of_a_broker_that_stops_the_connections_are_reset() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    send(peer, batch(b"a"))
    cluster.broker_stopped(0, 0.001)
    run_until(cluster, 2.0)

    assert (peer.answers(), peer.is_reset) == ([], True)
    assert (partition(cluster).leader_id, values(cluster)) == (1, [])


def test_only_who_is_in_sync_is_elected() -> None:
    cluster = replicated()
    cluster.faults.pause_replication(1)
    peer = Peer(cluster)
    peer.produce("t", batch(b"a"), acks=1)
    run_until(cluster, 40.0)
    assert partition(cluster).tracked.isr == (0, 2)

    with pytest.raises(ValueError, match="not in sync"):
        cluster.state.move_leader("t", 0, 1)
    cluster.broker_stopped(0, 40.0)
    assert partition(cluster).leader_id == 2
    cluster.broker_stopped(2, 41.0)
    run_until(cluster, 41.0)
    assert (partition(cluster).leader_id, partition(cluster).tracked.isr) == (-1, (2,))
    cluster.broker_started(0, 42.0)
    run_until(cluster, 42.0)
    assert partition(cluster).leader_id == -1
    cluster.broker_started(2, 43.0)
    run_until(cluster, 44.0)

    assert (partition(cluster).leader_id, values(cluster)) == (2, [b"a"])
    assert partition(cluster).tracked.isr == (0, 2)


def behind() -> tuple[ClusterModel, Peer]:
    """Batches 0 and 1 on all three brokers, 2 to 4 on 0 and 2 only; broker 1 has left the ISR."""
    cluster = replicated()
    peer = Peer(cluster)
    for n in range(5):
        if n == 2:
            run_until(cluster, 1.5)
            cluster.faults.pause_replication(1)
        peer.produce("t", batch(b"%d" % n, producer=(7, 0, n)), acks=1, now=float(n))
    run_until(cluster, 40.0)
    assert (partition(cluster).tracked.isr, partition(cluster).high_watermark) == ((0, 2), 5)
    return cluster, peer


@pytest.mark.scenario(36, "S")
def test_an_unclean_election_loses_what_the_elected_replica_does_not_have() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    for sequence in WRITTEN_BEFORE_TRUNCATION:
        if sequence == REPLICATED_BEFORE_TRUNCATION:
            run_until(cluster, 1.5)
            cluster.faults.pause_replication(1)
        peer.produce("t", batch(b"%d" % sequence, producer=(7, 0, sequence)), acks=1, now=float(sequence))
    run_until(cluster, 40.0)
    epoch = partition(cluster).leader_epoch

    assert cluster.state.elect_unclean("t", 0) == 1
    run_until(cluster, 40.0)

    assert values(cluster) == [b"0", b"1"]
    assert (partition(cluster).leader_epoch, partition(cluster).high_watermark) == (epoch + 1, 2)
    elected = Peer(cluster, 1)
    answers = []
    for sequence, _, _ in ANSWERS_AFTER_TRUNCATION:
        answer = elected.produce("t", batch(b"v", producer=(7, 0, sequence)), acks=1, now=41.0)
        answers.append((sequence, answer.error_code.value, answer.base_offset))
    assert answers == ANSWERS_AFTER_TRUNCATION
    run_until(cluster, 42.0)
    assert partition(cluster).tracked.isr == (0, 1, 2)


def test_unclean_election_may_be_configured() -> None:
    cluster, _ = behind()
    cluster.broker_stopped(0, 40.0)
    cluster.broker_stopped(2, 41.0)
    assert partition(cluster).leader_id == -1

    cluster.state.configure_topic("t", unclean_leader_election=True)
    run_until(cluster, 41.0)

    assert (partition(cluster).leader_id, values(cluster)) == (1, [b"0", b"1"])
    cluster.broker_started(0, 42.0)
    cluster.broker_started(2, 42.0)
    run_until(cluster, 43.0)
    assert (partition(cluster).leader_id, partition(cluster).tracked.isr) == (1, (0, 1, 2))


def test_nobody_can_be_elected_when_nobody_runs() -> None:
    cluster = replicated(1)
    cluster.broker_stopped(0, 0.0)

    with pytest.raises(ValueError, match="no replica"):
        cluster.state.elect_unclean("t", 0)


def test_a_stalled_follower_holds_the_high_watermark_and_a_stalled_leader_shrinks_nothing() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    cluster.faults.stall(2)
    send(peer, batch(b"a"))
    run_until(cluster, 2.0)
    assert outcome(peer) == (7, 0)
    cluster.faults.stall(0)
    run_until(cluster, 100.0)
    assert partition(cluster).tracked.isr == (0, 1, 2)
    cluster.faults.resume(0)
    run_until(cluster, 100.0)

    assert partition(cluster).tracked.isr == (0, 1)
    assert partition(cluster).high_watermark == 1


def test_a_deleted_topic_ends_the_wait() -> None:
    cluster = replicated()
    peer = Peer(cluster)
    send(peer, batch(b"a"))
    cluster.state.delete_topic("t")
    run_until(cluster, 0.0)

    assert outcome(peer) == (3, 0)


def test_the_front_is_woken_by_what_happens_outside_of_facts_only() -> None:
    cluster = replicated()
    woken: list[float | None] = []
    cluster.wake = lambda: woken.append(cluster.next_timer())
    send(Peer(cluster), batch(b"a"))
    cluster.broker_stopped(2, 0.001)
    assert woken == []

    cluster.state.move_leader("t", 0, 1)

    assert woken == [0.001]


def test_one_answer_for_two_partitions_waits_for_both() -> None:
    cluster = replicated()
    cluster.state.create_topic("two", 4)
    peer = Peer(cluster)
    led = [state.partition for state in cluster.state.topics["two"].partitions if state.leader_id == 0]
    request = produce_request("two", dict.fromkeys((*led, 99), batch(b"v")))
    peer.send(request)
    assert peer.frames() == []
    run_until(cluster, LAG)

    (answer,) = peer.answers()
    codes = [entry.error_code.value for entry in answer.responses[0].partition_responses]
    assert codes == [0] * len(led) + [3]


class ModelTopic:
    """The model's side of `replicate`."""

    def __init__(self) -> None:
        self.cluster = replicated(lag_timeout=5.0, min_insync_replicas=3)
        self.peer = Peer(self.cluster)
        self.now = 0.0

    def produce(self, content: bytes, *, acks: int = -1, timeout: float = 0.5) -> tuple[int, int]:
        self.peer.send(produce_request("t", {0: content}, acks=acks, timeout=timeout), now=self.now)
        until = self.now + timeout
        while (found := outcome(self.peer)) is None:
            at = self.cluster.next_timer()
            assert at is not None
            assert at <= until
            self.now = max(self.now, at)
            self.cluster.handle_timer(self.now)
        return found

    def hold(self) -> None:
        self.cluster.faults.stall(2)

    def release(self) -> None:
        self.cluster.faults.resume(2)

    def wait_for_isr(self, replicas: int) -> None:
        self.now += 40.0
        run_until(self.cluster, self.now)
        assert len(partition(self.cluster).tracked.isr) == replicas


@pytest.mark.scenario(35, "S")
def test_the_script_that_real_brokers_answer_alike() -> None:
    assert replicate(ModelTopic()) == REPLICATED_ANSWERS
