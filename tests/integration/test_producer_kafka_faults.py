"""Our producer against three real brokers that are stopped, killed, stalled and restarted under it.

In each test one fault happens while several producers send; the log is then read by Kafka's own consumer.

1. Idempotent, acks=all: every record was acknowledged, is in the log once, at its offset, in send order.
2. Without idempotence, acks=all: nothing acknowledged is lost; a retry may have written a record twice. With
   acks=1 what the followers had not fetched may be lost as well, as Kafka documents.
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
from confluent_kafka.admin import NewTopic

from aioproduce import Producer
from aioproduce.errors import DeliveryTimeoutError
from tests.integration.traffic import Traffic, Verdict, by_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

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

# Kinds of producer; the first two are idempotent.
KINDS: dict[str, dict[str, Any]] = {
    "pipelined": {},
    "one-by-one": {"max_in_flight_requests_per_connection": 1, "compression_type": "zstd"},
    "plain": {"enable_idempotence": False, "compression_type": "gzip"},
    "acks=1": {"enable_idempotence": False, "acks": "1"},
}
# Gives its records up while a broker is stalled, and must be usable afterwards, without a gap in its sequences.
# Far below the 6 s after which Kafka moves the leadership: those count from the last heartbeat, before the stall.
IMPATIENT: dict[str, Any] = {"delivery_timeout_ms": 2500, "request_timeout_ms": 1000}
IDEMPOTENT = {"pipelined", "one-by-one", "impatient"}


async def live_through(
    cluster: KafkaCluster,
    topic: str,
    fault: Callable[[dict[str, Traffic]], Awaitable[None]],
    kinds: dict[str, dict[str, Any]] = KINDS,
) -> dict[str, Traffic]:
    """Send with every kind of producer, let the fault happen, go on afterwards, and judge the log."""
    await asyncio.to_thread(cluster.create_topic, topic, partitions=6)
    traffics: dict[str, Traffic] = {}
    async with AsyncExitStack() as stack:
        for kind, settings in kinds.items():
            producer = await stack.enter_async_context(
                Producer(cluster.bootstrap_servers, **SETTINGS | settings)
            )
            traffics[kind] = await stack.enter_async_context(Traffic(producer, topic, name=kind))
        await acknowledged(traffics, 200)
        await fault(traffics)
        await acknowledged(traffics, 200)

    read = by_name(await asyncio.to_thread(cluster.console_consume, topic))
    assert set(read) == set(kinds)
    for kind, traffic in traffics.items():
        if kind != "impatient":
            assert (kind, traffic.errors()) == (kind, [])
        verdict = traffic.judge(read[kind])
        if kind not in IDEMPOTENT:
            # A record that was written twice is acknowledged at one of its places, and may lie behind later ones.
            verdict.duplicated.clear()
            verdict.disordered.clear()
        if kind == "acks=1":
            # The next leader may lack records acknowledged before they were replicated, even after a clean change.
            verdict.lost.clear()
        assert (kind, verdict) == (kind, Verdict())
    return traffics


async def acknowledged(traffics: dict[str, Traffic], count: int) -> None:
    """Wait until each producer has got so many more acknowledgements: it is usable."""
    await asyncio.gather(*(traffic.acknowledged(count) for traffic in traffics.values()))


def busiest_leader(cluster: KafkaCluster, topic: str) -> int:
    """The node that leads most partitions."""
    states = cluster.partitions(topic)
    return Counter(state.leader for state in states.values()).most_common(1)[0][0]


@pytest.mark.scenario(20, "K")
@pytest.mark.scenario(29, "K")
@pytest.mark.scenario(31, "K")
@pytest.mark.scenario(33, "K")
@pytest.mark.extended("one leader that is killed stays in the gate")
async def test_every_broker_is_restarted_in_turn(kafka3: KafkaCluster, topic_name: str) -> None:
    """SIGTERM hands the leaders over, with requests in flight: each broker in turn, then twice who leads most."""

    async def restart(traffics: dict[str, Traffic]) -> None:
        for turn in range(1, 6):
            victim = (
                turn if turn in kafka3.nodes else await asyncio.to_thread(busiest_leader, kafka3, topic_name)
            )
            await asyncio.to_thread(kafka3.terminate, victim)
            await acknowledged(traffics, 100)
            await asyncio.to_thread(kafka3.start, victim)
            await asyncio.to_thread(kafka3.wait_until_in_sync, topic_name)

    await live_through(kafka3, topic_name, restart)


@pytest.mark.scenario(16, "K")
@pytest.mark.extended("one leader that is killed stays in the gate")
async def test_a_broker_comes_back_under_another_address(kafka3: KafkaCluster, topic_name: str) -> None:
    """The others say where it is now; it leads partitions again, and nobody looks for it where it was."""

    async def move(traffics: dict[str, Traffic]) -> None:
        node = await asyncio.to_thread(kafka3.leader_of, topic_name, 0)
        await asyncio.to_thread(kafka3.move, node)
        await asyncio.to_thread(kafka3.wait_until_in_sync, topic_name)
        await asyncio.to_thread(kafka3.elect_preferred, topic_name, 0, node)
        before = {kind: traffic.highest_offset(0) for kind, traffic in traffics.items()}
        # Partition 0 is written again, which only the moved broker can do.
        while any(traffic.highest_offset(0) == before[kind] for kind, traffic in traffics.items()):
            await acknowledged(traffics, 20)

    await live_through(kafka3, topic_name, move)


@pytest.mark.scenario(32, "K")
@pytest.mark.scenario(38, "K")
@pytest.mark.extended("one leader that is killed stays in the gate")
async def test_leaders_are_killed_five_times(
    kafka3: KafkaCluster, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGKILL and restart. The first victim is the active controller: who does not write to it notices nothing."""
    controller = await asyncio.to_thread(kafka3.active_controller)
    spared = f"{topic_name}-spared"
    others = [node for node in kafka3.nodes if node != controller]
    topic = NewTopic(spared, 2, replica_assignment=[others, others[::-1]])
    kafka3.admin.create_topics([topic], request_timeout=30.0)[spared].result(60.0)
    await asyncio.to_thread(kafka3.wait_until_led, spared, partitions=2)
    unharmed = Producer(kafka3.bootstrap_servers, **SETTINGS)
    await unharmed.start()
    traffic = Traffic(unharmed, spared)

    async def bounce(traffics: dict[str, Traffic]) -> None:
        async with traffic:
            await traffic.acknowledged(100)
            await asyncio.to_thread(kafka3.kill, controller)
            await traffic.acknowledged(300)
            assert await asyncio.to_thread(kafka3.active_controller) != controller
            await traffic.acknowledged(300)
        await unharmed.close()
        assert not any(f"retrying {spared}" in record.getMessage() for record in caplog.records)
        await asyncio.to_thread(kafka3.start, controller)
        for _ in range(4):
            victim = await asyncio.to_thread(busiest_leader, kafka3, topic_name)
            await asyncio.to_thread(kafka3.bounce, victim, hard=True)
            await acknowledged(traffics, 100)
            await asyncio.to_thread(kafka3.wait_until_in_sync, topic_name)

    await live_through(kafka3, topic_name, bounce)
    assert traffic.errors() == []
    assert traffic.judge(await asyncio.to_thread(kafka3.console_consume, spared)) == Verdict()


