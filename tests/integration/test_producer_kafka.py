"""Our producer against one real broker: what it wrote is judged by Kafka's own consumer, dump and partitioner.

1. No expected value comes from our own decoder: records are read by ConsoleConsumer, batches by DumpLogSegments,
   partitions are chosen by the ConsoleProducer's (Java's) partitioner.
2. What is promised of the log (once, in order, at the reported offset) is asserted as a whole ``Verdict()``.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import BrokerRejectedError
from tests.integration.traffic import Traffic, Verdict
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from tests.kafka_tools import DumpedBatch, KafkaTools

pytestmark = pytest.mark.usefixtures("nothing_unhandled")

# name, compression.type, further settings
CODECS: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    *(("gzip", {"compression_gzip_level": level}) for level in (-1, 1, 9)),
    ("snappy", {}),
    *(("lz4", {"compression_lz4_level": level}) for level in (1, 9, 17)),
    *(("zstd", {"compression_zstd_level": level}) for level in (-5, 3, 22)),
]


KINDS: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "acks=all": {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
    "acks=1": {"enable_idempotence": False, "acks": "1", "max_in_flight_requests_per_connection": 1},
}


def producer_of(cluster: KafkaCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, **settings)


def dump_partitions(cluster: KafkaCluster, topic: str, partitions: int) -> list[list[DumpedBatch]]:
    """The batches of each partition, from one run of DumpLogSegments (whose start is most of its time)."""
    files = [
        file
        for partition in range(partitions)
        for file in sorted((cluster.nodes[1].data / f"{topic}-{partition}").glob("*.log"))
    ]
    assert len(files) == partitions, "a partition without, or with several segments"
    dumped: list[list[DumpedBatch]] = []
    for batch in cluster.tools.dump_log(files):
        if batch.base_offset == 0:
            dumped.append([])
        dumped[-1].append(batch)
    assert len(dumped) == partitions, "a partition is empty"
    return dumped


def assert_sequences_without_gaps(batches: list[DumpedBatch]) -> None:
    """One producer id, one epoch, valid checksums, and sequences from 0 that follow each other."""
    assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(batches[0].producer_id, 0)}
    assert batches[0].producer_id >= 0
    assert all(batch.is_valid for batch in batches)
    expected = 0
    for batch in batches:
        assert (batch.base_sequence, batch.last_sequence) == (expected, expected + batch.count - 1)
        expected += batch.count


# Records and batches


async def test_records_come_back_as_they_were_sent(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    headers = [("trace", b"\x00\xff"), ("none", None), ("empty", b""), ("trace", b"again"), ("ключ", b"1")]
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | datetime]] = [
        (b"key", b"value", [], 1_700_000_000_123),
        (None, b"no key", headers, 1_600_000_000_000),
        (b"tombstone", None, [], datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)),
        (None, None, [], 0),
        (b"", b"", [("only", b"")], 1_700_000_000_124),
        (b"k" * 300, b"line one\nline two\x00" * 5000, [], 1_500_000_000_000),
    ]

    async with producer_of(kafka1, linger_ms=100) as producer:
        deliveries = [
            await producer.send(topic_name, value, key, headers=given, timestamp=timestamp, partition=0)
            for key, value, given, timestamp in sent
        ]
        metadata = await asyncio.gather(*deliveries)

    read = kafka1.console_consume(topic_name)
    assert [(record.key, record.value, list(record.headers)) for record in read] == [
        (key, value, given) for key, value, given, _ in sent
    ]
    assert [record.timestamp for record in read] == [
        1_700_000_000_123,
        1_600_000_000_000,
        1_767_323_045_678,
        0,
        1_700_000_000_124,
        1_500_000_000_000,
    ]
    assert {record.timestamp_type for record in read} == {"CreateTime"}
    assert [(told.partition, told.offset, told.timestamp) for told in metadata] == [
        (record.partition, record.offset, record.timestamp) for record in read
    ]
    sizes = [(told.serialized_key_size, told.serialized_value_size) for told in metadata]
    dumped = [record for batch in kafka1.dump_log(topic_name, 0) for record in batch.records]
    assert sizes == [(record.key_size, record.value_size) for record in dumped]


async def test_every_codec_is_read_by_kafka(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=len(CODECS))
    source = random.Random(3)
    values = [
        b"%d %s" % (number, source.randbytes(source.randrange(60)).hex().encode()) for number in range(4000)
    ]

    for partition, (codec, settings) in enumerate(CODECS):
        async with producer_of(kafka1, compression_type=codec, linger_ms=50, **settings) as producer:
            metadata = await (await producer.send_many(topic_name, values, partition=partition))
        assert [told.offset for told in metadata] == list(range(len(values)))

    read: dict[int, list[bytes | None]] = {}
    for record in kafka1.console_consume(topic_name):
        read.setdefault(record.partition, []).append(record.value)
    assert read == dict.fromkeys(range(len(CODECS)), values)
    for (codec, _), batches in zip(CODECS, dump_partitions(kafka1, topic_name, len(CODECS)), strict=True):
        assert {batch.compression for batch in batches} == {codec}
        assert len(batches) > 1
        assert_sequences_without_gaps(batches)


async def test_append_time_of_the_log_is_what_the_metadata_tells(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    kafka1.create_topic(topic_name, configs={"message.timestamp.type": "LogAppendTime"})
    async with producer_of(kafka1) as producer:
        metadata = [await producer.send_and_wait(topic_name, b"%d" % n, timestamp=1) for n in range(3)]

    read = kafka1.console_consume(topic_name)

    assert {record.timestamp_type for record in read} == {"LogAppendTime"}
    assert [told.timestamp for told in metadata] == [record.timestamp for record in read]
    assert all(told.timestamp > 1_600_000_000_000 for told in metadata)


async def test_keys_go_to_the_partitions_of_javas_producer(
    kafka1: KafkaCluster, kafka_tools: KafkaTools, topic_name: str
) -> None:
    keys = ["a", "ключ", "k" * 200, "7", *(f"customer-{number}" for number in range(300))]
    ours = kafka1.create_topic(f"{topic_name}-ours", partitions=7)
    javas = kafka1.create_topic(f"{topic_name}-javas", partitions=7)

    async with producer_of(kafka1) as producer:
        deliveries = await producer.send_many(ours, (b"v" for _ in keys), (key.encode() for key in keys))
        chosen = {key.encode(): told.partition for key, told in zip(keys, await deliveries, strict=True)}
    command = kafka_tools.command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka1.bootstrap_servers, "--topic", javas),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
    )
    # The JVM would read its standard input in the platform's encoding, whatever that is here.
    command.insert(1, "-Dfile.encoding=UTF-8")
    lines = "".join(f"{key}|v\n" for key in keys).encode()
    await asyncio.to_thread(
        subprocess.run, command, input=lines, check=True, capture_output=True, timeout=120
    )

    assert {record.key: record.partition for record in kafka1.console_consume(ours)} == chosen
    assert {record.key: record.partition for record in kafka1.console_consume(javas)} == chosen
    assert set(chosen.values()) == set(range(7))


async def test_keyless_records_use_every_partition_in_whole_batches(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    kafka1.create_topic(topic_name, partitions=4)
    async with producer_of(kafka1, batch_size=2000, linger_ms=1000) as producer:
        traffic = Traffic(producer, topic_name, keys=0)
        await traffic.send(4000, size=40)
        await traffic.settle()

    assert traffic.errors() == []
    assert traffic.judge(kafka1.console_consume(topic_name)) == Verdict()
    batches = [batch for of_one in dump_partitions(kafka1, topic_name, 4) for batch in of_one]
    # 47 or 48 bytes each: a batch takes about 40. At most the last one of each partition is not full.
    assert sum(batch.count < 38 for batch in batches) <= 4


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_batches_carry_sequences_only_when_idempotent(
    kafka1: KafkaCluster, topic_name: str, is_idempotent: bool
) -> None:
    kafka1.create_topic(topic_name, partitions=3)
    async with producer_of(kafka1, batch_size=1000, enable_idempotence=is_idempotent) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(3000)
        await traffic.settle()

    assert traffic.errors() == []
    assert traffic.judge(kafka1.console_consume(topic_name)) == Verdict()
    for batches in dump_partitions(kafka1, topic_name, 3):
        assert len(batches) > 5
        assert all(batch.is_valid and batch.magic == 2 and not batch.is_transactional for batch in batches)
        if is_idempotent:
            assert_sequences_without_gaps(batches)
        else:
            assert {(b.producer_id, b.producer_epoch, b.base_sequence) for b in batches} == {(-1, -1, -1)}


@pytest.mark.parametrize(("acks", "is_offset_known"), [("0", False), ("1", True), ("all", True)])
async def test_acks(kafka1: KafkaCluster, topic_name: str, acks: str, is_offset_known: bool) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    async with producer_of(
        kafka1,
        acks=acks,
        enable_idempotence=acks == "all",
        batch_size=500,
        max_in_flight_requests_per_connection=1,
    ) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(1000)
        await traffic.settle()

    assert traffic.errors() == []
    assert {metadata.has_offset for metadata in traffic.acked.values()} == {is_offset_known}
    # Without acks the end offsets may lag: as many as were sent must come.
    verdict = traffic.judge(kafka1.console_consume(topic_name, max_messages=1000))
    assert verdict == Verdict(unplaced=[] if is_offset_known else list(range(1000)))


# What a broker refuses


@pytest.mark.scenario(41, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_batches_above_the_topics_limit_are_split(
    kafka1: KafkaCluster, topic_name: str, kind: str
) -> None:
    kafka1.create_topic(topic_name, partitions=2, configs={"max.message.bytes": "2000"})
    async with producer_of(kafka1, **KINDS[kind], batch_size=60_000, linger_ms=1000) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(2000, size=100)
        await traffic.settle()

    assert traffic.errors() == []
    assert traffic.judge(kafka1.console_consume(topic_name)) == Verdict()
    for batches in dump_partitions(kafka1, topic_name, 2):
        assert all(batch.size <= 2000 for batch in batches)
        if kind == "idempotent":
            assert_sequences_without_gaps(batches)


@pytest.mark.scenario(41, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_above_the_topics_limit_fails_alone(
    kafka1: KafkaCluster, topic_name: str, kind: str
) -> None:
    kafka1.create_topic(topic_name, configs={"max.message.bytes": "2000"})
    async with producer_of(kafka1, **KINDS[kind], batch_size=60_000, linger_ms=1000) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(40, size=100)
        await traffic.send(1, size=5000)
        await traffic.send(40, size=100)
        await traffic.settle()

        (error,) = traffic.failed.values()
        assert isinstance(error, BrokerRejectedError)
        assert (error.name, error.possibly_written, error.retriable) == ("MESSAGE_TOO_LARGE", False, False)
        assert list(traffic.failed) == [40]
        await traffic.send(40, size=100)
        await traffic.settle()

    assert len(traffic.acked) == 120
    assert traffic.judge(kafka1.console_consume(topic_name)) == Verdict()


@pytest.mark.scenario(43, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_record_fails_with_its_index(
    kafka1: KafkaCluster, topic_name: str, kind: str
) -> None:
    """A compacted topic takes no record without key."""
    kafka1.create_topic(topic_name, configs={"cleanup.policy": "compact"})
    async with producer_of(kafka1, **KINDS[kind], linger_ms=1000) as producer:
        keys = [b"a", b"b", None, b"c", None]
        deliveries = await producer.send_many(topic_name, [b"1", b"2", b"3", b"4", b"5"], keys)
        await producer.flush()
        errors = [delivery.exception() for delivery in deliveries]
        after = await producer.send_and_wait(topic_name, b"6", b"d")

    assert all(isinstance(error, BrokerRejectedError) for error in errors)
    rejections = [error for error in errors if isinstance(error, BrokerRejectedError)]
    assert {(error.name, error.possibly_written) for error in rejections} == {("INVALID_RECORD", False)}
    assert [error.record_index for error in rejections] == [None, None, 2, None, 4]
    # The ones that were not at fault may be sent again.
    assert [error.retriable for error in rejections] == [True, True, False, True, False]
    assert "key" in str(rejections[2])
    assert after.offset == 0
    assert [record.value for record in kafka1.console_consume(topic_name)] == [b"6"]


@pytest.mark.scenario(39, "K")
@pytest.mark.parametrize("kind", ["idempotent", "acks=1"])
async def test_a_throttled_connection_is_left_alone_until_the_time_is_over(
    kafka1: KafkaCluster, topic_name: str, kind: str
) -> None:
    """KIP-219: the broker answers at once and tells for how long it does not want to hear from this client."""
    kafka1.create_topic(topic_name)
    kafka1.tools.run(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", kafka1.bootstrap_servers, "--alter", "--entity-type", "clients"),
        *("--entity-name", topic_name, "--add-config", "producer_byte_rate=50000"),
    )
    async with producer_of(kafka1, **KINDS[kind], client_id=topic_name, batch_size=50_000) as producer:
        traffic = Traffic(producer, topic_name)
        # The quota spreads over a window of some ten seconds; this much is beyond it in any.
        await traffic.send(15, size=40_000)
        await traffic.settle()
        connection = producer._life.sender.connections.connection(1)
        assert connection is not None
        throttled_until = connection.throttled_until
        assert throttled_until > asyncio.get_running_loop().time()

        await traffic.send(1)
        await traffic.settle()

        assert asyncio.get_running_loop().time() >= throttled_until

    assert traffic.errors() == []
    assert traffic.judge(kafka1.console_consume(topic_name)) == Verdict()
