"""Scenarios of the client itself: closing, flushing, a blocked loop, other clocks, a full buffer, many topics.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    ForcedCloseError,
)
from aioproduce.testing.simulation import ScheduledFault, Simulation
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire.api import ApiKey
from tests.simulation.case import TOPIC
from tests.simulation.scenario import Scenario, failure_of, in_modes, offsets_of
from tests.simulation.sides import AsyncioSide

if TYPE_CHECKING:
    from tests.simulation.ledger import Entry

DELIVERY_TIMEOUT = 120.0
SLOW = 0.15


# -- close and flush ---


@pytest.mark.scenario(68, "S")
@pytest.mark.parametrize("timeout", [0.0, 5.0])
@in_modes()
def test_close_with_a_time_out_during_a_black_hole(mode: str, side: str, timeout: float) -> None:
    scene = Scenario(mode, side, {"batch_size": 1000})

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.hold(host_of(broker))
        in_flight = await scene.send(count=3)
        await scene.sleep(1.0)
        queued = await scene.send(count=100, size=100)
        began = scene.now
        await scene.side.close(timeout)
        assert timeout <= scene.now - began < timeout + 0.1
        for entry in (*in_flight, *queued):
            assert isinstance(failure_of(entry), ForcedCloseError)
        assert all(failure_of(entry).possibly_written for entry in in_flight)  # type: ignore[union-attr]
        assert not failure_of(queued[-1]).possibly_written  # type: ignore[union-attr]

    scene.play(story(), is_closed=True)


@pytest.mark.scenario(68, "S")
@in_modes()
def test_close_during_a_black_hole_is_bounded_by_the_delivery_time_out(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.hold(host_of(broker))
        entries = await scene.send(count=10)
        began = scene.now
        await scene.side.close()
        assert scene.now - began == pytest.approx(DELIVERY_TIMEOUT, abs=0.1)
        assert all(isinstance(failure_of(entry), DeliveryTimeoutError) for entry in entries)

    scene.play(story(), is_closed=True)


@pytest.mark.scenario(69, "S")
@in_modes()
def test_flush_with_a_linger_of_10_s(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 10_000})

    async def story() -> None:
        await scene.warm_up()
        entries = await scene.send(count=10)
        began = scene.now
        await scene.side.flush()
        assert scene.now - began < 0.05
        scene.assert_acknowledged(entries, 1)
        # Without a flush it does linger.
        began = scene.now
        [entry] = await scene.send()
        await scene.until(lambda: entry.outcomes, 11.0)
        assert 10.0 <= scene.now - began < 10.2

    scene.play(story())


@pytest.mark.scenario(69, "S")
@in_modes()
def test_flush_during_an_outage(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 10_000})

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.hold(host_of(broker))
        entries = await scene.send(count=10)
        began = scene.now
        if isinstance(scene.side, AsyncioSide):
            with pytest.raises(FlushTimeoutError):
                await scene.side.producer.flush(3.0)
            assert scene.now - began == pytest.approx(3.0, abs=0.01)
        await scene.side.flush()
        assert scene.now - began == pytest.approx(DELIVERY_TIMEOUT, abs=0.1)
        assert all(isinstance(failure_of(entry), DeliveryTimeoutError) for entry in entries)

    scene.play(story())


# -- time ---


@pytest.mark.scenario(70, "S")
@pytest.mark.parametrize("seconds", [5.0, 31.0, 125.0])
@in_modes()
def test_the_loop_is_blocked_while_answers_come(mode: str, side: str, seconds: float) -> None:
    block = ScheduledFault(2.0, "blocked", seconds)
    scene = Scenario(mode, side, {"linger_ms": 0}, faults=[block])

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.set_latency(host_of(broker), SLOW, 0.0)
        connections = set(scene.network.connections)
        await scene.side.sleep_until(1.85)
        began = scene.now
        entries = await scene.send_in_flight(5)
        await scene.side.flush()
        assert 2.0 + seconds <= scene.now < 2.0 + seconds + 0.1
        # The answers lay there when the loop came back, long after the time-outs: none is taken for lost.
        assert len(scene.requests(since=began)) == 5
        scene.assert_acknowledged(entries, 1)
        assert connections <= set(scene.network.connections)

    scene.play(story())


@pytest.mark.scenario(70, "S")
@in_modes()
def test_the_loop_is_blocked_for_5_s_with_records_queued(mode: str, side: str) -> None:
    scene = Scenario(
        mode, side, faults=[ScheduledFault(float(at), "blocked", 5.0) for at in range(10, 100, 10)]
    )

    async def story() -> None:
        await scene.warm_up()
        entries = await scene.send(count=500, apart=0.2)
        await scene.side.flush()
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(70, "S")
@in_modes()
def test_the_wall_clock_jumps_back(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        began = scene.now
        entries = await scene.send(count=50, apart=0.02, is_stamped=False)
        scene.cluster.model.epoch_ms -= 3_600_000
        entries += await scene.send(count=50, apart=0.02, is_stamped=False)
        await scene.side.flush()
        assert scene.now - began < 3.0
        scene.assert_acknowledged(entries, 1)
        told = [entry.outcomes[0][0].timestamp for entry in entries]
        assert told == [entry.timestamp for entry in entries]
        assert told[50] < told[49] - 3_000_000
        assert offsets_of(entries) == list(range(1, 101))

    scene.play(story())


# -- memory ---


@pytest.mark.scenario(71, "S")
@in_modes()
def test_the_buffer_is_full_during_an_outage_and_send_waits(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"batch_size": 2_000, "buffer_memory": 20_000})

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.hold(host_of(broker))
        began = scene.now
        scene.later(50.0, scene.simulation.heal)
        entries: list[Entry] = []

        async def sender(partition: int) -> None:
            for _ in range(40):
                entries.extend(await scene.send(partition, size=500))

        tasks = [scene.side.spawn(sender(number), f"sender {number}") for number in range(3)]
        await scene.sleep(20.0)
        assert len(entries) < 50
        assert scene.sender.pool.waiting == 3
        assert scene.sender.pool.outstanding <= scene.sender.pool.total
        for task in tasks:
            await scene.side.join(task)
        assert scene.now - began > 50.0
        await scene.side.flush()
        assert scene.now - began < 100.0
        assert [failure_of(entry) for entry in entries] == [None] * 120

    scene.play(story())


@pytest.mark.scenario(71, "S")
@in_modes()
def test_the_buffer_is_full_during_an_outage_and_send_raises(mode: str, side: str) -> None:
    settings = {"batch_size": 2_000, "buffer_memory": 20_000, "max_block_ms": 5_000}
    scene = Scenario(mode, side, settings)

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.hold(host_of(broker))
        entries = await scene.send(count=40, size=500)
        began = scene.now
        [refused] = await scene.send(size=500)
        assert isinstance(refused.refusal, BufferExhaustedError)
        assert scene.now - began == pytest.approx(5.0, abs=0.01)
        assert scene.sender.pool.waiting == 0
        scene.simulation.heal()
        await scene.side.flush()
        refusals = [entry for entry in entries if entry.refusal is not None]
        assert all(isinstance(entry.refusal, BufferExhaustedError) for entry in refusals)
        accepted = [entry for entry in entries if entry.refusal is None]
        assert len(accepted) >= 30
        assert [failure_of(entry) for entry in accepted] == [None] * len(accepted)
        assert scene.copies([refused, *refusals]) == [0] * (1 + len(refusals))

    scene.play(story())


# -- topics ---

IDLE: dict[str, Any] = {"metadata_max_idle_ms": 5_000, "metadata_max_age_ms": 1_000}


@in_modes("idempotent", "acks=1")
def test_a_topic_in_constant_use_is_never_forgotten(mode: str, side: str) -> None:
    scene = Scenario(mode, side, IDLE)

    async def story() -> None:
        await scene.warm_up()
        asked = len(scene.requests(ApiKey.METADATA))
        entries = await scene.send(count=300, apart=0.1)
        await scene.side.flush()
        # Metadata came each second, and not once did a record wait for it.
        assert len(scene.requests(ApiKey.METADATA)) - asked == pytest.approx(30, abs=1)
        assert {(entry.answered_at or 0.0) - entry.offered_at for entry in entries} == {0.0}
        assert max(entry.settled_at - entry.offered_at for entry in entries) < 0.05
        scene.assert_acknowledged(entries)

    scene.play(story())


@in_modes("idempotent")
def test_a_topic_whose_batches_linger_for_long_is_never_forgotten(mode: str, side: str) -> None:
    scene = Scenario(mode, side, IDLE | {"linger_ms": 20_000})

    async def story() -> None:
        await scene.warm_up()
        entries = await scene.send(count=600, apart=0.1)
        assert {(entry.answered_at or 0.0) - entry.offered_at for entry in entries} == {0.0}
        await scene.side.flush()
        assert len(scene.log()) == 1 + 3, "as many batches as linger"
        scene.assert_acknowledged(entries)

    scene.play(story())


def test_a_topic_in_constant_use_by_ready_made_batches_is_never_forgotten() -> None:
    simulation = Simulation(topics={TOPIC: 1})

    async def main() -> list[float]:
        took = []
        async with Producer(simulation.bootstrap_servers, **IDLE) as producer:
            await producer.partitions_for(TOPIC)
            for number in range(300):
                batch = producer.create_batch()
                batch.append(b"%d" % number)
                began = simulation.clock.now
                await producer.send_batch(batch, TOPIC)
                took.append(simulation.clock.now - began)
                await asyncio.sleep(0.1)
        return took

    assert set(simulation.run(main())) == {0.0}
    assert simulation.cluster.values(TOPIC) == {b"%d" % number: 1 for number in range(300)}


@in_modes("idempotent")
def test_a_topic_that_a_send_waits_for_is_not_forgotten(mode: str, side: str) -> None:
    scene = Scenario(mode, side, IDLE, topics={}, auto_create_topics=False)

    async def story() -> None:
        scene.later(20.0, scene.cluster.state.create_topic, TOPIC, 3)
        entries = await scene.send()
        assert 20.0 < scene.now < 21.5  # asked for once a second meanwhile
        await scene.side.flush()
        scene.assert_acknowledged(entries)

    scene.play(story())


@in_modes("idempotent")
def test_a_topic_that_nobody_uses_is_forgotten_and_known_again_when_it_is_used(mode: str, side: str) -> None:
    scene = Scenario(mode, side, IDLE)

    async def story() -> None:
        await scene.warm_up()
        await scene.sleep(4.5)
        assert scene.sender.metadata.is_wanted(TOPIC)
        await scene.sleep(2.0)
        assert not scene.sender.metadata.is_wanted(TOPIC)
        began = scene.now
        entries = await scene.send(count=3)
        await scene.side.flush()
        assert 0.0 < scene.now - began < 0.05
        scene.assert_acknowledged(entries)

    scene.play(story())


# -- many ---


@pytest.mark.scenario(72, "S")
@pytest.mark.extended("takes 3.7 s of processor time")
def test_ten_clients_with_a_thousand_topics_and_one_slow_broker() -> None:
    topics = [f"topic-{number}" for number in range(1000)]
    simulation = Simulation(seed=5, topics=dict.fromkeys(topics, 1))
    state = simulation.cluster.state
    slow = 1

    async def client(number: int) -> dict[bool, float]:
        took = {True: 0.0, False: 0.0}
        async with Producer(simulation.bootstrap_servers) as producer:
            await asyncio.gather(*(producer.partitions_for(topic) for topic in topics))
            await producer.send_and_wait(topics[number], b"warm")
            simulation.network.set_latency(host_of(slow), 5.0, 0.0)
            began = simulation.clock.now

            async def send(topic: str) -> None:
                is_slow = state.require_partition(topic, 0).leader_id == slow
                await producer.send_and_wait(topic, b"%d" % number)
                took[is_slow] = max(took[is_slow], simulation.clock.now - began)

            await asyncio.gather(*(send(topic) for topic in topics))
        return took

    async def main() -> list[dict[bool, float]]:
        return await asyncio.gather(*(client(number) for number in range(10)))

    for took in simulation.run(main()):
        assert took[True] >= 10.0
        assert took[False] < 0.5  # the others' records do not wait for the slow broker's
    expected = {b"%d" % number: 1 for number in range(10)}
    for index, topic in enumerate(topics):
        assert simulation.cluster.values(topic, 0) == expected | ({b"warm": 1} if index < 10 else {})
