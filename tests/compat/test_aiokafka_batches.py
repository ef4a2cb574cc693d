"""Batches that aiokafka's users fill themselves. A test runs on both, or says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka.errors import (
    IllegalStateError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    ProducerClosed,
    RecordListTooLargeError,
)

from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer
from aioproduce.testing import FakeCluster
from tests.compat.aiokafka_sides import SIDES, started

RECORDS: list[dict[str, Any]] = [
    {"timestamp": 1000, "key": None, "value": b""},
    {"timestamp": 1001, "key": b"key", "value": b"value"},
    {"timestamp": 999, "key": b"key", "value": None},
    {"timestamp": 2**40, "key": None, "value": b"x" * 300, "headers": [("name", b"x"), ("none", None)]},
    {"timestamp": 1500.7, "key": bytearray(b"key"), "value": memoryview(b"value")},
]


async def test_what_append_tells(cluster: FakeCluster) -> None:
    told: dict[str, Any] = {}
    for name, side in SIDES.items():
        producer = side(bootstrap_servers=cluster.bootstrap_servers)  # not started: a batch needs no broker
        batch = producer.create_batch()
        sizes: list[Any] = [(batch.size(), batch.record_count(), batch.closed())]
        for record in RECORDS:
            metadata = batch.append(**record)
            sizes.append((metadata.offset, metadata.crc, metadata.size, metadata.timestamp))
            sizes.append((batch.size(), batch.record_count(), batch.closed()))
        batch.close()
        sizes.append((batch.append(timestamp=None, key=None, value=b"x"), batch.closed()))
        told[name] = sizes
        await producer.stop()
    assert told["aioproduce"] == told["aiokafka"]


async def test_a_batch_is_in_the_log_as_it_was_filled(cluster: FakeCluster) -> None:
    for side in SIDES.values():
        async with started(side, cluster.bootstrap_servers) as producer:
            batch = producer.create_batch()
            for record in RECORDS:
                batch.append(**record)
            before = len(cluster.records("t", 1))
            metadata = await (await producer.send_batch(batch, "t", partition=1))
            assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 1, before)
            assert metadata.topic_partition == ("t", 1)
    written = cluster.records("t", 1)
    assert [record[2:] for record in written[:5]] == [record[2:] for record in written[5:]]
    assert [record.timestamp for record in written[:5]] == [1000, 1001, 999, 2**40, 1500]
    assert len(cluster.log("t", 1)) == 2


async def test_a_batch_is_full_at_its_size(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, max_batch_size=10_000) as producer:
        batch = producer.create_batch()
        while batch.append(key=b"test key", value=b"test value", timestamp=None) is not None:
            pass
        assert batch.closed()
        assert batch.size() <= 10_000 < batch.size() + 40
        count = batch.record_count()
        assert (await (await producer.send_batch(batch, "one", partition=0))).offset == 0
        assert len(cluster.records("one")) == count
        # The only record may be larger than the batch.
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"m" * 10_001, timestamp=None) is not None
        assert (await (await producer.send_batch(batch, "one", partition=0))).offset == count
        batch = producer.create_batch()
        batch.append(key=None, value=b"short", timestamp=None)
        assert batch.append(key=None, value=b"m" * 10_001, timestamp=None) is None
        assert batch.closed()


async def test_serializers_make_what_is_in_a_batch(side: Any, cluster: FakeCluster) -> None:
    def dump(value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    arguments = {"key_serializer": lambda key: key.upper().encode(), "value_serializer": dump}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        batch = producer.create_batch()
        batch.append(key="key1", value={"value": 111}, timestamp=None)
        batch.append(key="key2", value=None, timestamp=None)
        await (await producer.send_batch(batch, "one", partition=0))
    assert [record[3:5] for record in cluster.records("one")] == [
        (b"KEY1", b'{"value":111}'),
        (b"KEY2", b"null"),
    ]


@pytest.mark.parametrize("record", [{"key": "text", "value": b"x"}, {"key": None, "value": 7}], ids=str)
async def test_what_is_no_bytes_is_refused(side: Any, record: dict[str, Any]) -> None:
    producer = side()
    batch = producer.create_batch()
    with pytest.raises(TypeError):
        batch.append(timestamp=None, **record)
    assert (batch.record_count(), batch.closed()) == (0, False)
    await producer.stop()


async def test_an_empty_batch_is_nothing_to_send(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send_batch(producer.create_batch(), "one", partition=0)
        assert await future is None
    assert cluster.records("one") == []


async def test_a_partition_may_be_left_to_the_producer(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"x", timestamp=None)
        metadata = await (await producer.send_batch(batch, "t", partition=None))
    assert [record.partition for record in cluster.records("t")] == [metadata.partition]


@pytest.mark.parametrize(
    ("partition", "error"), [(9, AssertionError), (-1, AssertionError), ("0", TypeError)]
)
async def test_a_partition_that_is_not_there(
    side: Any, cluster: FakeCluster, partition: Any, error: type[Exception]
) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"x", timestamp=None)
        with pytest.raises(error):
            await producer.send_batch(batch, "t", partition=partition)
        # It can be sent all the same.
        assert (await (await producer.send_batch(batch, "t", partition=0))).offset == 0


async def test_a_batch_goes_behind_what_was_sent_before(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, linger_ms=50) as producer:
        first = await producer.send("one", b"1", partition=0)
        batch = producer.create_batch()
        batch.append(key=None, value=b"2", timestamp=None)
        batch.close()
        second = await producer.send_batch(batch, "one", partition=0)
        third = await producer.send("one", b"3", partition=0)
        assert [(await future).offset for future in (first, second, third)] == [0, 1, 2]
    assert [record.value for record in cluster.records("one")] == [b"1", b"2", b"3"]


async def test_a_batch_that_fails(side: Any, cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(18)  # RECORD_LIST_TOO_LARGE
    async with started(side, cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        for _ in range(3):
            batch.append(key=None, value=b"x", timestamp=None)
        with pytest.raises(RecordListTooLargeError):
            await (await producer.send_batch(batch, "one", partition=0))


async def test_the_records_of_a_batch_that_failed_are_not_told_of_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours alone: who asked for the batch's outcome has been told of all of them."""
    cluster.faults.fail_produce(18)
    async with started(OurProducer, cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        for _ in range(3):
            batch.append(key=None, value=b"x", timestamp=None)
        with pytest.raises(RecordListTooLargeError):
            await (await producer.send_batch(batch, "one", partition=0))
        del batch
        assert producer._sends.producer().unobserved_failures == 0
    assert [entry for entry in caplog.records if entry.name == "aioproduce"] == []


async def test_a_batch_is_sent_again_for_a_retriable_error(side: Any, cluster: FakeCluster) -> None:
    fault = cluster.faults.fail_produce(6, times=2)
    async with started(side, cluster.bootstrap_servers, retry_backoff_ms=10) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"x", timestamp=None)
        assert (await (await producer.send_batch(batch, "one", partition=0))).offset == 0
    assert fault.is_spent
    assert issubclass(NotLeaderForPartitionError, Exception)
    assert len(cluster.records("one")) == 1


async def test_after_the_stop_no_batch_is_sent(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.partitions_for("one")
        batch = producer.create_batch()
        batch.append(key=None, value=b"x", timestamp=None)
    with pytest.raises(ProducerClosed):
        await producer.send_batch(batch, "one", partition=0)


async def test_only_a_batch_is_sent_and_only_once(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka sends a batch as often as it is given, with the same records."""
    async with started(OurProducer, cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"x", timestamp=None)
        await (await producer.send_batch(batch, "one", partition=0))
        assert batch.append(key=None, value=b"late", timestamp=None) is None
        with pytest.raises(IllegalStateError):
            await producer.send_batch(batch, "one", partition=0)
        with pytest.raises(TypeError):
            await producer.send_batch(b"no batch", "one", partition=0)


async def test_a_record_that_no_request_can_hold_is_refused_at_once(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka leaves it to the broker."""
    producer = OurProducer(max_request_size=1000, max_batch_size=500)
    with pytest.raises(MessageSizeTooLargeError):
        producer.create_batch().append(key=None, value=b"x" * 2000, timestamp=None)
    await producer.stop()
