"""Failures that other clients are known for, each played to its end here.

Stuck for good after an unclean election:
    test_scenarios_partitions.py::test_the_producer_is_not_stuck_after_an_unclean_election
`flush()` and `close()` hang while the cluster is down:
    test_flush_and_close_end_with_the_cluster_down, test_flush_and_close_end_at_once_where_no_broker_ever_was
Futures that never resolve when the sender dies:
    test_every_future_resolves_when_the_sender_dies
A buffer is used again while a request with it is on the wire:
    test_no_buffer_is_used_again_while_a_request_is_on_the_wire
Wrong timestamps within a batch:
    test_timestamps_within_a_batch_are_those_of_its_records
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from aioproduce.errors import (
    DeliveryError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    SenderDiedError,
)
from aioproduce.testing.simulation.cluster import host_of
from tests.drivers.breaking import break_core
from tests.simulation.case import TOPIC
from tests.simulation.scenario import Scenario, failure_of, in_modes
from tests.simulation.sides import AsyncioSide

if TYPE_CHECKING:
    from tests.simulation.ledger import Entry

DELIVERY_TIMEOUT = 120.0
SLOW = 0.15


@pytest.mark.scenario(69, "S")
@in_modes()
def test_flush_and_close_end_with_the_cluster_down(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        await scene.warm_up()
        for broker in range(3):
            scene.cluster.stop_broker(broker)
        began = scene.now
        entries = await scene.send(count=10)
        await scene.side.flush()
        assert scene.now - began == pytest.approx(DELIVERY_TIMEOUT, abs=0.1)
        began = scene.now
        entries += await scene.send(count=10)
        await scene.side.close()
        assert scene.now - began == pytest.approx(DELIVERY_TIMEOUT, abs=0.1)
        assert all(isinstance(failure_of(entry), DeliveryTimeoutError) for entry in entries)

    scene.play(story(), is_closed=True)


@in_modes("idempotent")
def test_flush_and_close_end_at_once_where_no_broker_ever_was(mode: str, side: str) -> None:
    scene = Scenario(mode, side)

    async def story() -> None:
        for broker in range(3):
            scene.cluster.stop_broker(broker)
        [entry] = await scene.send()
        assert isinstance(failure_of(entry), MetadataTimeoutError)
        began = scene.now
        await scene.side.flush()
        await scene.side.close()
        assert scene.now - began < 0.1

    scene.play(story(), is_closed=True)


@pytest.mark.parametrize("way", ["bug", "cancelled"])
@pytest.mark.parametrize("mode", ["idempotent", "acks=1"])
def test_every_future_resolves_when_the_sender_dies(mode: str, way: str) -> None:
    scene = Scenario(mode, "asyncio", {"batch_size": 1000, "buffer_memory": 20_000})

    async def story() -> None:
        assert isinstance(scene.side, AsyncioSide)
        producer = scene.side.producer
        await scene.warm_up()
        scene.network.hold(scene.host())
        in_flight = await scene.send(count=5)
        await scene.sleep(0.1)
        queued = await scene.send(count=30, size=400)
        blocked = asyncio.ensure_future(scene.send(count=30, size=400))  # comes to wait for memory
        flushing = asyncio.ensure_future(producer.flush())
        await scene.sleep(1.0)
        assert scene.sender.pool.waiting == 1
        if way == "bug":
            break_core(scene.sender, ZeroDivisionError("a bug"))
            producer._life.driver.wake()
            await scene.sleep(0.1)
        else:
            [task] = [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproduce sender")]
            task.cancel()
            await scene.sleep(0.1)
        for entry in (*in_flight, *queued):
            error = failure_of(entry)
            assert isinstance(error, DeliveryError)
        assert all(failure_of(entry).possibly_written for entry in in_flight)  # type: ignore[union-attr]
        with pytest.raises(SenderDiedError):
            await flushing
        for entry in await blocked:
            assert isinstance(failure_of(entry), DeliveryError | SenderDiedError)
        [late] = await scene.send()
        assert isinstance(late.refusal, SenderDiedError)
        await producer.close()
        assert not scene.network.connections

    scene.play(
        story(), death="the sender task died" if way == "bug" else "the event loop cancelled its tasks"
    )


@pytest.mark.scenario(9, "S")
@in_modes()
def test_no_buffer_is_used_again_while_a_request_is_on_the_wire(mode: str, side: str) -> None:
    size = 256 * 1024
    settings = {"batch_size": size, "buffer_memory": 2 * size, "max_request_size": 2 * size}
    scene = Scenario(mode, side, settings | {"metadata_max_age_ms": 1000})

    async def story() -> None:
        await scene.warm_up()
        state, leader = scene.cluster.state, scene.leader()
        state.take_leader(TOPIC, 0)
        await scene.sleep(2.0)
        began = scene.now
        old = await scene.send(count=20, size=12_000)  # a batch of 240 KB, of which a kernel takes 128
        await scene.sleep(95.0)
        # It can go at last, and is on the wire when its time is up: its broker reads nothing meanwhile.
        scene.network.set_latency(host_of(leader), 1.0, 0.0)
        state.move_leader(TOPIC, 0, leader)
        links = scene.network.connections_to
        await scene.until(lambda: any(endpoint.unsent for endpoint in links(host_of(leader))), 10.0)
        scene.faults.stall(leader)
        await scene.until(lambda: all(entry.outcomes for entry in old), 30.0)
        assert scene.now - began == pytest.approx(DELIVERY_TIMEOUT, abs=0.1)
        [endpoint] = [endpoint for endpoint in links(host_of(leader)) if endpoint.unsent]
        assert 100_000 < endpoint.unsent < 120_000
        # The memory of the batch that has failed is not to be had; there is room for one more.
        assert scene.sender.pool.outstanding >= size
        waiting = scene.side.spawn(scene.send(count=40, size=12_000), "sender")
        await scene.sleep(1.0)
        assert scene.sender.pool.waiting == 1
        scene.faults.resume(leader)
        await scene.side.join(waiting)
        await scene.side.flush()
        for entry in old:
            error = failure_of(entry)
            assert isinstance(error, DeliveryTimeoutError)
            assert error.possibly_written
        # What the broker read afterwards is what was sent: byte for byte, with the checksum that it checks.
        assert scene.copies(old) == [1] * 20
        scene.assert_acknowledged(waiting.result() if side == "asyncio" else waiting.result, 1)

    scene.play(story())


@pytest.mark.parametrize("codec", ["none", "gzip"])
@in_modes()
def test_timestamps_within_a_batch_are_those_of_its_records(mode: str, side: str, codec: str) -> None:
    scene = Scenario(mode, side, {"linger_ms": 50, "compression_type": codec})
    steps = [0, 5, 3, -1000, 86_400_000 // 48, -86_400_000, 0, 1]

    async def story() -> None:
        await scene.warm_up()
        scene.faults.reset_connections_on()
        start = scene.simulation.wall_ms()
        offers: list[Any] = []
        real = scene.ledger.offer

        def offer(writer: int, size: int) -> Entry:
            entry = real(writer, size)
            entry.timestamp = start + steps[len(offers) % len(steps)]
            offers.append(entry)
            return entry

        with patch.object(scene.ledger, "offer", offer):
            entries = await scene.send(count=3 * len(steps))
        await scene.side.flush()
        scene.assert_acknowledged(entries, 2)
        batch = scene.log()[-1]
        assert batch.record_count == 3 * len(steps)
        assert [record.timestamp - start for record in batch.records()] == steps * 3
        assert batch.header.max_timestamp == start + max(steps)

    scene.play(story())
