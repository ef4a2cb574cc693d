"""What `send()` puts into the log: read back by aiokafka's consumer, on asyncio and uvloop.

Scenarios of Kafka's own tests: KafkaProducerTest `headers`, `constructorWithSerializers`, `noSerializerProvided`;
BaseProducerSend `sendOffset`, `sendToPartition`, `sendBeforeAndAfterPartitionExpansion`, `create/append-time`;
PlaintextProducerSend `batchSizeZero` with and without keys, `autoCreateTopic`; ProducerCompression.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner

from aioproduce import Producer, ProducerRecord, RecordMetadata
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import fake_cluster, gather, sleep, within
from tests.drivers.producing import FOREVER_MS, PATIENCE, let_the_sender_rest, read_back, until, values

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
async def test_a_foreign_client_reads_every_codec(cluster: FakeCluster, codec: Any, idempotent: bool) -> None:
    async with Producer(
        cluster.bootstrap_servers, compression_type=codec, enable_idempotence=idempotent
    ) as producer:
        deliveries = [
            await producer.send(
                "t", b"value %d" % n * 20, key=b"%d" % n, headers=[("n", b"%d" % n)], timestamp=1000 + n
            )
            for n in range(300)
        ]
        acknowledged = await gather(*deliveries)

    found = {(record.partition, record.offset): record for record in await read_back(cluster, "t", 300)}
    assert len(found) == 300
    for n, metadata in enumerate(acknowledged):
        record = found[metadata.partition, metadata.offset]
        assert (record.value, record.key) == (b"value %d" % n * 20, b"%d" % n)
        assert list(record.headers) == [("n", b"%d" % n)]
        assert record.timestamp == metadata.timestamp == 1000 + n
        assert metadata.serialized_key_size == len(record.key)
        assert metadata.serialized_value_size == len(record.value)


@pytest.mark.parametrize("acks", ["all", "-1", "1", 1, -1])
async def test_offsets_count_from_nothing(cluster: FakeCluster, acks: Any) -> None:
    async with Producer(cluster.bootstrap_servers, acks=acks) as producer:
        deliveries = [await producer.send("one", b"%d" % n) for n in range(100)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))
    assert values(cluster, "one") == [b"%d" % n for n in range(100)]


async def test_acks_0_knows_no_offset(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, acks=0) as producer:
        metadata = await gather(*[await producer.send("one", b"%d" % n) for n in range(100)])
        assert {each.offset for each in metadata} == {-1}
        assert not any(each.has_offset for each in metadata)
        assert {each.topic_partition for each in metadata} == {("one", 0)}
        await until(lambda: len(cluster.records("one")) == 100)
    assert values(cluster, "one") == [b"%d" % n for n in range(100)]


async def test_null_and_empty_keys_values_and_headers(cluster: FakeCluster) -> None:
    shapes: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (None, None, []),
        (b"", b"", [("", b"")]),
        (b"k", None, [("null", None), ("empty", b"")]),
        (None, b"v", [("twice", b"1"), ("twice", b"2"), ("ключ", b"\x00\xff")]),
    ]
    async with Producer(cluster.bootstrap_servers) as producer:
        for key, value, headers in shapes:
            metadata = await producer.send_and_wait("one", value, key=key, headers=headers)
            assert metadata.serialized_key_size == (-1 if key is None else len(key))
            assert metadata.serialized_value_size == (-1 if value is None else len(value))
    found = await read_back(cluster, "one", len(shapes))
    assert [(record.key, record.value, list(record.headers)) for record in found] == shapes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_bytes_of_every_kind_are_copied_on_acceptance(
    cluster: FakeCluster, kind: type[bytes | bytearray | memoryview]
) -> None:
    source = bytearray(b"before")
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        delivery = await producer.send("one", kind(source), key=kind(source), headers=[("h", bytes(source))])
        source[:] = b"after!"
        await producer.flush()
        await delivery
    [record] = cluster.records("one")
    assert (record.key, record.value, record.headers) == (b"before", b"before", (("h", b"before"),))


async def test_headers_are_read_once_and_may_be_any_iterable(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        pairs: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
        for headers in (pairs, tuple(pairs), iter(pairs), dict(pairs).items()):
            await producer.send_and_wait("one", b"v", headers=headers)
        pairs.append(("late", b"2"))
    assert [record.headers for record in cluster.records("one")] == [(("a", b"1"), ("b", None))] * 4


# Records as objects


async def test_a_whole_record_is_sent_as_its_parts_are(cluster: FakeCluster) -> None:
    record = ProducerRecord(topic="t", value=b"v", key=b"k", partition=2, timestamp=77, headers=[("h", b"1")])
    async with Producer(cluster.bootstrap_servers) as producer:
        first = await producer.send_and_wait(record)
        second = await (await producer.send(record))
        third = await producer.try_send(record)
    assert [first, second, third] == [RecordMetadata("t", 2, offset, 77, 1, 1) for offset in range(3)]
    assert [each[3:] for each in cluster.records("t", 2)] == [(b"k", b"v", (("h", b"1"),))] * 3


async def test_try_send_has_room_for_the_first_record_of_each_partition(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        deliveries = [producer.try_send("t", b"v", partition=partition) for partition in range(3)]
        assert [(await delivery).partition for delivery in deliveries] == [0, 1, 2]


@pytest.mark.parametrize(
    "more",
    [{"value": b"v"}, {"key": b"k"}, {"partition": 0}, {"timestamp": 1}, {"headers": []}],
    ids=lambda more: next(iter(more)),
)
async def test_a_whole_record_takes_nothing_beside_it(cluster: FakeCluster, more: dict[str, Any]) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="into the record"):
            await producer.send(ProducerRecord(topic="t"), **more)
        with pytest.raises(TypeError, match="into the record"):
            producer.try_send(ProducerRecord(topic="t"), **more)
        assert producer.outstanding_bytes == 0


async def test_serializers(cluster: FakeCluster) -> None:
    async with Producer[Any, Any](
        cluster.bootstrap_servers,
        key_serializer=lambda key: b"key %d" % key,
        value_serializer=lambda value: None if value == "nothing" else value.encode(),
    ) as producer:
        await producer.send_and_wait("one", "text", key=1)
        await producer.send_and_wait(ProducerRecord(topic="one", value="nothing", key=2))
        await producer.send_and_wait("one", None, key=None)
    assert [record[3:5] for record in cluster.records("one")] == [
        (b"key 1", b"text"),
        (b"key 2", None),
        (None, None),
    ]


# Partitions


async def test_a_partition_that_is_asked_for_wins_over_the_key(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for partition in (2, 0, 1, 2):
            metadata = await producer.send_and_wait("t", b"v", key=b"same", partition=partition)
            assert metadata.partition == partition
    assert [len(cluster.records("t", partition)) for partition in range(3)] == [1, 1, 2]


async def test_keyed_records_are_in_order_where_another_clients_murmur2_puts_them(
    cluster: FakeCluster,
) -> None:
    cluster.create_topic("wide", 17)
    keys = [b"", b"\x00", b"key", *(b"key-%d" % n for n in range(60)), "ключ".encode()]
    async with Producer(cluster.bootstrap_servers, batch_size=500) as producer:
        for turn in range(20):
            for key in keys:
                await producer.send("wide", b"%d" % turn, key=key)
    partitions, turns = DefaultPartitioner(), defaultdict[bytes, list[int]](list)
    for record in await read_back(cluster, "wide", 20 * len(keys)):
        assert record.partition == partitions(record.key, list(range(17)), list(range(17)))
        turns[record.key].append(int(record.value))
    assert turns == {key: list(range(20)) for key in keys}


RECORDS = 1_500
"""With 300 the sticky choice was made so rarely that one run in a thousand left a partition out."""


async def test_keyless_records_stick_to_a_partition_for_a_batch_and_reach_all(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, batch_size=1000) as producer:
        deliveries = [await producer.send("t", b"%04d" % n + b"x" * 96) for n in range(RECORDS)]
        metadata = await gather(*deliveries)
    assert {each.partition for each in metadata} == {0, 1, 2}
    switches = sum(a.partition != b.partition for a, b in pairwise(metadata))
    assert switches <= RECORDS * 110 / 1000, "a partition keeps the records of at least one batch"


async def test_keys_can_be_ignored(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, batch_size=1000, partitioner_ignore_keys=True) as producer:
        deliveries = [await producer.send("t", b"x" * 100, key=b"one key") for _ in range(RECORDS)]
        assert {(await delivery).partition for delivery in deliveries} == {0, 1, 2}


@pytest.mark.parametrize("key", [None, b"k"], ids=["keyless", "keyed"])
async def test_batch_size_0_sends_each_record_alone(cluster: FakeCluster, key: bytes | None) -> None:
    async with Producer(cluster.bootstrap_servers, batch_size=0) as producer:
        await gather(*[await producer.send("t", b"%d" % n, key=key) for n in range(30)])
    batches = [batch for partition in range(3) for batch in cluster.log("t", partition)]
    assert [batch.record_count for batch in batches] == [1] * 30
    assert sorted(values(cluster), key=lambda value: int(value or b"")) == [b"%d" % n for n in range(30)]


async def test_a_full_batch_goes_though_its_partition_is_left_for_an_open_one(cluster: FakeCluster) -> None:
    """Nothing else wakes the sender then: linger is far away, no batch is opened, and no answer is awaited."""
    async with Producer(
        cluster.bootstrap_servers,
        batch_size=1000,
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=2 * FOREVER_MS,
        metadata_max_age_ms=FOREVER_MS,
        connections_max_idle_ms=FOREVER_MS,
        socket_connection_setup_timeout_ms=FOREVER_MS,
        socket_connection_setup_timeout_max_ms=FOREVER_MS,
    ) as producer:
        for partition in range(3):
            await producer.send("t", b"connects to every leader", partition=partition)
        await producer.flush()
        for partition in range(3):
            await producer.send("t", b"opens a batch", partition=partition)
        previous = await producer.send("t", b"x" * 100)
        while True:
            await until(
                lambda: producer.outstanding_bytes == 3 * 1000
            )  # three open batches, nothing in flight
            await let_the_sender_rest()
            delivery = await producer.send("t", b"x" * 100)
            if delivery.partition != previous.partition:
                break
            previous = delivery
        async with within(PATIENCE):
            await previous


# Timestamps


@pytest.mark.parametrize(
    ("timestamp", "milliseconds"),
    [
        (0, 0),
        (1_234_567_890_123, 1_234_567_890_123),
        (datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC), 1999),
        (datetime(2001, 9, 9, 3, 46, 40, tzinfo=timezone(timedelta(hours=2))), 1_000_000_000_000),
    ],
    ids=str,
)
async def test_timestamps_are_kept(
    cluster: FakeCluster, timestamp: int | datetime, milliseconds: int
) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        assert (await producer.send_and_wait("one", b"v", timestamp=timestamp)).timestamp == milliseconds
        record = ProducerRecord(topic="one", timestamp=timestamp)
        assert (await producer.send_and_wait(record)).timestamp == milliseconds
    assert [record.timestamp for record in await read_back(cluster, "one", 2)] == [milliseconds] * 2


async def test_without_a_timestamp_it_is_the_time_of_send(cluster: FakeCluster) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    async with Producer(cluster.bootstrap_servers) as producer:
        metadata = await producer.send_and_wait("one", b"v")
        from_try_send = await producer.try_send("one", b"v")
    after = datetime.now(UTC) + timedelta(milliseconds=1)
    for each in (metadata, from_try_send):
        assert before <= datetime.fromtimestamp(each.timestamp / 1000, UTC) <= after
    assert [record.timestamp for record in cluster.records("one")] == [
        metadata.timestamp,
        from_try_send.timestamp,
    ]


async def test_log_append_time_is_reported_back(nothing_left: None) -> None:
    async with (
        fake_cluster(1, topics={"stamped": 1}, log_append_time_topics=["stamped"]) as cluster,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        metadata = await gather(*[await producer.send("stamped", b"v", timestamp=5 + n) for n in range(3)])
        [*found] = await read_back(cluster, "stamped", 3)
        assert [each.timestamp for each in metadata] == [record.timestamp for record in found]
        assert {record.timestamp_type for record in found} == {1}
        assert all(each.timestamp > 1_600_000_000_000 for each in metadata)


# Topics that come and grow


async def test_a_topic_is_created_by_sending_to_it(nothing_left: None) -> None:
    async with (
        fake_cluster(3, default_partitions=2, announce_created_topics_late=True) as cluster,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        metadata = await producer.send_and_wait("new", b"v")
        assert metadata.offset == 0
        assert values(cluster, "new") == [b"v"]
        assert len(await producer.partitions_for("new")) == 2


async def test_a_partition_that_came_later_can_be_sent_to(cluster: FakeCluster) -> None:
    """The producer knows one partition only: it must ask again before it refuses the second."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", b"v", partition=0)
        cluster.add_partitions("one", 3)
        assert (await producer.send_and_wait("one", b"v", partition=2)).partition == 2
        assert len(await producer.partitions_for("one")) == 3
        assert (await producer.send_and_wait("one", b"v", partition=1)).partition == 1
    assert [len(cluster.records("one", partition)) for partition in range(3)] == [1, 1, 1]


