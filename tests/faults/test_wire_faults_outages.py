"""Lines that carry nothing, little or late for a while, through the proxy: rows 1, 8, 9, 11, 12, 16 and 68.

An outage lasts until the producer has done what it has to do in it (given up a connection, failed a record). So
it is as long as the row says, relative to the time-outs, on any machine.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    DeliveryError,
    DeliveryTimeoutError,
    ForcedCloseError,
    MetadataTimeoutError,
    NoBrokerAvailableError,
)
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.producing import PATIENCE, until
from tests.faults.proxy import Direction, FaultProxy
from tests.faults.verdict import Promise, Trial
from tests.faults.wire import EAGER, KINDS, TOPIC, Wire, behind_proxy

every_kind = pytest.mark.parametrize("kind", KINDS)
every_direction = pytest.mark.parametrize(
    "directions",
    [tuple(Direction), (Direction.TO_BROKER,), (Direction.TO_CLIENT,)],
    ids=["both", "to-broker", "to-client"],
)


# 1: nobody there


@pytest.mark.scenario(1, "P")
@every_kind
@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "reset"])
async def test_no_broker_at_the_start_that_appears_later(kind: str, is_refused: bool) -> None:
    """Records wait for it: behind a closed port, or behind a balancer that accepts and has nobody to pass it to."""
    async with FakeCluster(3, topics={TOPIC: 6}) as cluster, FaultProxy.of(cluster) as proxy:
        for broker in range(3):
            if is_refused:
                await proxy.stop(broker)
            else:
                await cluster.stop_broker(broker)
        async with Producer(proxy.bootstrap_servers, **{**EAGER, **KINDS[kind].settings}) as producer:
            with pytest.raises(NoBrokerAvailableError) as checked:
                await producer.check(PATIENCE, tries_each_once=True)
            assert set(checked.value.causes) == set(proxy.bootstrap_servers.split(","))
            async with Trial(producer, TOPIC, Promise.ONCE) as trial:
                if not is_refused:
                    await until(lambda: proxy.connections() >= 10)
                for broker in range(3):
                    if is_refused:
                        await proxy.start([broker])
                    else:
                        await cluster.start_broker(broker)
                await trial.acknowledged(30)
        trial.judge(cluster.records(TOPIC))


@pytest.mark.scenario(1, "P")
async def test_no_broker_ever() -> None:
    """A typed error in time, attempts that keep their distance, and nothing held back."""
    async with FakeCluster(1) as cluster, FaultProxy.of(cluster) as proxy:
        await cluster.stop_broker(0)
        back_off = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
        async with Producer(
            proxy.bootstrap_servers, **{**EAGER, **back_off, "max_block_ms": 500}
        ) as producer:
            with pytest.raises(MetadataTimeoutError) as sending:
                await producer.send(TOPIC, b"v")
            assert sending.value.waited >= 0.499
            assert isinstance(sending.value.__cause__, NoBrokerAvailableError)
            assert producer.outstanding_bytes == 0
        attempts = proxy.opened_at[0]
        gaps = [late - early for early, late in itertools.pairwise(attempts)]
        assert len(gaps) >= 2
        assert all(
            gap >= 0.8 * wait - 0.001 for gap, wait in zip(gaps, (0.05, 0.1, 0.2, 0.2), strict=False)
        ), gaps


# 8 and 9: black holes


async def given_up(wire: Wire, times: int) -> None:
    """Each broker was connected to so many times more: its requests timed out that often."""
    before = {broker: wire.proxy.connections(broker) for broker in wire.proxy.ports}
    await until(
        lambda: all(wire.proxy.connections(broker) >= count + times for broker, count in before.items())
    )


@pytest.mark.scenario(8, "P")
@every_direction
@every_kind
async def test_black_hole_shorter_than_the_delivery_time_out(
    kind: str, directions: tuple[Direction, ...]
) -> None:
    """What was on its way arrives when it heals, from connections that the client has given up long ago."""
    async with behind_proxy(kind, request_timeout_ms=150) as wire:
        for _ in range(2):
            wire.proxy.hold(directions=directions)
            await given_up(wire, 2)
            wire.proxy.heal()
            await wire.trial.caught_up()


@pytest.mark.scenario(8, "P")
@every_kind
async def test_black_hole_in_front_of_one_broker(kind: str) -> None:
    """The records of the others are acknowledged meanwhile."""
    async with behind_proxy(kind, request_timeout_ms=150) as wire:
        wire.proxy.hold(broker=1)
        await wire.trial.acknowledged(200)
        held = [number for number in range(wire.trial.sent) if number not in wire.trial.acked]
        assert held
        wire.proxy.heal()
        await wire.trial.caught_up()


@pytest.mark.scenario(9, "P")
@every_direction
@every_kind
async def test_black_hole_longer_than_the_delivery_time_out(
    kind: str, directions: tuple[Direction, ...]
) -> None:
    """Records fail, some of them perhaps written; then the producer goes on, with no gap that stalls it."""
    async with behind_proxy(kind, request_timeout_ms=150, delivery_timeout_ms=600) as wire:
        wire.may_fail = True
        for _ in range(2):
            failed = len(wire.trial.failed)
            wire.proxy.hold(directions=directions)
            await wire.trial.failures(failed + 100)
            wire.proxy.heal()
            await wire.trial.acknowledged(200)
    errors = list(wire.trial.failed.values())
    assert {type(error) for error in errors} == {DeliveryTimeoutError}
    # Some were on the wire, and may be in the log; some never left.
    assert {error.possibly_written for error in errors if isinstance(error, DeliveryError)} == {True, False}


# 11 and 12: slow lines


@pytest.mark.scenario(11, "P")
@every_kind
async def test_a_line_of_1_kb_per_second(kind: str) -> None:
    """`send()` waits, at no time there is more in memory than allowed, and a thin line still carries records."""
    memory = 20_000
    async with behind_proxy(
        kind,
        is_sending=False,
        buffer_memory=memory,
        request_timeout_ms=60_000,
        delivery_timeout_ms=120_000,
    ) as wire:
        wire.promise = Promise.ONCE if kind != "plain" else None
        for broker in wire.proxy.ports:
            wire.proxy.shape(broker=broker, directions=[Direction.TO_BROKER], bytes_per_second=1000)
        # More than twice the memory is offered, as fast as it is taken.
        offering = asyncio.ensure_future(wire.trial.send(100, size=400))
        acknowledged = len(wire.trial.acked)
        peak = 0

        def is_full_and_moves() -> bool:
            nonlocal peak
            peak = max(peak, wire.producer.outstanding_bytes)
            return wire.producer._life.sender.pool.waiting > 0 and len(wire.trial.acked) > acknowledged + 10

        await until(is_full_and_moves)
        assert not offering.done()
        assert memory * 0.8 < peak <= memory
        wire.proxy.shape(bytes_per_second=0)
        await offering


@pytest.mark.scenario(12, "P")
@every_kind
async def test_latency_of_200_ms_and_up_to_200_more(kind: str) -> None:
    """Order is kept; with more than one request allowed, several are on their way at once."""
    async with behind_proxy(kind, seed=12, request_timeout_ms=20_000) as wire:
        wire.promise = Promise.ONCE if kind != "plain" else None
        connections = wire.proxy.connections()
        wire.proxy.shape(latency=0.1, jitter=0.2)
        deepest = 0

        def has_pipelined() -> bool:
            nonlocal deepest
            deepest = max([deepest, *(len(link.pending) for link in wire.proxy.links)])
            return len(wire.trial.acked) > 600

        await until(has_pipelined)
        wire.proxy.clear()
        assert wire.proxy.connections() == connections
    assert deepest == (1 if kind == "one-by-one" else 5)


# 16: other addresses


@pytest.mark.scenario(16, "P")
@every_kind
async def test_advertised_addresses_change(kind: str) -> None:
    """Broker by broker the old address goes away, after the new one is advertised: metadata is followed."""
    async with behind_proxy(kind) as wire, FaultProxy.of(wire.cluster) as moved:
        for broker in range(3):
            await wire.proxy.stop(broker)
            await until(lambda: moved.count(ApiKey.PRODUCE, broker) > 0)  # noqa: B023  # awaited in the loop
            await wire.trial.caught_up()
        asked = moved.count(ApiKey.PRODUCE)
        await wire.trial.acknowledged(100)
        assert moved.count(ApiKey.PRODUCE) > asked
        # And back.
        await wire.proxy.start()
        for broker in range(3):
            await moved.stop(broker)
            await wire.trial.caught_up()


# 68: close


@pytest.mark.scenario(68, "P")
@every_direction
@every_kind
async def test_close_during_a_black_hole(kind: str, directions: tuple[Direction, ...]) -> None:
    """It ends in its time, and with it every record: failed, and honest about what may have been written."""
    async with FakeCluster(3, topics={TOPIC: 6}) as cluster, FaultProxy.of(cluster) as proxy:
        producer = Producer(proxy.bootstrap_servers, **{**EAGER, **KINDS[kind].settings})
        await producer.start()
        trial = Trial(producer, TOPIC, KINDS[kind].promise)
        await trial.send(50)
        await trial.settle()
        proxy.hold(directions=directions)
        asked = proxy.count(ApiKey.PRODUCE)
        await trial.send(500)
        await until(lambda: proxy.count(ApiKey.PRODUCE) >= asked + 3)
        started = asyncio.get_running_loop().time()
        async with asyncio.timeout(30):
            await producer.close(0.2)
        assert asyncio.get_running_loop().time() - started >= 0.199
        assert len(trial.acked) + len(trial.failed) == trial.sent
        assert producer.outstanding_bytes == 0
        assert len(trial.failed) == 500
        assert all(isinstance(error, ForcedCloseError) for error in trial.failed.values())
        # What the black hole kept now arrives at the brokers, from a client that is gone.
        proxy.heal()
        await until(lambda: not proxy.links)
    trial.judge(cluster.records(TOPIC), may_fail=True)
