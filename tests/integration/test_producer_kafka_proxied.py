"""Our producer against three real brokers behind proxies: lost answers, leaders that move under five requests.

The brokers tell those clients who come through a proxy to come back through it (``has_proxies`` of
``KafkaCluster``), while the harness and Kafka's own tools talk to them directly.

1. Idempotent: every record was acknowledged, is in the log once, in order, at its offset or at an unknown one.
2. Without idempotence nothing acknowledged is lost; where an answer was lost the record is there twice, and that
   is asserted, as it proves that the fault took place.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from tests.faults.proxy import Direction, FaultProxy
from tests.integration.corrupting_relay import CorruptingRelay
from tests.integration.traffic import Traffic, Verdict, by_name
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.kafka_tools import KafkaTools

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("nothing_unhandled")]

PRODUCE = 0

SETTINGS: dict[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_max_ms": 200,
}

KINDS: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "acks=all": {"enable_idempotence": False},
    "acks=1": {"enable_idempotence": False, "acks": "1"},
}


@pytest.fixture(scope="module")
def _proxied3(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {
        # A directory that is gone is noticed when a checkpoint is written to it.
        "replica.high.watermark.checkpoint.interval.ms": "300",
        # Leaders move back when a test says so.
        "auto.leader.rebalance.enable": "false",
    }
    with KafkaCluster(
        kafka_tools,
        tmp_path_factory.mktemp("proxied"),
        brokers=3,
        properties=properties,
        has_proxies=True,
        has_spare_data=True,
    ) as cluster:
        yield cluster


@pytest.fixture
def proxied3(_proxied3: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers behind proxies, with two log directories each."""
    yield _proxied3
    _proxied3.mend()


def proxy_of(cluster: KafkaCluster) -> FaultProxy:
    return FaultProxy(
        {node.node_id: ("127.0.0.1", node.proxied_port) for node in cluster.nodes.values()},
        ports={node.node_id: node.proxy_port for node in cluster.nodes.values()},
    )


async def read(cluster: KafkaCluster, topic: str) -> dict[str, Any]:
    return by_name(await asyncio.to_thread(cluster.console_consume, topic))


async def end_of(cluster: KafkaCluster, topic: str) -> int:
    """The high watermark of partition 0."""
    return (await asyncio.to_thread(cluster.offsets, topic))[0][1]


async def all_readable(cluster: KafkaCluster, topic: str, traffics: Iterable[Traffic]) -> None:
    """Wait until consumers are given what was acknowledged: with acks=1 before the other replicas had it."""
    last = max(told.offset for traffic in traffics for told in traffic.acked.values())
    while True:
        if await end_of(cluster, topic) > last:
            break
        await asyncio.sleep(0.05)


async def in_flight(producers: Sequence[Producer], broker: int, requests: int) -> None:
    """Wait until each producer has so many unanswered requests on its connection to a broker."""
    for producer in producers:
        while True:
            connection = producer._life.sender.connections.connection(broker)
            if connection is not None and len(connection.in_flight) >= requests:
                break
            await asyncio.sleep(0.005)


async def send_one_by_one(traffics: Sequence[Traffic], count: int, *, size: int = 0) -> None:
    """Each record becomes a batch and a request of its own, as far as requests may be in flight."""
    for _ in range(count):
        for traffic in traffics:
            await traffic.send(1, size=size)
        await asyncio.sleep(0.02)


