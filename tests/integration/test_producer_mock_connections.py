"""Our producer against librdkafka's mock cluster: brokers that are not there, connections that end, slow answers.

What it wrote is judged as in ``test_producer_mock.py``; what the mock does not check, ``mock_harness.py`` applies
afterwards: where an answer was lost, the mock has the batch twice, and a broker that remembers its producers would
have recognized the second one by its sequence.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    DeliveryTimeoutError,
    DisconnectedError,
    FlushTimeoutError,
    ForcedCloseError,
    MetadataTimeoutError,
    NoBrokerAvailableError,
)
from tests.integration.mock_harness import KINDS, PATIENCE, QUICK, judge, judge_kind, kept_of, producer_of
from tests.integration.mock_log import read_batches
from tests.integration.traffic import Traffic, Verdict
from tests.mock_cluster import DISCONNECT, LAST_SOUND_METADATA, Api, MockCluster

if TYPE_CHECKING:
    from aioproduce import DeliveryFuture

pytestmark = pytest.mark.usefixtures("nothing_unhandled")


async def appended(cluster: MockCluster, topic: str, records: int) -> None:
    """Wait until the topic holds that many records."""
    while True:
        batches = await asyncio.to_thread(read_batches, cluster, topic)
        if sum(len(batch.values) for batch in batches) >= records:
            return
        await asyncio.sleep(0.01)


# No broker


@pytest.mark.scenario(1, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_no_broker_at_the_start_and_later_one(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_down()
    async with producer_of(mock_cluster, kind) as producer:
        with pytest.raises(NoBrokerAvailableError) as unreachable:
            await producer.check(PATIENCE, tries_each_once=True)
        assert set(unreachable.value.causes) == set(mock_cluster.bootstrap_servers.split(","))
        with pytest.raises(MetadataTimeoutError) as caught:
            await producer.send(topic_name, b"too early", timeout=0.3)
        assert isinstance(caught.value.__cause__, NoBrokerAvailableError)

        traffic = Traffic(producer, topic_name)
        sending = asyncio.create_task(traffic.send(5))
        mock_cluster.set_up()
        await sending
        await traffic.settle()
        assert set((await producer.check()).brokers) == {1, 2, 3}

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(1, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_no_broker_at_the_start_and_never_one(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """Each call ends in its own time, with an error that names every address."""
    mock_cluster.set_down()
    strict = producer_of(mock_cluster, kind, max_block_ms=300)
    with pytest.raises(NoBrokerAvailableError) as caught:
        await strict.start(require_broker=True)
    assert set(caught.value.causes) == set(mock_cluster.bootstrap_servers.split(","))

    producer = producer_of(mock_cluster, kind, max_block_ms=300)
    await producer.start()
    sends = await asyncio.gather(
        *(producer.send(topic_name, b"never") for _ in range(3)), return_exceptions=True
    )
    assert [type(error) for error in sends] == [MetadataTimeoutError] * 3
    assert producer.outstanding_bytes == 0
    await producer.flush()
    await producer.close()


@pytest.mark.scenario(69, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_flush_and_close_end_while_all_brokers_are_down(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """By their own time-out, or by that of the deliveries; what is still in time is delivered after the outage."""
    mock_cluster.create_topic(topic_name)
    impatient = producer_of(mock_cluster, kind, delivery_timeout_ms=700, request_timeout_ms=500)
    await impatient.start()
    async with producer_of(mock_cluster, kind) as producer:
        lost = Traffic(impatient, topic_name, name="lost")
        kept = Traffic(producer, topic_name, name="kept")
        for traffic in (lost, kept):
            await traffic.send(5)
            await traffic.settle()
        mock_cluster.set_down()
        await kept.send(5)
        await lost.send(5)
        with pytest.raises(FlushTimeoutError):
            await producer.flush(0.2)
        assert len(kept.acked) == 5
        assert kept.failed == {}

        await lost.settle()
        errors = list(lost.failed.values())
        assert len(errors) == 5
        assert all(isinstance(error, DeliveryTimeoutError) for error in errors)
        await lost.send(5)
        await impatient.close(0.1)
        assert [type(lost.failed[number]) for number in range(10, 15)] == [ForcedCloseError] * 5
        assert impatient.outstanding_bytes == 0

        mock_cluster.set_up()
        await kept.settle()
        await kept.send(5)
        await kept.settle()

    assert kept.errors() == []
    batches = (await kept_of(mock_cluster, topic_name)).batches
    records = [record for batch in batches for record in batch.records() if record.value is not None]
    for traffic, name in ((lost, b"lost"), (kept, b"kept")):
        assert (
            traffic.judge(record for record in records if (record.value or b"").startswith(name)) == Verdict()
        )


@pytest.mark.scenario(69, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_flush_does_not_wait_for_the_linger(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """The linger is longer than any test may last."""
    mock_cluster.create_topic(topic_name, partitions=3)
    settings = {"linger_ms": 3_600_000, "delivery_timeout_ms": 7_200_000}
    async with producer_of(mock_cluster, kind, **settings) as producer:
        traffic = Traffic(producer, topic_name)
        for _ in range(3):
            await traffic.send(10)
            await traffic.settle()
        await traffic.send(10)

    assert traffic.errors() == []
    assert len(traffic.acked) == 40
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


# Connections that end, answers that are lost or late


@pytest.mark.parametrize("kind", KINDS)
async def test_lost_connections_are_made_again(mock_cluster: MockCluster, topic_name: str, kind: str) -> None:
    """The broker closes the connection instead of appending."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        for _ in range(5):
            mock_cluster.push_errors(Api.PRODUCE, DISCONNECT, DISCONNECT)
            await traffic.send(5)
            await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_connection_without_retries_is_ambiguous(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.push_errors(Api.PRODUCE, DISCONNECT)
    async with producer_of(mock_cluster, kind, retries=0) as producer:
        delivery = await producer.send(topic_name, b"lost")
        with pytest.raises(DisconnectedError) as caught:
            await delivery
        assert (caught.value.possibly_written, caught.value.attempts) == (True, 1)
        assert (await producer.send_and_wait(topic_name, b"after")).offset == 0


@pytest.mark.scenario(4, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_connection_is_lost_after_the_append(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """The mock appends, holds its answer back, and goes down with it."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 2)
    async with producer_of(mock_cluster, kind, linger_ms=20) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(5)
        await traffic.settle()
        for round_ in (2, 3):
            held = await asyncio.to_thread(read_batches, mock_cluster, topic_name)
            mock_cluster.push_delayed_errors(2, Api.PRODUCE, [(0, 60.0)])
            await traffic.send(5)
            await appended(mock_cluster, topic_name, sum(len(batch.values) for batch in held) + 5)
            assert len(traffic.acked) == 5 * (round_ - 1)
            mock_cluster.set_down(2)
            mock_cluster.set_up(2)
            await traffic.settle()

    assert traffic.errors() == []
    kept = await kept_of(mock_cluster, topic_name)
    written = [len(batch.values) for batch in (*kept.batches, *kept.repeated)]
    # The lost answers cost a repetition each; only an idempotent producer's can be known for one.
    assert written == [5] * 5
    assert len(kept.repeated) == (2 if kind == "idempotent" else 0)
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


@pytest.mark.scenario(7, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_answers_later_than_the_request_timeout_are_never_taken(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """The old connection is closed, and its late answers with it."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 2)
    async with producer_of(mock_cluster, kind, request_timeout_ms=300) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(1)
        await traffic.settle()
        used = producer._life.sender.connections.connection(2)
        # Appended, and answered when nobody listens any more.
        mock_cluster.push_delayed_errors(2, Api.PRODUCE, [(0, 1.0)])
        await traffic.send(1)
        await traffic.settle()
        assert producer._life.sender.connections.connection(2) not in (None, used)
        await traffic.send(5)
        await traffic.settle()

    assert traffic.errors() == []
    # An answer that is taken for another request's would put records at the wrong offset.
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()
    kept = await kept_of(mock_cluster, topic_name)
    assert [batch.values for batch in kept.repeated] == ([(b"record 1 ",)] if kind == "idempotent" else [])


@pytest.mark.scenario(4, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_brokers_go_down_and_up_while_sending(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name, partitions=3)
    async with (
        producer_of(mock_cluster, kind, batch_size=300) as producer,
        Traffic(producer, topic_name) as traffic,
    ):
        for broker in (1, 2, 3, -1):
            await traffic.acknowledged(100)
            mock_cluster.set_down(broker)
            if broker > 0:
                # The others go on.
                await traffic.acknowledged(50)
            mock_cluster.set_up(broker)
        await traffic.acknowledged(100)

    assert traffic.errors() == []
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


async def test_round_trips_overlap_and_keep_the_order(mock_cluster: MockCluster, topic_name: str) -> None:
    """Five requests are in flight on the one connection, and never more."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_round_trip(0.1)
    most = 0
    async with producer_of(mock_cluster, batch_size=200) as producer:
        traffic = Traffic(producer, topic_name)
        await producer.partitions_for(topic_name)
        await traffic.send(200)
        while len(traffic.acked) < traffic.sent:
            for broker in (1, 2, 3):
                connection = producer._life.sender.connections.connection(broker)
                most = max(most, 0 if connection is None else len(connection.in_flight))
            await asyncio.sleep(0.01)
        await traffic.settle()

    assert most == 5
    mock_cluster.set_round_trip(0.0)
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


# Brokers that move, go for good, or are slow


@pytest.mark.scenario(16, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_broker_moves_to_another_address(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """The producer uses the next metadata, and opens the connection again."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 3)
    port = int(mock_cluster.bootstrap_servers.split(",")[2].rpartition(":")[2])
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(10)
        await traffic.settle()
        mock_cluster.set_advertised_address(3, "localhost", port)
        # An error that makes the producer request metadata again.
        mock_cluster.push_errors(Api.PRODUCE, 6)
        await traffic.send(10)
        await traffic.settle()
        await traffic.send(10)
        await traffic.settle()
        connection = producer._life.sender.connections.connection(3)
        assert connection is not None
        assert (connection.address.host, connection.address.port) == ("localhost", port)

    assert traffic.errors() == []
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


@pytest.mark.scenario(27, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_all_brokers_are_replaced(topic_name: str, kind: str) -> None:
    """KIP-899: nobody of the cluster that was known is left, and bootstrap.servers knows another."""
    with MockCluster(brokers=2) as later:
        later.create_topic(topic_name, partitions=4)
        later.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
        with MockCluster(brokers=1) as first:
            first.create_topic(topic_name, partitions=4)
            first.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
            later.set_down()
            servers = f"{first.bootstrap_servers},{later.bootstrap_servers}"
            async with Producer(servers, **QUICK | KINDS[kind]) as producer:
                before = Traffic(producer, topic_name, name="before")
                await before.send(100)
                await before.settle()
                assert await judge(before, first, topic_name) == Verdict()
                first.set_down()
                later.set_up()
                after = Traffic(producer, topic_name, name="after")
                await after.send(100)
                await after.settle()

        assert (before.errors(), after.errors()) == ([], [])
        assert await judge_kind(after, later, topic_name, kind) == Verdict()


async def test_a_broker_is_taken_out_of_the_cluster(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name, partitions=3, replication=3)
    async with (
        producer_of(mock_cluster, batch_size=300) as producer,
        Traffic(producer, topic_name) as traffic,
    ):
        await traffic.acknowledged(100)
        for partition in range(3):
            mock_cluster.set_leader(topic_name, partition, 1 + partition % 2)
        await traffic.acknowledged(100)
        mock_cluster.remove_broker(3)
        await traffic.acknowledged(300)

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(72, "M")
@pytest.mark.parametrize("kind", ["acks=1", "idempotent"])
@pytest.mark.extended("takes 4 s of processor time; its simulation stays in the gate")
async def test_one_slow_broker_does_not_delay_the_others(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """Ten producers, a thousand topics: all that the two quick brokers lead is acknowledged, and nothing of the
    third, which then answers too (by losing its connections: what it had appended is repeated).
    """
    topics = [mock_cluster.create_topic(f"{topic_name}-{number}") for number in range(1000)]
    for number, topic in enumerate(topics):
        mock_cluster.set_leader(topic, 0, 1 + number % 3)
    async with AsyncExitStack() as stack:
        producers = [await stack.enter_async_context(producer_of(mock_cluster, kind)) for _ in range(10)]
        for producer in producers:
            await asyncio.gather(*(producer.send_and_wait(topic, b"first") for topic in topics))
        mock_cluster.set_round_trip(600.0, 1)
        sent: dict[str, list[DeliveryFuture]] = {topic: [] for topic in topics}
        for producer in producers:
            for topic in topics:
                sent[topic].append(await producer.send(topic, b"second"))
        slow = [delivery for topic in topics[::3] for delivery in sent[topic]]
        await asyncio.gather(
            *(delivery for topic in topics if topic not in topics[::3] for delivery in sent[topic])
        )
        assert not any(delivery.done() for delivery in slow)
        mock_cluster.set_round_trip(0.0, 1)
        mock_cluster.set_down(1)
        mock_cluster.set_up(1)
        await asyncio.gather(*slow)
        await asyncio.gather(*(producer.send_and_wait(topics[0], b"third") for producer in producers))
        assert all(producer.outstanding_bytes == 0 for producer in producers)

    for number, topic in enumerate(topics[:30]):
        kept = await kept_of(mock_cluster, topic)
        assert kept.refused == []
        assert kept.repeated == [] or (number % 3 == 0 and kind == "idempotent")
        found = [record for batch in (*kept.batches, *kept.repeated) for record in batch.records()]
        written = Counter(record.value for batch in kept.batches for record in batch.records())
        assert (written[b"first"], written[b"third"]) == (10, 10 if number == 0 else 0)
        assert written[b"second"] == 10 or (
            number % 3 == 0 and kind != "idempotent" and written[b"second"] > 10
        )
        places = {record.offset for record in found if record.value == b"second"}
        assert {(await delivery).offset for delivery in sent[topic]} <= places
