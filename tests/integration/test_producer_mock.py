"""Our producer against librdkafka's mock cluster: versions, error codes, leaders and connections.

What it wrote is read back by librdkafka's consumer. The mock says nothing about sequences, checksums, acks or
sizes (``tests/mock_cluster.py``); those are real Kafka's to judge.

1. Which codes are retriable is Java's word (``tests/vectors/kafka-errors.tsv``), not that of our table.
2. The mock offers Metadata up to v8 only: it ends its answers from v9 on, the first flexible version, with a
   byte too many, which our reader refuses. Its answer to Produce v5 lacks the log's start offset.
3. The mock appends nothing when it answers with an injected error: a record that is delivered after one is in
   the log once, whatever the code says of it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from aioproduce import Producer
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
    DisconnectedError,
    MetadataTimeoutError,
    NoBrokerAvailableError,
    ProducerFatalError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from tests.integration.traffic import Traffic, Verdict
from tests.kafka_tools import ConsumedRecord
from tests.mock_cluster import DISCONNECT, NO_LEADER, Api, MockCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

ERRORS = Path(__file__).parent.parent / "vectors" / "kafka-errors.tsv"

# A bound for a hang of the consumer, not a budget.
PATIENCE = 60.0

QUICK: dict[str, Any] = {
    "linger_ms": 2,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


LAST_SOUND_METADATA = 8


@pytest.fixture
def mock_cluster(mock_cluster: MockCluster) -> MockCluster:
    """Three mock brokers whose metadata can be read (invariant 2)."""
    mock_cluster.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
    return mock_cluster


def javas_errors() -> Iterator[tuple[int, str, bool]]:
    """Code, name and whether its exception is a RetriableException, of each of Kafka's errors."""
    for line in ERRORS.read_text().splitlines():
        code, name, is_retriable, _ = line.split("\t")
        yield int(code), name, is_retriable == "true"


RETRIABLE = [code for code, _, is_retriable in javas_errors() if is_retriable]

# What the idempotent protocol decides on, what is no failure, and what a batch of several is split for.
DECIDED_ELSEWHERE = {
    "NONE",
    "UNKNOWN_SERVER_ERROR",
    "MESSAGE_TOO_LARGE",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DUPLICATE_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
    "CLUSTER_AUTHORIZATION_FAILED",
}
FINAL = [
    (code, name)
    for code, name, is_retriable in javas_errors()
    if not is_retriable and name not in DECIDED_ELSEWHERE
]