@pytest.mark.scenario(4, "K")
async def test_the_answer_is_lost_after_the_append(proxied3: KafkaCluster, topic_name: str) -> None:
    """RST instead of the answer: to a single request, and to the first of several in flight."""
    await asyncio.to_thread(proxied3.create_topic, topic_name)
    traffics = {}
    async with proxy_of(proxied3) as proxy:
        for kind, settings in KINDS.items():
            async with Producer(proxy.bootstrap_servers, **SETTINGS, **settings) as producer:
                traffic = traffics[kind] = Traffic(producer, topic_name, name=kind)
                await traffic.send(5)
                await traffic.settle()
                fault = proxy.reset_after(PRODUCE)
                await traffic.send(5)
                await traffic.settle()
                assert fault.is_spent
                fault = proxy.reset_after(PRODUCE, skip=1)
                await send_one_by_one([traffic], 10)
                await traffic.settle()
                assert fault.is_spent
                await traffic.send(5)
                await traffic.settle()

    await all_readable(proxied3, topic_name, traffics.values())
    records = await read(proxied3, topic_name)
    for kind, traffic in traffics.items():
        assert (kind, traffic.errors()) == (kind, [])
        verdict = traffic.judge(records[kind])
        if kind == "idempotent":
            verdict.unplaced.clear()
        else:
            # At least the batch of one record or more whose only fault it was to be answered.
            assert (kind, len(verdict.duplicated) >= 2) == (kind, True)
            verdict.duplicated.clear()
            verdict.disordered.clear()
        assert (kind, verdict) == (kind, Verdict())


@pytest.mark.scenario(55, "K")
@pytest.mark.scenario(20, "K")
@pytest.mark.scenario(4, "K")
@pytest.mark.extended("the lost answer after the append stays in the gate")
async def test_five_lost_answers_and_the_leader_moves(proxied3: KafkaCluster, topic_name: str) -> None:
    """Five requests are appended, none is answered, and the next leader gets all five again.

    Then it goes back while five requests are on their way to the one that leads no more, and refuses them.
    """
    await asyncio.to_thread(proxied3.create_topic, topic_name)
    preferred = await asyncio.to_thread(proxied3.leader_of, topic_name, 0)
    async with proxy_of(proxied3) as proxy, AsyncExitStack() as stack:
        producers = {
            kind: await stack.enter_async_context(Producer(proxy.bootstrap_servers, **SETTINGS, **settings))
            for kind, settings in KINDS.items()
        }
        traffics = {kind: Traffic(producer, topic_name, name=kind) for kind, producer in producers.items()}
        every, all_producers = list(traffics.values()), list(producers.values())
        await settle_after(every, 5)
        await all_readable(proxied3, topic_name, every)
        end = await end_of(proxied3, topic_name)

        proxy.hold(broker=preferred, directions=[Direction.TO_CLIENT])
        await send_one_by_one(every, 5)
        await in_flight(all_producers, preferred, 5)
        while await end_of(proxied3, topic_name) < end + 15:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert [len(traffic.acked) for traffic in every] == [5, 5, 5]
        await asyncio.to_thread(proxied3.terminate, preferred)
        proxy.reset_links(preferred)
        proxy.heal(broker=preferred)
        await asyncio.gather(*(traffic.settle() for traffic in every))
        await settle_after(every, 5)

        await asyncio.to_thread(proxied3.start, preferred)
        await asyncio.to_thread(proxied3.wait_until_in_sync, topic_name)
        leader = await asyncio.to_thread(proxied3.leader_of, topic_name, 0)
        assert leader != preferred
        proxy.hold(broker=leader, directions=[Direction.TO_BROKER])
        await send_one_by_one(every, 5)
        await in_flight(all_producers, leader, 5)
        await asyncio.to_thread(proxied3.elect_preferred, topic_name, 0, preferred)
        proxy.heal(broker=leader)
        await asyncio.gather(*(traffic.settle() for traffic in every))
        await settle_after(every, 5)

    records = await read(proxied3, topic_name)
    for kind, traffic in traffics.items():
        assert (kind, traffic.errors(), len(traffic.acked)) == (kind, [], 25)
        verdict = traffic.judge(records[kind])
        if kind == "idempotent":
            verdict.unplaced.clear()
        else:
            # The five whose answers were lost, at least: the refused ones were not appended.
            assert (kind, set(verdict.duplicated)) == (kind, {5, 6, 7, 8, 9})
            verdict.duplicated.clear()
            verdict.disordered.clear()
        assert (kind, verdict) == (kind, Verdict())


async def settle_after(traffics: Sequence[Traffic], count: int) -> None:
    for traffic in traffics:
        await traffic.send(count)
        await traffic.settle()


