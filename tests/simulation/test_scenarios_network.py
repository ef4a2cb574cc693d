"""Scenarios of the network: what is lost, late, cut or narrow on the way to a broker.

Each test names its rows of `tests/faults/README.md`; `tests.simulation.scenario` plays and judges it. With acks=1
and acks=all "1+" is checked as what it is here: two copies after a lost answer, one otherwise.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from aioproduce.errors import DeliveryTimeoutError, MetadataTimeoutError, NoBrokerAvailableError
from aioproduce.testing.simulation.cluster import host_of
from aioproduce.wire.api import ApiKey
from tests.simulation.scenario import Scenario, failure_of, in_modes, offsets_of

REQUEST_TIMEOUT = 30.0
DELIVERY_TIMEOUT = 120.0


# -- connecting ---


@pytest.mark.scenario(1, "S")
@in_modes()
def test_no_broker_at_the_start_and_one_5_s_later(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        for broker in range(3):
            scene.cluster.stop_broker(broker)
            scene.later(5.0, scene.cluster.start_broker, broker)
        entries = await scene.send()
        assert 5.0 < scene.now < 5.0 + 1.5  # reconnect.backoff.max.ms, and a round trip
        await scene.side.flush()
        scene.assert_acknowledged(entries)

    scene.play(story())


@pytest.mark.scenario(1, "S")
@in_modes("idempotent")
def test_no_broker_ever(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        for broker in range(3):
            scene.cluster.stop_broker(broker)
        [entry] = await scene.send()
        error = failure_of(entry)
        assert isinstance(error, MetadataTimeoutError)
        assert isinstance(error.__cause__, NoBrokerAvailableError)
        assert scene.now == pytest.approx(60.0, abs=0.01)  # max.block.ms
        for host, times in scene.network.attempts.items():
            # A second each at most, from 50 ms on: no fewer than 60 tries, and no storm.
            gaps = [later - earlier for earlier, later in pairwise(times)]
            assert 55 < len(times) < 85, host
            assert min(gaps[6:]) >= 0.8
        assert entry.value not in scene.cluster.values("orders", 0)

    scene.play(story())


@pytest.mark.scenario(2, "S")
@in_modes("idempotent")
def test_a_black_hole_for_the_first_server(mode: str, side: str) -> None:
    seen_first = set()
    for seed in range(8):
        scene = Scenario(mode, side, seed=seed, brokers=3)
        scene.network.hold(host_of(0))
        scene.cluster.state.move_leader("orders", 0, 1)

        async def story(scene: Scenario = scene) -> None:
            entries = await scene.send()
            attempts = scene.network.attempts
            is_first = min(attempts, key=lambda host: attempts[host][0]) == host_of(0)
            seen_first.add(is_first)
            if is_first:
                # socket.connection.setup.timeout.ms is 10 s, give or take a fifth.
                others = [times[0] for host, times in attempts.items() if host != host_of(0)]
                assert 8.0 <= min(others) <= 12.0
            else:
                assert scene.now < 0.1
            await scene.side.flush()
            scene.assert_acknowledged(entries)

        scene.play(story())
    assert seen_first == {True, False}


# -- one connection lost ---


@pytest.mark.scenario(3, "S")
@in_modes()
def test_a_reset_before_the_broker_reads_the_request(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.reset_connections_on(after_processing=False)
        entries = await scene.send(count=5)
        began = scene.now
        await scene.side.flush()
        assert scene.now - began < 1.0
        scene.assert_acknowledged(entries, 1)
        assert scene.has_reconnected()

    scene.play(story())


@pytest.mark.scenario(4, "S")
@in_modes()
def test_a_reset_after_the_append_loses_the_answer(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.reset_connections_on()
        entries = await scene.send(count=5)
        await scene.side.flush()
        scene.assert_acknowledged(entries, 2)
        # Of five records behind the first one: the repetition's own place, or with idempotence that of the first.
        assert offsets_of(entries) == [o + (0 if scene.is_idempotent else 5) for o in (1, 2, 3, 4, 5)]
        assert scene.has_reconnected()

    scene.play(story())


@pytest.mark.scenario(5, "S")
@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 30])
@in_modes()
def test_an_answer_cut_in_the_middle(mode: str, side: str, length: int) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        cut = scene.faults.cut_answers(api=ApiKey.PRODUCE, length=length)
        entries = await scene.send(count=5)
        began = scene.now
        await scene.side.flush()
        assert cut.hits == 1
        assert scene.now - began < 1.0
        scene.assert_acknowledged(entries, 2)
        assert scene.has_reconnected()

    scene.play(story())


@pytest.mark.scenario(6, "S")
@in_modes()
def test_an_answer_swallowed_on_a_connection_that_lives(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.faults.drop_answers(api=ApiKey.PRODUCE)
        began = scene.now
        entries = await scene.send(count=5)
        await scene.side.flush()
        assert REQUEST_TIMEOUT < scene.now - began < REQUEST_TIMEOUT + 1.0
        scene.assert_acknowledged(entries, 2)
        assert scene.has_reconnected()

    scene.play(story())


@pytest.mark.scenario(6, "S")
@in_modes()
def test_a_swallowed_answer_shows_in_the_next_one(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        scene.network.set_latency(scene.host(), 0.05, 0.0)
        scene.faults.drop_answers(api=ApiKey.PRODUCE)
        began = scene.now
        first = await scene.send()
        await scene.sleep(0.02)
        second = await scene.send()
        await scene.side.flush()
        # The answer to the second comes where that to the first is due: no request is answered by another's.
        assert scene.now - began < 2.0
        scene.assert_acknowledged([*first, *second], 2)

    scene.play(story())


@pytest.mark.scenario(7, "S")
@in_modes()
def test_an_answer_later_than_the_request_time_out(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        old = scene.network.connections_to(scene.host())[-1]
        scene.faults.delay_answers(REQUEST_TIMEOUT + 5, times=1, api=ApiKey.PRODUCE)
        began = scene.now
        entries = await scene.send(count=5)
        await scene.until(lambda: old.is_gone, REQUEST_TIMEOUT + 0.2)
        assert scene.now - began >= REQUEST_TIMEOUT
        await scene.side.flush()
        assert scene.now - began < REQUEST_TIMEOUT + 1.0
        offsets = offsets_of(entries)
        # While the late answer would come, others of the same size are asked: none of them takes it for its own.
        later = await scene.send(count=100, apart=0.1)
        await scene.side.flush()
        assert scene.now - began > REQUEST_TIMEOUT + 5
        assert offsets_of(entries) == offsets
        scene.assert_acknowledged(entries, 2)
        scene.assert_acknowledged(later, 1)
        assert old not in scene.network.connections_to(scene.host())

    scene.play(story())


@pytest.mark.scenario(8, "S")
@pytest.mark.parametrize("has_reached", [False, True], ids=["both ways", "answers only"])
@in_modes()
def test_a_black_hole_shorter_than_the_delivery_time_out(mode: str, side: str, has_reached: bool) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.network.hold(scene.host(), outward=not has_reached)
        scene.later(50.0, scene.network.release, scene.host())
        began = scene.now
        held = await scene.send(count=5)
        others = await scene.send(1)
        await scene.until(lambda: others[0].outcomes, 0.5)  # another broker's: not delayed
        await scene.side.flush()
        assert 50.0 < scene.now - began < DELIVERY_TIMEOUT
        scene.assert_acknowledged(others)
        # Requests that got no answer were sent again after 30 s, and knocked at a closed way until it was open.
        scene.assert_acknowledged(held, max(scene.copies(held)))
        assert max(scene.copies(held)) <= 2
        assert (has_reached and not scene.is_idempotent) <= (max(scene.copies(held)) == 2)

    scene.play(story())


@pytest.mark.scenario(9, "S")
@pytest.mark.scenario(52, "S")
@pytest.mark.parametrize("has_reached", [False, True], ids=["both ways", "answers only"])
@in_modes()
def test_a_black_hole_longer_than_the_delivery_time_out(mode: str, side: str, has_reached: bool) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        scene.network.hold(scene.host(), outward=not has_reached)
        scene.later(150.0, scene.network.release, scene.host())
        began = scene.now
        lost = await scene.send(count=5)
        await scene.sleep(100.0)
        later = await scene.send(count=5)
        await scene.until(lambda: all(entry.outcomes for entry in lost), DELIVERY_TIMEOUT - 99)
        assert scene.now - began == pytest.approx(DELIVERY_TIMEOUT, abs=0.1)
        for entry in lost:
            error = failure_of(entry)
            assert isinstance(error, DeliveryTimeoutError)
            assert error.possibly_written
        assert all(copies <= 1 for copies in scene.copies(lost)) or not scene.is_idempotent
        await scene.side.flush()
        # Usable again, no gap that stalls: as soon as the hole is gone and a knock is heard.
        assert 150.0 < scene.now - began < 150.0 + 45.0
        scene.assert_acknowledged(later, max(scene.copies(later)))
        assert max(scene.copies(later)) <= 2
        if has_reached:
            assert min(scene.copies(lost)) >= 1
        more = await scene.send(count=5)
        began = scene.now
        await scene.side.flush()
        assert scene.now - began < 1.0
        scene.assert_acknowledged(more)

    scene.play(story())


# -- slow and small ---


@pytest.mark.scenario(10, "S")
@pytest.mark.parametrize("gather", [0.0, 0.25], ids=["bytes", "bytes, then answers together"])
@in_modes()
def test_single_bytes_and_answers_that_come_together(mode: str, side: str, gather: float) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        for broker in range(3):
            scene.network.links[host_of(broker)].piece = 1
        await scene.warm_up()
        began = scene.now
        link = scene.network.links[scene.host()]
        link.gather = gather
        entries = await scene.send(count=20, apart=0.01)
        await scene.side.flush()
        scene.assert_acknowledged(entries, 1)
        if gather:
            # Answers of several requests in one piece: all outcomes of a moment, and few moments.
            moments = {entry.settled_at for entry in entries}
            assert len(moments) < len(scene.requests(since=began)) / 2

    scene.play(story())


@pytest.mark.scenario(11, "S")
@in_modes()
def test_a_link_of_1_kb_a_second_and_a_producer_that_is_faster(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"batch_size": 1000, "buffer_memory": 8000, "max_block_ms": 600_000})

    async def story() -> None:
        await scene.warm_up()
        link = scene.network.links[scene.host()]
        link.bandwidth = 1000.0
        began = scene.now
        entries = []
        most = 0
        for _ in range(300):
            entries += await scene.send(size=300)
            most = max(most, scene.sender.pool.outstanding)
        # 300 records of 300 bytes, less what the buffer holds: send() had to wait for the link.
        assert scene.now - began > 300 * 300 / 1000 - 10
        assert most == scene.sender.pool.total == 8000
        await scene.side.flush()
        assert scene.now - began < DELIVERY_TIMEOUT + 30
        scene.assert_acknowledged(entries, 1)

    scene.play(story())


@pytest.mark.scenario(11, "S")
@in_modes()
def test_a_link_of_1_kb_a_second_and_records_for_half_an_hour(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"max_block_ms": 5_000, "buffer_memory": 1_000_000})

    async def story() -> None:
        await scene.warm_up()
        scene.network.links[scene.host()].bandwidth = 1000.0
        entries = await scene.send(count=2000, size=1000)
        assert scene.sender.pool.outstanding <= scene.sender.pool.total
        await scene.side.flush()
        # What cannot get through in time fails, typed; the oracle has the rest.
        assert any(failure_of(entry) is not None for entry in entries)
        for entry in entries:
            assert isinstance(failure_of(entry), TimeoutError | None)

    scene.play(story())


@pytest.mark.scenario(12, "S")
@in_modes()
def test_a_latency_of_200_ms_give_or_take_200(mode: str, side: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 0})

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.network.set_latency(host_of(broker), 0.2, 0.2)
        connection = scene.sender.connections.connection(scene.leader())
        assert connection is not None
        entries = []
        most = 0
        began = scene.now
        for _ in range(100):
            entries += await scene.send()
            await scene.sleep(0.05)
            most = max(most, len(connection.in_flight))
        await scene.side.flush()
        assert most == 5  # pipelined
        assert scene.now - began < 100 * 0.4
        scene.assert_acknowledged(entries, 1)
        assert offsets_of(entries) == list(range(1, 101))
        assert len({r.connection_id for r in scene.requests(since=began)}) == 1

    scene.play(story())