@pytest.mark.scenario(30, "K")
@pytest.mark.scenario(35, "K")
async def test_leader_is_killed(kafka3: KafkaCluster, topic_name: str) -> None:
    """SIGKILL, connections reset; leaders move when the controller misses its heartbeats.

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


@pytest.mark.scenario(34, "K")
@pytest.mark.parametrize("stalled", [1, 2])
@pytest.mark.extended("one leader that is killed stays in the gate")
async def test_brokers_stall_with_their_sockets_open(
    kafka3: KafkaCluster, topic_name: str, stalled: int
) -> None:
    """Requests time out, written or not; with two of three stalled nothing is acknowledged at all.

    Who does not wait that long fails what it cannot deliver, and loses nothing of what it sends later.
    """

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

    traffics = await live_through(kafka3, topic_name, stall, {**KINDS, "impatient": IMPATIENT})
    failed = list(traffics["impatient"].failed.values())
    assert len(failed) > 0
    assert all(isinstance(error, DeliveryTimeoutError) for error in failed)


@pytest.mark.scenario(36, "K")
@pytest.mark.extended("one leader that is killed stays in the gate")
async def test_an_unclean_election_loses_records_and_no_producer(
    kafka3: KafkaCluster, topic_name: str
) -> None:
    """The only replica that has the last records dies, and one without them leads: their loss is the brokers'.

    The idempotent producer's next sequence is one that the new leader cannot take. It must go on in a new epoch;
    others' producers are stuck for ever here.
    """
    first, second, _ = kafka3.nodes
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(topic_name, 1, replica_assignment=[[first, second]], config=configs)
    kafka3.admin.create_topics([topic], request_timeout=30.0)[topic_name].result(60.0)
    await asyncio.to_thread(kafka3.wait_until_led, topic_name, partitions=1)
    traffics: dict[str, Traffic] = {}
    async with AsyncExitStack() as stack:
        for kind, settings in KINDS.items():
            producer = Producer(kafka3.bootstrap_servers, **SETTINGS | settings)
            await stack.enter_async_context(producer)
            traffics[kind] = Traffic(producer, topic_name, name=kind)
        await send_and_settle(traffics, 50)
        await asyncio.to_thread(kafka3.kill, second)
        # From here on only the first has them; its follower must be out of the ISR before it dies.
        await send_and_settle(traffics, 50)
        await asyncio.to_thread(kafka3.kill, first)
        for traffic in traffics.values():
            await traffic.send(50)
        await asyncio.to_thread(kafka3.start, second)
        await asyncio.gather(*(traffic.settle() for traffic in traffics.values()))
        await send_and_settle(traffics, 50)
        await asyncio.to_thread(kafka3.start, first)
        await asyncio.to_thread(kafka3.wait_until_in_sync, topic_name, 2)
        await send_and_settle(traffics, 50)

    read = by_name(await asyncio.to_thread(kafka3.console_consume, topic_name))
    for kind, traffic in traffics.items():
        assert (kind, traffic.errors(), len(traffic.acked)) == (kind, [], 250)
        verdict = traffic.judge(read[kind])
        # What was acknowledged by the one who died, and nothing before or after it.
        assert (kind, sorted(verdict.lost)) == (kind, list(range(50, 100)))
        verdict.lost.clear()
        if kind not in IDEMPOTENT:
            verdict.duplicated.clear()
            verdict.disordered.clear()
        assert (kind, verdict) == (kind, Verdict())
    batches = await asyncio.to_thread(kafka3.dump_log, topic_name, 0)
    # In the order of the log: the last epoch of each of the two idempotent producers.
    epochs = {batch.producer_id: batch.producer_epoch for batch in batches if batch.producer_id >= 0}
    assert (len(epochs), min(epochs.values()) >= 1) == (2, True)


async def send_and_settle(traffics: dict[str, Traffic], count: int) -> None:
    for traffic in traffics.values():
        await traffic.send(count)
    await asyncio.gather(*(traffic.settle() for traffic in traffics.values()))