@pytest.mark.scenario(47, "K")
@pytest.mark.scenario(42, "K")
@pytest.mark.extended("the lost answer after the append stays in the gate")
async def test_the_first_of_five_is_refused_and_the_others_are_out_of_order(
    proxied3: KafkaCluster, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checksum is wrong when it arrives; the four behind it meet a broker that misses it."""
    await asyncio.to_thread(proxied3.create_topic, topic_name)
    leader = proxied3.nodes[await asyncio.to_thread(proxied3.leader_of, topic_name, 0)]
    async with AsyncExitStack() as stack:
        relays = {
            node.node_id: await stack.enter_async_context(CorruptingRelay(node.proxy_port, node.proxied_port))
            for node in proxied3.nodes.values()
        }
        relay = relays[leader.node_id]
        producer = await stack.enter_async_context(Producer(f"127.0.0.1:{leader.proxy_port}", **SETTINGS))
        traffic = Traffic(producer, topic_name)
        await settle_after([traffic], 5)
        relay.close_and_spoil(1)
        await send_one_by_one([traffic], 5, size=500)
        await in_flight([producer], leader.node_id, 5)
        relay.open()
        await traffic.settle()
        assert relay.spoiled == 1
        await settle_after([traffic], 5)

    assert traffic.errors() == []
    assert "CORRUPT_MESSAGE" in caplog.text
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in caplog.text
    assert traffic.judge(await asyncio.to_thread(proxied3.console_consume, topic_name)) == Verdict()
    batches = await asyncio.to_thread(proxied3.dump_log, topic_name, 0)
    # No new epoch was needed: they were repeated under the sequences that they had.
    assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(batches[0].producer_id, 0)}


@pytest.mark.scenario(37, "K")
@pytest.mark.extended("the lost answer after the append stays in the gate")
async def test_a_log_directory_fails(proxied3: KafkaCluster, topic_name: str) -> None:
    """A broker loses one of its two: the partitions in it are led by others, the rest of it goes on."""
    await asyncio.to_thread(proxied3.create_topic, topic_name, partitions=12)
    states = await asyncio.to_thread(proxied3.partitions, topic_name)
    node_id, doomed = next(
        (node.node_id, places)
        for node in proxied3.nodes.values()
        if (places := spare_partitions(proxied3, node.node_id, topic_name, states))
    )
    async with proxy_of(proxied3) as proxy, AsyncExitStack() as stack:
        traffics = {}
        for kind, settings in KINDS.items():
            producer = Producer(proxy.bootstrap_servers, **SETTINGS | {"linger_ms": 2}, **settings)
            await stack.enter_async_context(producer)
            traffics[kind] = await stack.enter_async_context(Traffic(producer, topic_name, name=kind))
        await acknowledged(traffics, 200)
        await asyncio.to_thread(proxied3.break_spare_data, node_id)
        while any(  # noqa: ASYNC110
            [await asyncio.to_thread(proxied3.leader_of, topic_name, place) == node_id for place in doomed]
        ):
            await asyncio.sleep(0.1)
        await acknowledged(traffics, 200)
        await asyncio.to_thread(proxied3.repair_spare_data, node_id)
        await acknowledged(traffics, 200)

    records = await read(proxied3, topic_name)
    for kind, traffic in traffics.items():
        assert (kind, traffic.errors()) == (kind, [])
        verdict = traffic.judge(records[kind])
        if kind != "idempotent":
            verdict.duplicated.clear()
            verdict.disordered.clear()
        if kind == "acks=1":
            verdict.lost.clear()  # what the followers had not fetched from the failed directory, as documented
        assert (kind, verdict) == (kind, Verdict())


def spare_partitions(cluster: KafkaCluster, node_id: int, topic: str, states: Any) -> list[int]:
    """The partitions that a node leads from its second log directory."""
    spare = cluster.nodes[node_id].spare_data
    assert spare is not None
    return [
        partition
        for partition, state in states.items()
        if state.leader == node_id and (spare / f"{topic}-{partition}").is_dir()
    ]


async def acknowledged(traffics: dict[str, Traffic], count: int) -> None:
    await asyncio.gather(*(traffic.acknowledged(count) for traffic in traffics.values()))
