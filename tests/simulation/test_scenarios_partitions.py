"""Scenarios of partitions and their leaders: elections, refusals of a leader, replicas that are missing, quotas.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it.
"""

from __future__ import annotations

import pytest

from aioproduce.errors import DeliveryTimeoutError
from aioproduce.testing.fake_cluster.partition import ReplicationConfig
from aioproduce.testing.simulation import ScheduledFault
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.simulation.case import KEYLESS, TOPIC
from tests.simulation.scenario import Scenario, failure_of, in_modes, offsets_of

SLOW = 0.15
"""Seconds one way: five requests are sent before the first is answered."""


# -- leaders that move ---


@pytest.mark.scenario(19, "S")
@in_modes()
def test_not_leader_once(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        refusal = scene.faults.fail_produce(codes.NOT_LEADER_OR_FOLLOWER)
        began = scene.now
        entries = await scene.send(count=3)
        await scene.side.flush()
        assert refusal.hits == 1
        assert 0.08 <= scene.now - began < 0.2  # retry.backoff.ms, give or take a fifth
        await scene.sleep(5.0)
        assert len(scene.requests(ApiKey.METADATA, began)) == 1
        assert len(scene.requests(since=began)) == 2
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(19, "S")
@in_modes()
def test_not_leader_thrice(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(codes.NOT_LEADER_OR_FOLLOWER, times=3)
        began = scene.now
        entries = await scene.send(count=3)
        await scene.side.flush()
        # 100, 200 and 400 ms, give or take a fifth, and a question after each answer.
        assert 0.7 * 0.8 <= scene.now - began < 0.7 * 1.2 + 0.1
        assert len(scene.requests(since=began)) == 4
        await scene.sleep(5.0)
        assert len(scene.requests(ApiKey.METADATA, began)) == 3
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(19, "S")
@in_modes()
def test_not_leader_with_the_new_leader_named(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        old, new = scene.leader(0), scene.leader(1)
        scene.cluster.state.move_leader(TOPIC, 0, new)
        began = scene.now
        entries = await scene.send(count=3)
        await scene.side.flush()
        # KIP-951: sent to the new leader at once, without the back-off of 100 ms and before metadata is asked.
        assert scene.now - began < 0.05
        assert [request.broker_id for request in scene.requests(since=began)] == [old, new]
        await scene.sleep(5.0)
        assert len(scene.requests(ApiKey.METADATA, began)) == 1
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.parametrize("rule", ["uniform_sticky", "sticky", "round_robin", "random"])
@in_modes("idempotent")
def test_keyless_records_follow_a_leader_that_an_answer_names(mode: str, side: str, rule: str) -> None:
    """KIP-951 and KIP-1123: which partitions are near is known from the answer to a record, without metadata."""
    rules = {
        "partitioner_class": rule,
        "partitioner_rack_aware": True,
        "client_rack": "near",
        "batch_size": 200,
    }
    # Nothing is asked for again so soon: not metadata, and no leader that is not a new one.
    settings = rules | {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    scene = Scenario(mode, side, settings)
    near, *far = (scene.leader(partition) for partition in range(3))
    scene.cluster.state.brokers[near].rack = "near"
    for broker in far:
        scene.cluster.state.brokers[broker].rack = "far"

    async def chosen() -> set[int]:
        await scene.send(KEYLESS, size=100)  # the rest of a share
        entries = await scene.send(KEYLESS, 40, size=100, apart=0.01)
        await scene.side.flush()
        scene.assert_acknowledged(entries)
        return {entry.outcomes[0][0].partition for entry in entries}

    async def move(partition: int, broker: int) -> None:
        scene.cluster.state.move_leader(TOPIC, partition, broker)
        await scene.send(partition)
        await scene.side.flush()
        assert scene.sender.metadata.leader_of(TOPIC, partition) == broker

    async def story() -> None:
        await scene.warm_up()
        assert await chosen() == {0}
        began = scene.now
        await move(1, near)
        assert await chosen() == {0, 1}
        await move(0, far[0])
        assert await chosen() == {1}
        assert not scene.requests(ApiKey.METADATA, began)

    scene.play(story())


@pytest.mark.scenario(20, "S")
@in_modes()
def test_the_leader_moves_with_five_requests_in_flight(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        old, new = scene.leader(0), scene.leader(1)
        scene.network.set_latency(host_of(old), SLOW, 0.0)
        began = scene.now
        entries = await scene.send_in_flight(5, records=3)
        # The first has arrived, or is about to; the others find a broker that does not lead any more.
        await scene.sleep(SLOW + 0.03 - (scene.now - began))
        scene.cluster.state.move_leader(TOPIC, 0, new)
        more = await scene.send(count=10, apart=0.01)
        await scene.side.flush()
        refused = [r for r in scene.requests(since=began) if r.broker_id == old]
        assert len(refused) >= 5
        scene.assert_acknowledged([*entries, *more], 1)
        if scene.is_idempotent:
            assert offsets_of([*entries, *more]) == list(range(1, 26))

    scene.play(story())


@pytest.mark.scenario(19, "S")
@pytest.mark.scenario(20, "S")
@in_modes()
def test_one_request_at_a_time_keeps_the_order_over_refusals_and_a_move(mode: str, side: str) -> None:
    settings = {"linger_ms": 0, "max_in_flight_requests_per_connection": 1, "metadata_max_age_ms": 100}
    scene = Scenario(mode, side, settings)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(codes.NOT_ENOUGH_REPLICAS, partition=0, times=3)
        entries = await scene.send(count=30, apart=0.01)
        await scene.side.flush()
        # One is on its way to a leader that is far away, and will be refused; the new leader is near.
        old, new = scene.leader(0), scene.leader(1)
        scene.network.set_latency(host_of(old), 2.0, 0.0)
        entries += await scene.send()
        await scene.sleep(0.01)
        scene.cluster.state.move_leader(TOPIC, 0, new)
        entries += await scene.send(count=30, apart=0.1)
        assert scene.sender.metadata.leader_of(TOPIC, 0) == new
        await scene.side.flush()
        scene.assert_acknowledged(entries, 1)
        assert offsets_of(entries) == list(range(1, 62))

    scene.play(story())


@pytest.mark.scenario(21, "S")
@in_modes()
def test_metadata_with_an_older_leader_epoch(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"metadata_max_age_ms": 1000})

    async def story() -> None:
        await scene.warm_up()
        old, new = scene.leader(0), scene.leader(1)
        for broker in (new, scene.leader(2)):
            scene.faults.freeze_metadata(broker)
        await scene.sleep(0.01)
        scene.cluster.state.move_leader(TOPIC, 0, new)
        await scene.send()
        await scene.side.flush()
        began = scene.now
        entries = await scene.send(count=100, apart=0.3)
        await scene.side.flush()
        # Brokers that know nothing of the election were asked, and told the old leader in an older epoch.
        liars = [r for r in scene.requests(ApiKey.METADATA, began) if r.broker_id != old]
        assert len(liars) >= 5
        assert {r.broker_id for r in scene.requests(since=began)} == {new}
        assert scene.sender.metadata.leader_of(TOPIC, 0) == new
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(22, "S")
@in_modes()
def test_no_leader_for_3_s(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.cluster.state.take_leader(TOPIC, 0)
        scene.later(3.0, scene.cluster.state.elect_leader, TOPIC, 0)
        began = scene.now
        entries = await scene.send(count=5)
        others = await scene.send(1)
        await scene.until(lambda: others[0].outcomes, 0.5)
        await scene.side.flush()
        assert 3.0 <= scene.now - began < 3.0 + 1.5  # retry.backoff.max.ms
        scene.assert_acknowledged([*entries, *others], 1)

    scene.play(story())


@pytest.mark.scenario(22, "S")
@pytest.mark.scenario(51, "S")
@in_modes()
def test_no_leader_for_ever(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"metadata_max_age_ms": 1000})

    async def story() -> None:
        await scene.warm_up()
        scene.cluster.state.take_leader(TOPIC, 0)
        await scene.sleep(2.0)  # the producer knows it before it sends
        began = scene.now
        entries = await scene.send(count=5)
        await scene.until(lambda: all(entry.outcomes for entry in entries), 125.0)
        assert scene.now - began == pytest.approx(120.0, abs=0.1)
        for entry in entries:
            error = failure_of(entry)
            assert isinstance(error, DeliveryTimeoutError)
            assert error.attempts == 0
            assert not error.possibly_written
            assert error.retriable
        scene.cluster.state.elect_leader(TOPIC, 0)
        later = await scene.send(count=5)
        await scene.side.flush()
        scene.assert_acknowledged(later, 1)
        assert scene.copies(entries) == [0] * 5
        if scene.is_idempotent:
            # The sequences of those that never went are used by those that came after.
            [first, *rest] = scene.log()
            assert {batch.producer_epoch for batch in (first, *rest)} == {0}
            assert [batch.base_sequence for batch in (first, *rest)] == [
                batch.base_offset for batch in (first, *rest)
            ]

    scene.play(story())


@pytest.mark.scenario(23, "S")
@in_modes()
def test_leader_not_available_on_a_topic_that_is_just_made(mode: str, side: str) -> None:
    scene = Scenario(mode, side, topics={}, default_partitions=3, announce_created_topics_late=True)

    async def story() -> None:
        # Once as it comes about, and twice more.
        refusal = scene.faults.fail_metadata(codes.LEADER_NOT_AVAILABLE, times=2)
        entries = await scene.send(count=3)
        await scene.side.flush()
        assert refusal.hits == 2
        assert scene.now < 2.0
        assert len(scene.requests(ApiKey.METADATA)) == 4
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


# -- replicas ---


@pytest.mark.scenario(35, "S")
@in_modes("idempotent", "plain")
def test_min_insync_replicas_unmet_before_the_append(mode: str, side: str) -> None:
    scene = Scenario(mode, side, min_insync=2, lag=0.01)

    async def story() -> None:
        await scene.warm_up()
        leader = scene.leader()
        followers = [broker for broker in range(3) if broker != leader]
        for broker in followers:
            scene.cluster.stop_broker(broker)
        scene.later(20.0, scene.cluster.start_broker, followers[0])
        began = scene.now
        entries = await scene.send(count=5)
        await scene.side.flush()
        assert 20.0 < scene.now - began < 22.0
        # NOT_ENOUGH_REPLICAS each time, a second apart at most: 100, 200, 400, 800 ms, then a second each.
        assert 18 <= len(scene.requests(since=began)) <= 30
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(35, "S")
@in_modes("idempotent", "plain")
def test_min_insync_replicas_unmet_after_the_append(mode: str, side: str) -> None:
    replication = ReplicationConfig(lag=0.01, lag_timeout=10.0, holds_under_min_isr=False)
    scene = Scenario(mode, side, min_insync=2, lag=0.01, replication=replication)

    async def story() -> None:
        await scene.warm_up()
        followers = [broker for broker in range(3) if broker != scene.leader()]
        for broker in followers:
            scene.faults.pause_replication(broker)
            scene.later(20.0, scene.faults.resume_replication, broker)
        began = scene.now
        entries = await scene.send(count=5)
        await scene.sleep(12.0)
        # The followers have left the ISR: NOT_ENOUGH_REPLICAS_AFTER_APPEND, and the record is there.
        assert scene.copies(entries) == [1] * 5
        await scene.side.flush()
        assert 20.0 < scene.now - began < 32.0
        scene.assert_acknowledged(entries, 2)

    scene.play(story())


@pytest.mark.scenario(35, "S")
@pytest.mark.scenario(40, "S")
@pytest.mark.parametrize("code", [codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND, codes.REQUEST_TIMED_OUT])
@in_modes("idempotent", "plain")
def test_an_error_after_the_append(mode: str, side: str, code: int) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(code, after_append=True)
        began = scene.now
        entries = await scene.send(count=5)
        await scene.side.flush()
        assert scene.now - began < 0.5
        assert len(scene.requests(since=began)) == 2
        scene.assert_acknowledged(entries, 2)
        assert offsets_of(entries) == [o + (0 if scene.is_idempotent else 5) for o in (1, 2, 3, 4, 5)]

    scene.play(story())


@pytest.mark.scenario(40, "S")
@pytest.mark.scenario(42, "S")
@pytest.mark.parametrize("code", [codes.REQUEST_TIMED_OUT, codes.CORRUPT_MESSAGE])
@in_modes()
def test_an_error_without_the_append(mode: str, side: str, code: int) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.fail_produce(code, times=2)
        began = scene.now
        entries = await scene.send(count=5)
        await scene.side.flush()
        assert scene.now - began < 1.0
        assert len(scene.requests(since=began)) == 3
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(36, "S")
@pytest.mark.scenario(49, "S")
@pytest.mark.parametrize("in_flight", [0, 5])
@in_modes()
def test_the_producer_is_not_stuck_after_an_unclean_election(mode: str, side: str, in_flight: int) -> None:
    election = ScheduledFault(30.0, "unclean election", broker=2, topic=TOPIC, partition=0)
    scene = Scenario(mode, side, {"linger_ms": 0}, lag=0.01, min_insync=1, faults=[election])

    async def story() -> None:
        await scene.warm_up()
        scene.faults.pause_replication(2)
        before = await scene.send(count=20, apart=1.0)
        await scene.side.flush()
        scene.assert_acknowledged(before, 1)
        await scene.side.sleep_until(29.8)
        assert 2 not in scene.cluster.state.isr(scene.cluster.state.require_partition(TOPIC, 0))
        scene.network.set_latency(scene.host(), SLOW, 0.0)
        during = await scene.send_in_flight(in_flight) if in_flight else []
        await scene.side.sleep_until(30.01)
        assert scene.leader() == 2
        began = scene.now
        after = await scene.send(count=20, apart=0.1)
        await scene.side.flush()
        assert scene.now - began < 2.0 + 2.0
        # The loss is the brokers', and the ledger accounts for it; what comes after is there.
        scene.assert_acknowledged(after, 1)
        assert 0 in scene.copies(before)
        assert [failure_of(entry) for entry in during] == [None] * in_flight
        if scene.is_idempotent:
            # The new leader misses what was acknowledged: OUT_OF_ORDER, a new epoch, and on from sequence 0.
            newest = scene.log()[-1]
            assert newest.producer_epoch >= 1
            firsts = [batch for batch in scene.log() if batch.producer_epoch == newest.producer_epoch]
            assert firsts[0].base_sequence == 0

    scene.play(story())


# -- one of several, quotas, an answer in parts ---


@pytest.mark.scenario(45, "S")
@pytest.mark.parametrize("after_append", [False, True], ids=["refused", "appended"])
@in_modes()
def test_one_of_two_partitions_in_a_request_fails(mode: str, side: str, after_append: bool) -> None:
    scene = Scenario(mode, side, brokers=1, partitions=2)

    async def story() -> None:
        await scene.warm_up()
        refusal = scene.faults.fail_produce(codes.REQUEST_TIMED_OUT, partition=0, after_append=after_append)
        began = scene.now
        failed = await scene.send(0, 5)
        fine = await scene.send(1, 5)
        await scene.until(lambda: fine[-1].outcomes, 0.05)
        assert refusal.hits == 1
        assert not failed[0].outcomes
        await scene.side.flush()
        both, alone = scene.requests(since=began)
        assert alone.size < both.size
        scene.assert_acknowledged(failed, 2 if after_append else 1)
        scene.assert_acknowledged(fine, 1)
        assert len(scene.log(1)) == 2

    scene.play(story())


@pytest.mark.scenario(39, "S")
@in_modes()
def test_a_throttle_of_2_s(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        began = scene.now
        scene.faults.throttle(2.0, broker=scene.leader())
        entries = await scene.send()
        await scene.until(lambda: entries[0].outcomes, 0.1)  # answered at once, throttled after that
        told_at = scene.now
        entries += await scene.send(count=10, apart=0.1)
        others = await scene.send(1, 10, apart=0.02)
        assert all(entry.outcomes for entry in others[:-1])
        await scene.side.flush()
        held = [r for r in scene.requests(since=began) if r.broker_id == scene.leader()]
        assert not any(request.is_throttled for request in held)
        assert 1.99 <= held[1].at - held[0].at < 2.1
        assert scene.now - told_at < 2.3
        scene.assert_acknowledged([*entries, *others], 1)
        # No metadata or other small talk either, on that connection.
        everything = scene.cluster.model.requests.entries()
        assert not any(request.is_throttled for request in everything)

    scene.play(story())


@pytest.mark.scenario(39, "S")
@in_modes()
def test_a_quota_of_10_kb_a_second(mode: str, side: str) -> None:
    # What is on its way when the broker says so is not the client's fault: one at a time.
    scene = Scenario(mode, side, {"linger_ms": 0, "max_in_flight_requests_per_connection": 1})

    async def story() -> None:
        await scene.warm_up()
        scene.cluster.model.produce_quota = 10_000.0
        began = scene.now
        entries = await scene.send(count=300, size=1000)
        await scene.side.flush()
        assert 300 * 1000 / 10_000 - 3 < scene.now - began < 60.0
        assert not any(request.is_throttled for request in scene.cluster.model.requests.entries())
        scene.assert_acknowledged(entries, 1)

    scene.play(story())
