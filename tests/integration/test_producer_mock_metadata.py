"""Our producer against librdkafka's mock cluster: leaders that move or are missing, topics that come and go.

What it wrote is judged as in ``test_producer_mock.py``; what the mock does not check, ``mock_harness.py`` applies
afterwards.

1. A leaderless partition, or a refusal that meets an unknown topic, crashes the mock from Produce v10 on: such
   tests offer v9.
2. Nothing here is about leader epochs in metadata (scenario 21): those of versions before 9 are unreliable
   (KAFKA-9212), and the mock's answers from v9 on cannot be read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproduce.errors import (
    DeliveryTimeoutError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    TopicAuthorizationError,
)
from tests.integration.mock_harness import KINDS, judge, judge_kind, kept_of, producer_of
from tests.integration.traffic import Traffic, Verdict
from tests.mock_cluster import NO_LEADER, Api, MockCluster

pytestmark = pytest.mark.usefixtures("nothing_unhandled")


# Leaders


@pytest.mark.scenario(19, "M")
@pytest.mark.scenario(20, "M")
@pytest.mark.parametrize(
    ("kind", "in_flight"), [("acks=1", 5), ("acks=all", 5), ("idempotent", 1), ("idempotent", 5)]
)
async def test_leaders_move_while_sending(
    mock_cluster: MockCluster, topic_name: str, kind: str, in_flight: int
) -> None:
    """With one request in flight, and with five, which meet the move."""
    mock_cluster.create_topic(topic_name, partitions=3, replication=3)
    mock_cluster.set_round_trip(0.01)
    settings: dict[str, Any] = {"batch_size": 300, "max_in_flight_requests_per_connection": in_flight}
    async with (
        producer_of(mock_cluster, kind, **settings) as producer,
        Traffic(producer, topic_name) as traffic,
    ):
        for turn in range(8):
            for partition in range(3):
                mock_cluster.set_leader(topic_name, partition, 1 + (turn + partition) % 3)
            await traffic.acknowledged(100)

    assert traffic.errors() == []
    verdict = await judge(traffic, mock_cluster, topic_name)
    if in_flight > 1:
        # While the former leader still has to refuse some batches, a new one may reach the next leader. Kafka
        # refuses that one by its sequence (real Kafka judges it); the mock appends it.
        verdict.disordered.clear()
    assert verdict == Verdict()


@pytest.mark.scenario(19, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_that_names_the_next_leader_is_believed(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """KIP-951: the retry goes there before any metadata has come."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 2)
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(5)
        await traffic.settle()
        known = producer._life.sender.metadata.version
        mock_cluster.set_leader(topic_name, 0, 3)
        for broker in (1, 2, 3):
            mock_cluster.push_delayed_errors(broker, Api.METADATA, [(0, 0.5)])
        mock_cluster.start_tracking()
        await traffic.send(5)
        await traffic.settle()
        assert producer._life.sender.metadata.version == known
        requests = [request.broker_id for request in mock_cluster.requests(Api.PRODUCE)]

    assert requests == [2, 3]
    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(22, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_partition_without_leader_waits_for_one(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """It does not hold up other partitions; without leader for ever its records fail in time, unsent."""
    mock_cluster.set_api_version(Api.PRODUCE, 0, 9)
    mock_cluster.set_api_version(Api.FETCH, 0, 11)
    mock_cluster.create_topic(topic_name, partitions=2)
    async with producer_of(mock_cluster, kind, delivery_timeout_ms=700, request_timeout_ms=500) as producer:
        assert (await producer.send_and_wait(topic_name, b"first", partition=0)).offset == 0
        mock_cluster.set_leader(topic_name, 0, NO_LEADER)
        doomed = await producer.send(topic_name, b"doomed", partition=0)
        other = await producer.send_and_wait(topic_name, b"other", partition=1)
        assert other.offset == 0
        # It may have been sent before the loss of the leader was known: refused, then, and not written.
        with pytest.raises(DeliveryTimeoutError) as caught:
            await doomed
        attempts_of_doomed = caught.value.attempts
        late = await producer.send(topic_name, b"late", partition=0)
        with pytest.raises(DeliveryTimeoutError, match="no known leader") as caught:
            await late
        assert (caught.value.possibly_written, caught.value.attempts) == (False, 0)

        waiting = await producer.send(topic_name, b"waiting", partition=0)
        await producer.send_and_wait(topic_name, b"other", partition=1)
        mock_cluster.set_leader(topic_name, 0, 2)
        assert (await waiting).offset == 1
        assert (await producer.send_and_wait(topic_name, b"after", partition=0)).offset == 2
        assert producer.outstanding_bytes == 0

    assert attempts_of_doomed >= 1
    kept = await kept_of(mock_cluster, topic_name)
    assert (kept.repeated, kept.refused) == ([], [])
    written = [value for batch in kept.batches if batch.partition == 0 for value in batch.values]
    assert written == [b"first", b"waiting", b"after"]


# Topics


@pytest.mark.scenario(23, "M")
@pytest.mark.scenario(44, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_topic_errors_of_metadata(mock_cluster: MockCluster, topic_name: str, kind: str) -> None:
    """An error that passes is waited for; a denied topic is denied now, not for ever."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind, max_block_ms=300) as producer:
        mock_cluster.set_topic_error(topic_name, 5)
        with pytest.raises(MetadataTimeoutError, match="LEADER_NOT_AVAILABLE"):
            await producer.send(topic_name, b"not yet")
        mock_cluster.set_topic_error(topic_name, 29)
        with pytest.raises(TopicAuthorizationError) as caught:
            await producer.send(topic_name, b"denied")
        assert caught.value.topic == topic_name
        assert producer.outstanding_bytes == 0
        mock_cluster.set_topic_error(topic_name, 0)
        traffic = Traffic(producer, topic_name)
        await traffic.send(5)
        await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(23, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_send_waits_until_the_topic_has_its_leaders(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_topic_error(topic_name, 5)
    async with producer_of(mock_cluster, kind) as producer:
        mock_cluster.start_tracking()
        traffic = Traffic(producer, topic_name)
        sending = asyncio.create_task(traffic.send(5))
        while len(mock_cluster.requests(Api.METADATA)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not sending.done()
        mock_cluster.set_topic_error(topic_name, 0)
        await sending
        await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(23, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_auto_created_topics_are_used_with_all_their_partitions(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(200)
        await traffic.settle()

    assert traffic.errors() == []
    assert {told.partition for told in traffic.acked.values()} == {0, 1, 2, 3}
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(24, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_topic_is_a_typed_error_until_it_exists(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_topic_error(topic_name, 3)
    async with producer_of(mock_cluster, kind, max_block_ms=300) as producer:
        other = await producer.send(f"{topic_name}-other", b"other")
        with pytest.raises(MetadataTimeoutError, match="no such topic") as caught:
            await producer.send(topic_name, b"too early")
        assert (caught.value.topic, caught.value.waited >= 0.3) == (topic_name, True)
        assert (await other).offset == 0
        assert producer.outstanding_bytes == 0
        mock_cluster.set_topic_error(topic_name, 0)
        traffic = Traffic(producer, topic_name)
        await traffic.send(5)
        await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(25, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_is_deleted_and_made_again_while_sending(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """It is made again by the mock, as soon as metadata is asked for; with four partitions, as it had."""
    mock_cluster.set_api_version(Api.PRODUCE, 0, 9)
    mock_cluster.create_topic(topic_name, partitions=4)
    async with producer_of(mock_cluster, kind) as producer, Traffic(producer, topic_name) as traffic:
        await traffic.acknowledged(300)
        mock_cluster.delete_topic(topic_name)
        gone = traffic.sent
        await traffic.acknowledged(300)

    assert traffic.errors() == []
    verdict = await judge_kind(traffic, mock_cluster, topic_name, kind)
    # The old log is gone with what it had acknowledged, and with nothing else.
    assert verdict.lost
    assert max(verdict.lost) < gone
    verdict.lost.clear()
    assert verdict == Verdict()


@pytest.mark.scenario(26, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_partitions_are_added(mock_cluster: MockCluster, topic_name: str, kind: str) -> None:
    """The mock cannot add any: the topic is created again with more. Without topic ids that looks the same."""
    keys = [b"%d" % number for number in range(50)]
    mock_cluster.create_topic(topic_name, partitions=2)
    async with producer_of(mock_cluster, kind) as producer:
        before = {key: (await producer.send_and_wait(topic_name, b"", key)).partition for key in keys}
        assert set(before.values()) == {0, 1}
        with pytest.raises(PartitionOutOfRangeError) as caught:
            await producer.send(topic_name, b"too early", partition=6)
        assert caught.value.partition_count == 2

        mock_cluster.delete_topic(topic_name)
        mock_cluster.create_topic(topic_name, partitions=7)
        for partition in (0, 1):
            # It may have another leader now, and a send that is refused would ask for metadata.
            leader = producer._life.sender.metadata.leader_of(topic_name, partition)
            mock_cluster.set_leader(topic_name, partition, leader)
        unmoved = {key: (await producer.send_and_wait(topic_name, b"", key)).partition for key in keys}
        assert unmoved == before

        told = await producer.send_and_wait(topic_name, b"explicit", partition=6)
        assert (told.partition, told.offset) == (6, 0)
        after = {key: (await producer.send_and_wait(topic_name, b"", key)).partition for key in keys}

    assert set(after.values()) == set(range(7))
    kept = await kept_of(mock_cluster, topic_name)
    assert (kept.repeated, kept.refused) == ([], [])
    assert sum(len(batch.values) for batch in kept.batches) == 50 + 1 + 50
