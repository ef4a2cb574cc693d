"""Our producer against librdkafka's mock cluster: versions, and what becomes of each error code.

What it wrote is read back by librdkafka's consumer. The mock says nothing about sequences, checksums, acks or
sizes (``tests/mock_cluster.py``); those are real Kafka's to judge. Leaders and topics are in
``test_producer_mock_metadata.py``, connections in ``test_producer_mock_connections.py``.

1. Which codes are retriable is Java's word (``tests/vectors/kafka-errors.tsv``), not that of our table.
2. The mock offers Metadata up to v8 only: it ends its answers from v9 on, the first flexible version, with a
   byte too many, which our reader refuses. Its answer to Produce v5 lacks the log's start offset.
3. The mock appends nothing when it answers with an injected error: a record that is delivered after one is in
   the log once, whatever the code says of it.
4. A gap between requests is only ever asserted to be long enough: a busy machine makes it longer.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from aioproduce.errors import (
    BrokerRejectedError,
    UnsupportedVersionError,
)
from tests.integration.mock_harness import (
    KINDS,
    javas_errors,
    judge,
    judge_kind,
    kept_of,
    producer_of,
    read_back,
)
from tests.integration.traffic import Traffic, Verdict
from tests.mock_cluster import LAST_SOUND_METADATA, Api, MockCluster

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

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


@pytest.mark.scenario(28, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_api_versions_is_asked_again_in_the_brokers_own_version(topic_name: str, kind: str) -> None:
    """Scenario 28: the mock knows ApiVersions up to v2, and answers v3 and later with error 35 in a v0 body."""
    with MockCluster(brokers=1) as cluster:
        cluster.create_topic(topic_name)
        cluster.set_api_version(Api.METADATA, 0, LAST_SOUND_METADATA)
        cluster.start_tracking()
        async with producer_of(cluster, kind) as producer:
            traffic = Traffic(producer, topic_name)
            await traffic.send(1)
            await traffic.settle()
        assert traffic.errors() == []
        assert await judge_kind(traffic, cluster, topic_name, kind) == Verdict()
        requests = [request.api_key for request in cluster.requests()]

    assert requests[:3] == [Api.API_VERSIONS, Api.API_VERSIONS, Api.METADATA]
    # One more connection, to the broker under its own id.
    assert requests.count(Api.PRODUCE) == 1
    assert requests[: requests.index(Api.PRODUCE)].count(Api.API_VERSIONS) == 4


async def test_a_broker_too_old_for_record_batches_is_named_with_its_versions(
    mock_cluster: MockCluster, topic_name: str
) -> None:
    mock_cluster.set_api_version(Api.PRODUCE, 0, 2)
    async with producer_of(mock_cluster) as producer:
        with pytest.raises(UnsupportedVersionError, match=r"0\.11") as caught:
            await producer.send(topic_name, b"v")

    assert caught.value.broker_versions == (0, 2)


@pytest.mark.scenario(28, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_versions_that_shrink_are_negotiated_by_the_next_connection(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """Scenario 28, after a downgrade of the brokers."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind) as producer:
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
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


# Error codes