async def test_keys_spread_over_partitions_that_came_later(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        await producer.send_and_wait("one", b"v", key=b"k")
        cluster.add_partitions("one", 5)
        await producer.send_and_wait("one", b"v", partition=4)
        keys = [b"key-%d" % n for n in range(50)]
        metadata = await gather(*[await producer.send("one", b"v", key=key) for key in keys])
    partitioner = DefaultPartitioner()
    expected = [partitioner(key, list(range(5)), list(range(5))) for key in keys]
    assert [each.partition for each in metadata] == expected


async def test_many_records_in_one_request_per_broker(cluster: FakeCluster) -> None:
    """What was accepted in one go is sent as one batch per partition, not as a request per record."""
    cluster.configure_topic("one", check_records=True)
    async with Producer(cluster.bootstrap_servers, batch_size=1_000_000, linger_ms=FOREVER_MS) as producer:
        for n in range(1000):
            await producer.send("one", b"%d" % n)
        await producer.flush()
    assert cluster.requests.count(ApiKey.PRODUCE) == 1
    assert [batch.record_count for batch in cluster.log("one")] == [1000]


async def test_thousands_of_tasks_in_one_long_turn_go_the_short_way(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_way = Producer._send_slowly
    taken: list[object] = []

    def counted(self: Producer, *arguments: Any) -> Any:
        taken.append(arguments)
        return long_way(self, *arguments)

    monkeypatch.setattr(Producer, "_send_slowly", counted)
    async with Producer(cluster.bootstrap_servers, linger_ms=1000) as producer:
        await producer.partitions_for("one")
        await producer.send("one", b"opens the batch")
        await sleep(0)

        async def one(number: int) -> None:
            await producer.send("one", b"v")
            if number == 0:
                # The turn of the loop that all of these share is longer than the one that a task gets.
                until = time.monotonic() + 0.01
                while time.monotonic() < until:
                    pass

        taken.clear()
        await gather(*[one(number) for number in range(800)])
        assert len(taken) <= 800 / 16 + 2
        await producer.flush()
    assert len(values(cluster, "one")) == 801