def read_back(cluster: MockCluster, topic: str) -> list[ConsumedRecord]:
    """Read every record that the topic holds now, with librdkafka's consumer."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "judge", "log_level": 0})
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        places = [TopicPartition(topic, partition, 0) for partition in known]
        ends = [consumer.get_watermark_offsets(place, PATIENCE)[1] for place in places]
        consumer.assign(places)
        records: list[ConsumedRecord] = []
        while len(records) < sum(ends):
            message = consumer.poll(PATIENCE)
            assert message is not None, f"read {len(records)} of {sum(ends)} records"
            assert message.error() is None, message.error()
            records.append(consumed(message))
        return records
    finally:
        consumer.close()


def consumed(message: Any) -> ConsumedRecord:
    kind, timestamp = message.timestamp()
    return ConsumedRecord(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=timestamp,
        timestamp_type={1: "CreateTime", 2: "LogAppendTime"}[kind],
        headers=tuple(message.headers() or ()),
        key=message.key(),
        value=message.value(),
    )


async def judge(traffic: Traffic, cluster: MockCluster, topic: str) -> Verdict:
    return traffic.judge(await asyncio.to_thread(read_back, cluster, topic))


def producer_of(cluster: MockCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, **QUICK | settings)


# Encoding and versions


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_reads_every_codec(mock_cluster: MockCluster, topic_name: str, codec: str) -> None:
    mock_cluster.create_topic(topic_name)
    headers = [("trace", b"\x00\xff"), ("none", None), ("empty", b""), ("trace", b"again")]
    async with producer_of(mock_cluster, compression_type=codec, linger_ms=100) as producer:
        deliveries = [
            await producer.send(
                topic_name, b"value " * 200, b"key", headers=headers, timestamp=1_700_000_000_123
            ),
            await producer.send(topic_name, None, b"tombstone", timestamp=1_700_000_000_122),
            await producer.send(topic_name, b"", timestamp=1_700_000_000_124),
        ]
        metadata = await asyncio.gather(*deliveries)

    assert [told.offset for told in metadata] == [0, 1, 2]
    first, second, third = await asyncio.to_thread(read_back, mock_cluster, topic_name)
    assert (first.key, first.value, first.headers) == (b"key", b"value " * 200, tuple(headers))
    assert (second.key, second.value, second.headers) == (b"tombstone", None, ())
    assert (third.key, third.value, third.headers) == (None, b"", ())
    assert [record.timestamp - 1_700_000_000_000 for record in (first, second, third)] == [123, 122, 124]


@pytest.mark.parametrize(
    ("produce", "metadata", "init_producer_id"),
    [(3, 1, 0), (4, 2, 0), (6, 3, 1), (6, 5, 1), (7, 6, 2), (8, 7, 3), (9, 8, 4), (10, 8, 4)],
)
async def test_every_version_that_an_older_broker_may_offer(
    mock_cluster: MockCluster, topic_name: str, produce: int, metadata: int, init_producer_id: int
) -> None:
    mock_cluster.create_topic(topic_name, partitions=4)
    mock_cluster.set_api_version(Api.PRODUCE, 0, produce)
    mock_cluster.set_api_version(Api.METADATA, 0, metadata)
    mock_cluster.set_api_version(Api.INIT_PRODUCER_ID, 0, init_producer_id)
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(400)
        await traffic.settle()

    assert traffic.errors() == []
    assert len({told.partition for told in traffic.acked.values()}) == 4
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_api_versions_is_asked_again_in_the_brokers_own_version(topic_name: str) -> None:
    """Scenario 28: the mock knows ApiVersions up to v2, and answers v3 and later with error 35 in a v0 body."""
    with MockCluster(brokers=1) as cluster:
        cluster.create_topic(topic_name)
        cluster.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
        cluster.start_tracking()
        async with producer_of(cluster) as producer:
            await producer.send_and_wait(topic_name, b"v")
        requests = [request.api_key for request in cluster.requests()]

    assert requests[:3] == [Api.API_VERSIONS, Api.API_VERSIONS, Api.METADATA]
    # One more connection, to the broker under its own id.
    assert requests.count(Api.API_VERSIONS) == 4
    assert requests.count(Api.PRODUCE) == 1


async def test_a_broker_too_old_for_record_batches_is_named_with_its_versions(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    mock_cluster.set_api_version(Api.PRODUCE, 0, 2)
    async with producer_of(mock_cluster) as producer:
        with pytest.raises(UnsupportedVersionError, match=r"0\.11") as caught:
            await producer.send(topic_name, b"v")

    assert caught.value.broker_versions == (0, 2)


async def test_versions_that_shrink_are_negotiated_by_the_next_connection(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """Scenario 28, after a downgrade of the brokers."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(1)
        await traffic.settle()
        mock_cluster.set_api_version(Api.PRODUCE, 0, 4)
        mock_cluster.set_api_version(Api.METADATA, 0, 4)
        mock_cluster.set_down()
        mock_cluster.set_up()
        await traffic.send(100)
        await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