@pytest.mark.scenario(19, "M")
@pytest.mark.scenario(35, "M")
@pytest.mark.scenario(37, "M")
@pytest.mark.scenario(40, "M")
@pytest.mark.scenario(42, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_every_code_that_java_retries_is_retried(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """Each code twice, and not one request more than that."""
    mock_cluster.create_topic(topic_name)
    assert {2, 3, 5, 6, 7, 14, 15, 16, 19, 20, 56} <= set(RETRIABLE)
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        for code in RETRIABLE:
            mock_cluster.push_errors(Api.PRODUCE, code, code)
            mock_cluster.start_tracking()
            await traffic.send(1)
            await traffic.settle()
            assert (code, len(mock_cluster.requests(Api.PRODUCE))) == (code, 3)
            assert (code, traffic.errors()) == (code, [])

    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(19, "M")
@pytest.mark.scenario(37, "M")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "refreshes"), [(6, 1), (3, 1), (5, 1), (56, 1), (74, 1), (19, 0), (20, 0), (7, 0), (2, 0)]
)
async def test_an_error_of_stale_metadata_asks_for_it_once(
    mock_cluster: MockCluster, topic_name: str, code: int, refreshes: int, kind: str
) -> None:
    """The codes with a refresh are Java's InvalidMetadataExceptions; KAFKA_STORAGE_ERROR (56) is one."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(1)
        await traffic.settle()
        for errors in (1, 3):
            mock_cluster.push_errors(Api.PRODUCE, *[code] * errors)
            mock_cluster.start_tracking()
            await traffic.send(5)
            await traffic.settle()
            assert len(mock_cluster.requests(Api.PRODUCE)) == 1 + errors
            # It backs off, so it may come after the retry; a single one may serve several refusals.
            while len(mock_cluster.requests(Api.METADATA)) < refreshes:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert len(mock_cluster.requests(Api.METADATA)) <= refreshes * errors

    assert traffic.errors() == []
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(19, "M")
@pytest.mark.scenario(35, "M")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [6, 19])
async def test_retries_back_off_exponentially(
    mock_cluster: MockCluster, topic_name: str, code: int, kind: str
) -> None:
    """KIP-580: 20, 40, 80, 80, ... ms, each between 80 % and 120 % of it and never above the maximum."""
    mock_cluster.create_topic(topic_name)
    # From v10 on the answer names a leader with an epoch, which the mock's metadata lacks: it looks like news each
    # time, and who knows a new leader need not wait (KIP-951).
    mock_cluster.set_api_version(Api.PRODUCE, 0, 9)
    async with producer_of(mock_cluster, kind, retry_backoff_ms=20, retry_backoff_max_ms=80) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(1)
        await traffic.settle()
        mock_cluster.push_errors(Api.PRODUCE, *[code] * 5)
        mock_cluster.start_tracking()
        await traffic.send(1)
        await traffic.settle()
        instants = [request.timestamp for request in mock_cluster.requests(Api.PRODUCE)]

    assert traffic.errors() == []
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert len(gaps) == 5
    # The answer's way, and the broker's thread, only add to it; a millisecond is the timer's.
    at_least = [0.016, 0.032, 0.064, 0.064, 0.064]
    assert all(gap >= least - 0.001 for gap, least in zip(gaps, at_least, strict=True)), gaps
    assert await judge(traffic, mock_cluster, topic_name) == Verdict()


@pytest.mark.scenario(35, "M")
@pytest.mark.scenario(37, "M")
@pytest.mark.scenario(40, "M")
@pytest.mark.scenario(42, "M")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "name", "ambiguous_for"),
    [
        (19, "NOT_ENOUGH_REPLICAS", []),
        (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", list(KINDS)),
        (7, "REQUEST_TIMED_OUT", list(KINDS)),
        (56, "KAFKA_STORAGE_ERROR", list(KINDS)),
        (2, "CORRUPT_MESSAGE", []),
        # A leader that waits for its followers and is deposed answers this after it has appended.
        (6, "NOT_LEADER_OR_FOLLOWER", ["acks=all", "idempotent"]),
    ],
)
async def test_without_retries_an_error_tells_whether_the_record_may_be_there(
    mock_cluster: MockCluster, topic_name: str, code: int, name: str, ambiguous_for: list[str], kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind, retries=0) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(5)
        await traffic.settle()
        mock_cluster.push_errors(Api.PRODUCE, code)
        await traffic.send(5)
        await traffic.settle()
        errors = list(traffic.failed.values())
        await traffic.send(5)
        await traffic.settle()

    assert len(errors) == len(traffic.failed) == 5
    for error in errors:
        assert isinstance(error, BrokerRejectedError)
        assert (error.name, error.retriable, error.attempts) == (name, True, 1)
        assert error.possibly_written is (kind in ambiguous_for)
    # Nothing of it was written: an idempotent producer closes the gap, and a broker would take the next ones.
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


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


@pytest.mark.scenario(46, "M")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "name"), [(-1, "UNKNOWN_SERVER_ERROR"), (999, "UNKNOWN_CODE_999"), (-2, "UNKNOWN_CODE_-2")]
)
async def test_a_code_that_says_nothing_is_ambiguous(
    mock_cluster: MockCluster, topic_name: str, code: int, name: str, kind: str
) -> None:
    """The record may be in the log, the name is kept, and nothing stalls: not the records behind it either."""
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        for _ in range(2):
            mock_cluster.push_errors(Api.PRODUCE, code)
            await traffic.send(1)
            await traffic.settle()
            await traffic.send(5)
            await traffic.settle()

    assert sorted(traffic.failed) == [0, 6]
    for error in traffic.failed.values():
        assert isinstance(error, BrokerRejectedError)
        assert (error.code, error.name, error.possibly_written) == (code, name, True)
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


@pytest.mark.scenario(41, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_message_too_large_splits_a_batch_and_fails_a_record(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind, linger_ms=100) as producer:
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
    # The parts share the sequences of the batch that was split, and a new epoch closes the gap of the failed one.
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


@pytest.mark.scenario(44, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_that_is_denied_when_written_is_written_when_granted(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    mock_cluster.create_topic(topic_name)
    async with producer_of(mock_cluster, kind) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(5)
        await traffic.settle()
        mock_cluster.push_errors(Api.PRODUCE, 29)
        await traffic.send(5)
        await traffic.settle()
        await traffic.send(5)
        await traffic.settle()

    assert sorted(traffic.failed) == [5, 6, 7, 8, 9]
    for error in traffic.failed.values():
        assert isinstance(error, BrokerRejectedError)
        assert error.name == "TOPIC_AUTHORIZATION_FAILED"
        assert (error.possibly_written, error.retriable, error.attempts) == (False, False, 1)
    assert await judge_kind(traffic, mock_cluster, topic_name, kind) == Verdict()


@pytest.mark.scenario(45, "M")
@pytest.mark.parametrize("kind", KINDS)
async def test_of_two_partitions_in_a_request_only_the_refused_one_is_sent_again(
    mock_cluster: MockCluster, topic_name: str, kind: str
) -> None:
    """One of them has another leader by now. The mock would append what is sent twice: it would be seen."""
    mock_cluster.create_topic(topic_name, partitions=2)
    for partition in (0, 1):
        mock_cluster.set_leader(topic_name, partition, 1)
    # Nothing goes before the flush: on a busy machine any shorter linger ends between two sends.
    async with producer_of(mock_cluster, kind, linger_ms=60_000) as producer:
        first = await producer.send(topic_name, b"", partition=0)
        await producer.flush()
        await first
        mock_cluster.set_leader(topic_name, 1, 2)
        mock_cluster.start_tracking()
        deliveries = [
            await producer.send(topic_name, b"%d %d" % (partition, number), partition=partition)
            for number in range(5)
            for partition in (0, 1)
        ]
        await producer.flush()
        told = await asyncio.gather(*deliveries)
        requests = [request.broker_id for request in mock_cluster.requests(Api.PRODUCE)]

    assert requests == [1, 2]
    assert [(metadata.partition, metadata.offset) for metadata in told] == [
        *((0, 1), (1, 0), (0, 2), (1, 1), (0, 3), (1, 2), (0, 4), (1, 3), (0, 5), (1, 4))
    ]
    kept = await kept_of(mock_cluster, topic_name)
    assert (kept.repeated, kept.refused) == ([], [])
    values = [value for batch in kept.batches for value in batch.values]
    assert values == [b"", *(b"%d %d" % (partition, number) for partition in (0, 1) for number in range(5))]


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
