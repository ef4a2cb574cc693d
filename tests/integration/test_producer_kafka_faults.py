"""Our producer against three real brokers that are stopped, killed, stalled and restarted under it.

In each test one fault happens while several producers send; the log is then read by Kafka's own consumer.

1. Idempotent, acks=all: every record was acknowledged, is in the log once, at its offset, in send order.
2. Without idempotence, acks=all: nothing acknowledged is lost; a retry may have written a record twice.
3. Each producer that met the fault is used again after it, and all of its memory came back (``Traffic``).
4. What is waited for is acknowledgements and the brokers' own state. Only a stall's length is time, as it is the
   fault itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from tests.integration.traffic import Traffic, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kafka_cluster import KafkaCluster
    from tests.kafka_tools import ConsumedRecord

# Longer than the request time-out below, and than the 6 s after which the controller fences a silent broker.
STALL = 12.0

# A retry must come through in one of the pauses of two busy cores; the faults themselves last half of it at most.
DELIVERY_TIMEOUT_MS = 120_000

SETTINGS: dict[str, Any] = {
    "acks": "all",
    "batch_size": 1000,
    "linger_ms": 2,
    "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
    "max_block_ms": DELIVERY_TIMEOUT_MS,
    # A stalled broker is given up after this, so that several time-outs and reconnects fit into a stall.
    "request_timeout_ms": 3000,
    "retry_backoff_max_ms": 500,
    "reconnect_backoff_max_ms": 500,
}

# Kinds of producer; all but the last are idempotent.
KINDS: dict[str, dict[str, Any]] = {
    "pipelined": {},
    "one-by-one": {"max_in_flight_requests_per_connection": 1, "compression_type": "zstd"},
    "plain": {"enable_idempotence": False, "compression_type": "gzip"},
}


async def live_through(
    cluster: KafkaCluster, topic: str, fault: Callable[[dict[str, Traffic]], Awaitable[None]]
) -> None:
    """Send with every kind of producer, let the fault happen, go on afterwards, and judge the log."""
    await asyncio.to_thread(cluster.create_topic, topic, partitions=6)
    traffics: dict[str, Traffic] = {}
    async with AsyncExitStack() as stack:
        for kind, settings in KINDS.items():
            producer = await stack.enter_async_context(
                Producer(cluster.bootstrap_servers, **SETTINGS, **settings)
            )
            traffics[kind] = await stack.enter_async_context(Traffic(producer, topic, name=kind))
        await acknowledged(traffics, 200)
        await fault(traffics)
        await acknowledged(traffics, 200)

    read: dict[str, list[ConsumedRecord]] = {}
    for record in await asyncio.to_thread(cluster.console_consume, topic):
        assert record.value is not None
        read.setdefault(record.value.split()[0].decode(), []).append(record)
    assert set(read) == set(KINDS)
    for kind, traffic in traffics.items():
        assert (kind, traffic.errors()) == (kind, [])
        verdict = traffic.judge(read[kind])
        if kind == "plain":
            # A record that was written twice is acknowledged at one of its places, and may lie behind later ones.
            verdict.duplicated.clear()
            verdict.disordered.clear()
        assert (kind, verdict) == (kind, Verdict())


async def acknowledged(traffics: dict[str, Traffic], count: int) -> None:
    """Wait until each producer has got so many more acknowledgements: it is usable."""
    await asyncio.gather(*(traffic.acknowledged(count) for traffic in traffics.values()))


def busiest_leader(cluster: KafkaCluster, topic: str) -> int:
    """The node that leads most partitions."""
    states = cluster.partitions(topic)
    return Counter(state.leader for state in states.values()).most_common(1)[0][0]


async def test_every_broker_is_restarted_in_turn(kafka3: KafkaCluster, topic_name: str) -> None:
    """Scenarios 29, 31, 33, 38 and 20: SIGTERM hands the leaders over, with requests in flight.

    Each leader moves at least once, and the active controller goes too.
    """

    async def restart(traffics: dict[str, Traffic]) -> None:
        for node in kafka3.nodes:
            await asyncio.to_thread(kafka3.terminate, node)
            await acknowledged(traffics, 100)
            await asyncio.to_thread(kafka3.start, node)
            await asyncio.to_thread(kafka3.wait_until_in_sync, topic_name)

    await live_through(kafka3, topic_name, restart)


async def test_leader_is_killed(kafka3: KafkaCluster, topic_name: str) -> None:
    """Scenarios 30 and 35: SIGKILL, connections reset; leaders move when the controller misses its heartbeats.

    While one of three is missing, a topic that wants all three in sync takes nothing; then it takes all.
    """
    strict = await asyncio.to_thread(
        kafka3.create_topic, f"{topic_name}-strict", partitions=6, configs={"min.insync.replicas": "3"}
    )

    async def kill(traffics: dict[str, Traffic]) -> None:
        await traffic.acknowledged(100)
        node = await asyncio.to_thread(busiest_leader, kafka3, topic_name)
        await asyncio.to_thread(kafka3.kill, node)
        await asyncio.to_thread(kafka3.wait_until_led, strict, partitions=6)
        before = len(traffic.acked)
        # By then the strict topic had its chance as well.
        await acknowledged(traffics, 200)
        assert len(traffic.acked) == before
        await asyncio.to_thread(kafka3.start, node)
        await traffic.acknowledged(200)

    async with (
        Producer(kafka3.bootstrap_servers, **SETTINGS) as producer,
        Traffic(producer, strict) as traffic,
    ):
        await live_through(kafka3, topic_name, kill)

    assert traffic.errors() == []
    assert traffic.judge(await asyncio.to_thread(kafka3.console_consume, strict)) == Verdict()


@pytest.mark.parametrize("stalled", [1, 2])
async def test_brokers_stall_with_their_sockets_open(
    kafka3: KafkaCluster, topic_name: str, stalled: int
) -> None:
    """Scenario 34: requests time out, written or not; with two of three stalled nothing is acknowledged at all."""

    async def stall(traffics: dict[str, Traffic]) -> None:
        first = await asyncio.to_thread(busiest_leader, kafka3, topic_name)
        nodes = [first, *(node for node in kafka3.nodes if node != first)][:stalled]
        for node in nodes:
            kafka3.stall(node)
        await asyncio.sleep(STALL)
        if stalled == 1:
            await acknowledged(traffics, 50)
        for node in nodes:
            kafka3.resume(node)
        await asyncio.to_thread(kafka3.wait_until_ready)

    await live_through(kafka3, topic_name, stall)