# Error codes


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_every_code_that_java_retries_is_retried(
    mock_cluster: MockCluster, topic_name: str, is_idempotent: bool
) -> None:
    """Scenarios 19, 37, 40 and 42."""
    mock_cluster.create_topic(topic_name)
    assert {3, 5, 6, 7, 14, 15, 16, 19, 20, 56} <= set(RETRIABLE)
    async with producer_of(mock_cluster, enable_idempotence=is_idempotent) as producer:
        traffic = Traffic(producer, topic_name)
        for code in RETRIABLE:
            mock_cluster.push_errors(Api.PRODUCE, code, code)
            mock_cluster.start_tracking()
            await traffic.send(1)
            await traffic.settle()
            assert (code, len(mock_cluster.requests(Api.PRODUCE))) == (code, 3)
            assert (code, traffic.errors()) == (code, [])

    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_every_other_code_fails_typed_and_the_producer_goes_on(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        for place, (code, name) in enumerate(FINAL):
            mock_cluster.push_errors(Api.PRODUCE, code)
            delivery = await producer.send(topic_name, name.encode())
            with pytest.raises(BrokerRejectedError) as caught:
                await delivery
            error = caught.value
            assert (error.code, error.name, error.possibly_written, error.attempts, error.retriable) == (
                *(code, name, False),
                *(1, False),
            )
            assert (await producer.send_and_wait(topic_name, b"after " + name.encode())).offset == place

    read = await asyncio.to_thread(read_back, mock_cluster, topic_name)
    assert [record.value for record in read] == [b"after " + name.encode() for _, name in FINAL]


@pytest.mark.parametrize(
    ("code", "name"), [(-1, "UNKNOWN_SERVER_ERROR"), (999, "UNKNOWN_CODE_999"), (-2, "UNKNOWN_CODE_-2")]
)
async def test_a_code_that_says_nothing_is_ambiguous(
    mock_cluster: MockCluster, topic_name: str, code: int, name: str
) -> None:
    """Scenario 46: the record may be in the log, the name is kept, and nothing stalls."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        mock_cluster.push_errors(Api.PRODUCE, code)
        delivery = await producer.send(topic_name, b"refused")
        with pytest.raises(BrokerRejectedError) as caught:
            await delivery
        assert (caught.value.code, caught.value.name, caught.value.possibly_written) == (code, name, True)
        assert (await producer.send_and_wait(topic_name, b"after")).offset == 0


@pytest.mark.parametrize("code", [45, 59])
async def test_a_producer_that_the_broker_lost_track_of_starts_anew(
    mock_cluster: MockCluster, topic_name: str, code: int
) -> None:
    """Scenarios 49 and 50: OUT_OF_ORDER_SEQUENCE_NUMBER on the first batch, UNKNOWN_PRODUCER_ID."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        for _ in range(3):
            mock_cluster.push_errors(Api.PRODUCE, code)
            await traffic.send(5)
            await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_a_repetition_that_the_broker_recognizes_is_a_success_of_unknown_offset(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """Scenario 48."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster) as producer:
        mock_cluster.push_errors(Api.PRODUCE, 46)
        first = await producer.send_and_wait(topic_name, b"first")
        second = await producer.send_and_wait(topic_name, b"second")

    assert not first.has_offset
    assert second.offset == 0


async def test_message_too_large_splits_a_batch_and_fails_a_record(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """Scenario 41."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, linger_ms=100) as producer:
        traffic = Traffic(producer, topic_name)
        mock_cluster.push_errors(Api.PRODUCE, 10, 10, 0, 0)
        await traffic.send(40)
        await traffic.settle()
        mock_cluster.push_errors(Api.PRODUCE, 10)
        await traffic.send(1)
        await traffic.settle()
        await traffic.send(1)
        await traffic.settle()

    (error,) = traffic.failed.values()
    assert isinstance(error, BrokerRejectedError)
    assert (error.name, error.possibly_written, list(traffic.failed)) == ("MESSAGE_TOO_LARGE", False, [40])
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_retries_end(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.push_errors(Api.PRODUCE, *[19] * 3)
    async with producer_of(mock_cluster, retries=2) as producer:
        delivery = await producer.send(topic_name, b"refused")
        with pytest.raises(BrokerRejectedError) as caught:
            await delivery
        error = caught.value
        assert (error.name, error.attempts, error.possibly_written, error.retriable) == (
            *("NOT_ENOUGH_REPLICAS", 3),
            *(False, True),
        )
        assert (await producer.send_and_wait(topic_name, b"after")).offset == 0


@pytest.mark.parametrize("code", [14, 15, 16, 51, 7, DISCONNECT])
async def test_init_producer_id_is_retried(mock_cluster: MockCluster, topic_name: str, code: int) -> None:
    """Scenario 54: the coordinator is loading, not available, elsewhere, or busy; no answer comes."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.start_tracking()
    mock_cluster.push_errors(Api.INIT_PRODUCER_ID, code, code, code)
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(10)
        await traffic.settle()
        requests = mock_cluster.requests(Api.INIT_PRODUCER_ID)

    assert traffic.errors() == []
    assert len(requests) == 4
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_a_denied_producer_id_is_fatal_for_what_waits_for_it(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """Scenario 54: CLUSTER_AUTHORIZATION_FAILED; the right may be granted later."""
    mock_cluster.create_topic(topic_name)
    # It is asked for before there is a record, and again, backing off: often enough to be denied with one.
    mock_cluster.push_errors(Api.INIT_PRODUCER_ID, *[31] * 1000)
    async with producer_of(mock_cluster) as producer:
        delivery = await producer.send(topic_name, b"denied")
        with pytest.raises(ProducerFatalError, match="IdempotentWrite") as caught:
            await delivery
        assert (caught.value.name, caught.value.possibly_written) == ("CLUSTER_AUTHORIZATION_FAILED", False)
        mock_cluster.clear_errors(Api.INIT_PRODUCER_ID)
        assert (await producer.send_and_wait(topic_name, b"granted")).offset == 0


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_lost_connections_are_made_again(
    mock_cluster: MockCluster, topic_name: str, is_idempotent: bool
) -> None:
    """Scenario 3: the broker closes the connection instead of answering."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, enable_idempotence=is_idempotent) as producer:
        traffic = Traffic(producer, topic_name)
        for _ in range(5):
            mock_cluster.push_errors(Api.PRODUCE, DISCONNECT, DISCONNECT)
            await traffic.send(5)
            await traffic.settle()

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_a_lost_connection_without_retries_is_ambiguous(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.push_errors(Api.PRODUCE, DISCONNECT)
    async with producer_of(mock_cluster, retries=0) as producer:
        delivery = await producer.send(topic_name, b"lost")
        with pytest.raises(DisconnectedError) as caught:
            await delivery
        assert (caught.value.possibly_written, caught.value.attempts) == (True, 1)
        assert (await producer.send_and_wait(topic_name, b"after")).offset == 0


# Metadata and leaders


@pytest.mark.parametrize("in_flight", [1, 5])
async def test_leaders_move_while_sending(mock_cluster: MockCluster, topic_name: str, in_flight: int) -> None:
    """Scenarios 19 and 20: with one request in flight, and with five, which meet the move."""
    mock_cluster.create_topic(topic_name, partitions=3, replication=3)
    mock_cluster.set_round_trip(0.01)
    async with (
        producer_of(
            mock_cluster, batch_size=300, max_in_flight_requests_per_connection=in_flight
        ) as producer,
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


async def test_a_partition_without_leader_waits_for_one(mock_cluster: MockCluster, topic_name: str) -> None:
    """Scenario 22: it does not hold up other partitions; without leader for ever its records fail in time."""
    mock_cluster.set_api_version(Api.PRODUCE, 0, 9)
    mock_cluster.set_api_version(Api.FETCH, 0, 11)
    mock_cluster.create_topic(topic_name, partitions=2)
    async with producer_of(mock_cluster, delivery_timeout_ms=2000, request_timeout_ms=1000) as producer:
        mock_cluster.set_leader(topic_name, 0, NO_LEADER)
        doomed = await producer.send(topic_name, b"doomed", partition=0)
        other = await producer.send_and_wait(topic_name, b"other", partition=1)
        assert other.offset == 0
        with pytest.raises(DeliveryTimeoutError, match="no known leader") as caught:
            await doomed
        assert (caught.value.possibly_written, caught.value.attempts) == (False, 0)

        waiting = await producer.send(topic_name, b"waiting", partition=0)
        await producer.send_and_wait(topic_name, b"other", partition=1)
        mock_cluster.set_leader(topic_name, 0, 2)
        assert (await waiting).offset == 0


async def test_topic_errors_of_metadata(mock_cluster: MockCluster, topic_name: str) -> None:
    """Scenarios 23 and 44: an error that passes is waited for; a denied topic is denied now, not for ever."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, max_block_ms=500) as producer:
        mock_cluster.set_topic_error(topic_name, 5)
        with pytest.raises(MetadataTimeoutError, match="LEADER_NOT_AVAILABLE"):
            await producer.send(topic_name, b"not yet")
        mock_cluster.set_topic_error(topic_name, 29)
        with pytest.raises(TopicAuthorizationError) as caught:
            await producer.send(topic_name, b"denied")
        assert caught.value.topic == topic_name
        mock_cluster.set_topic_error(topic_name, 0)
        assert (await producer.send_and_wait(topic_name, b"granted")).offset == 0


async def test_a_send_waits_until_the_topic_has_its_leaders(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """Scenario 23."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_topic_error(topic_name, 5)
    async with producer_of(mock_cluster) as producer:
        mock_cluster.start_tracking()
        sending = asyncio.create_task(producer.send_and_wait(topic_name, b"v"))
        while len(mock_cluster.requests(Api.METADATA)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        mock_cluster.set_topic_error(topic_name, 0)
        assert (await sending).offset == 0


async def test_auto_created_topics_are_used_with_all_their_partitions(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(200)
        await traffic.settle()

    assert traffic.errors() == []
    assert {told.partition for told in traffic.acked.values()} == {0, 1, 2, 3}
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


# Brokers and connections


async def test_brokers_go_down_and_up_while_sending(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name, partitions=3)
    async with (
        producer_of(mock_cluster, batch_size=300) as producer,
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
    verdict = await judge(traffic, mock_cluster, topic_name)
    # The mock does not recognize the repetition of a batch whose answer was lost: real Kafka judges that.
    verdict.duplicated.clear()
    verdict.disordered.clear()
    assert verdict == Verdict()


async def test_no_broker_at_the_start_and_later_one(mock_cluster: MockCluster, topic_name: str) -> None:
    """Scenario 1."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_down()
    async with producer_of(mock_cluster) as producer:
        with pytest.raises(NoBrokerAvailableError) as unreachable:
            await producer.check(0.3)
        assert set(unreachable.value.causes) == set(mock_cluster.bootstrap_servers.split(","))
        with pytest.raises(MetadataTimeoutError) as caught:
            await producer.send(topic_name, b"too early", timeout=0.3)
        assert isinstance(caught.value.__cause__, NoBrokerAvailableError)

        sending = asyncio.create_task(producer.send_and_wait(topic_name, b"in time"))
        mock_cluster.set_up()
        assert (await sending).offset == 0
        assert set((await producer.check()).brokers) == {1, 2, 3}


async def test_round_trips_overlap_and_keep_the_order(mock_cluster: MockCluster, topic_name: str) -> None:
    """Scenario 12: five requests are in flight on the one connection, and never more."""
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


async def test_answers_later_than_the_request_timeout_are_never_taken(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    """Scenario 7: the old connection is closed, and its late answers with it."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 2)
    async with producer_of(mock_cluster, request_timeout_ms=300) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(1)
        await traffic.settle()
        # Appended, and answered when nobody listens any more.
        mock_cluster.push_delayed_errors(2, Api.PRODUCE, [(0, 1.0)])
        await traffic.send(1)
        await traffic.settle()
        await traffic.send(5)
        await traffic.settle()

    assert traffic.errors() == []
    verdict = await judge(traffic, mock_cluster, topic_name)
    # The repetition is the mock's to recognize, which it does not: that record is there twice.
    assert verdict == Verdict(duplicated=[1])


async def test_a_broker_moves_to_another_address(mock_cluster: MockCluster, topic_name: str) -> None:
    """Scenario 16: what metadata says next is believed, and the connection is made anew."""
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 3)
    port = int(mock_cluster.bootstrap_servers.split(",")[2].rpartition(":")[2])
    async with producer_of(mock_cluster) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(10)
        await traffic.settle()
        mock_cluster.set_advertised_address(3, "localhost", port)
        # An error that asks for metadata anew.
        mock_cluster.push_errors(Api.PRODUCE, 6)
        await traffic.send(10)
        await traffic.settle()
        await traffic.send(10)
        await traffic.settle()
        connection = producer._life.sender.connections.connection(3)
        assert connection is not None
        assert (connection.host, connection.port) == ("localhost", port)

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


async def test_all_brokers_are_replaced(topic_name: str) -> None:
    """Scenario 27 (KIP-899): nobody of the cluster that was known is left, and bootstrap.servers knows another."""
    with MockCluster(brokers=2) as later:
        later.create_topic(topic_name, partitions=4)
        later.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
        with MockCluster(brokers=1) as first:
            first.create_topic(topic_name, partitions=4)
            first.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
            later.set_down()
            servers = f"{first.bootstrap_servers},{later.bootstrap_servers}"
            producer = Producer(servers, **QUICK)
            await producer.start()
            before = Traffic(producer, topic_name, name="before")
            await before.send(100)
            await before.settle()
            assert await judge(before, first, topic_name) == Verdict()
            first.set_down()
            later.set_up()
            after = Traffic(producer, topic_name, name="after")
            await after.send(100)
            await after.settle()
            await producer.close()

        assert (before.errors(), after.errors()) == ([], [])
        assert await judge(after, later, topic_name) == Verdict()


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
