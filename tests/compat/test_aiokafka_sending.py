"""What `send()` of aiokafka's producer takes, refuses and gives. A test runs on both, or says why not."""

from __future__ import annotations

import asyncio
import json
import reprlib
from decimal import Decimal
from typing import Any

import pytest
from aiokafka.errors import (
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import RecordMetadata, TopicPartition

from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer
from aioproduce.testing import FakeCluster
from tests.compat.aiokafka_sides import SIDES, started

KEYS = [b"", b"a", b"customer-7", bytes(range(256)), *(b"key-%d" % number for number in range(50))]


async def test_a_record_is_where_its_metadata_says(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send("t", b"value", key=b"key", partition=2, timestamp_ms=1234)
        assert await future == RecordMetadata("t", 2, TopicPartition("t", 2), 0, 1234, 0, 0)
        metadata = await producer.send_and_wait("t", b"second", partition=2, timestamp_ms=1235)
        assert type(metadata) is RecordMetadata
        assert metadata == RecordMetadata("t", 2, TopicPartition("t", 2), 1, 1235, 0, 0)
    first, second = cluster.records("t")
    assert (first.partition, first.offset, first.timestamp) == (2, 0, 1234)
    assert (first.key, first.value, second.value) == (b"key", b"value", b"second")


async def test_everything_may_be_given_by_position(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"value", b"key", 1, 99, [("name", b"x"), ("none", None)])
    (record,) = cluster.records("t")
    assert record[1:] == (0, 99, b"key", b"value", (("name", b"x"), ("none", None)))
    assert record.partition == 1


@pytest.mark.parametrize("headers", [None, [], (), [("a", b"1"), ("a", b"2")], [("a", b"")]], ids=repr)
async def test_headers(side: Any, cluster: FakeCluster, headers: Any) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", b"value", headers=headers)
    assert cluster.records("one")[0].headers == tuple(headers or ())


@pytest.mark.parametrize(
    "value", [bytearray(b"abc"), memoryview(b"abc"), b"abc"], ids=["array", "view", "bytes"]
)
async def test_whatever_is_made_of_bytes(side: Any, cluster: FakeCluster, value: Any) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", value, key=value, partition=0)
    assert cluster.records("one")[0][3:5] == (b"abc", b"abc")


@pytest.mark.parametrize("timestamp", [1700000000123.9, Decimal("1700000000123.9"), 1700000000123], ids=repr)
async def test_a_timestamp_may_be_any_number(side: Any, cluster: FakeCluster, timestamp: Any) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        metadata = await producer.send_and_wait("one", b"value", timestamp_ms=timestamp)
    assert metadata.timestamp == cluster.records("one")[0].timestamp == 1700000000123


async def test_a_tombstone_needs_a_key(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", None, key=b"gone")
        await producer.send_and_wait("one", key=b"gone, too")
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(AssertionError, match="Need at least one: key or value"):
                await call("one")
    assert [record[3:5] for record in cluster.records("one")] == [(b"gone", None), (b"gone, too", None)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": "text"}, TypeError),
        ({"value": 7}, TypeError),
        ({"value": b"x", "key": "text"}, TypeError),
        ({"value": b"x", "timestamp_ms": "now"}, TypeError),
        ({"value": b"x", "partition": -1}, AssertionError),
        ({"value": b"x", "partition": 7}, AssertionError),
        ({"value": b"x", "partition": "0"}, TypeError),
        ({"value": b"x", "headers": 7}, TypeError),
        ({"value": b"x" * 2_000_000}, MessageSizeTooLargeError),
    ],
    ids=reprlib.repr,
)
async def test_a_record_that_can_never_be_sent(
    side: Any, cluster: FakeCluster, arguments: dict[str, Any], error: type[Exception]
) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(error):
                await call("t", **arguments)
        assert (await producer.send_and_wait("one", b"next")).offset == 0
    assert cluster.records("t") == []


async def test_a_request_has_a_largest_size(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, max_request_size=1000) as producer:
        await producer.send_and_wait("one", b"x" * 800)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send("one", b"x" * 1001)


async def test_batches_may_be_larger_than_requests(side: Any, cluster: FakeCluster) -> None:
    arguments = {"max_request_size": 1000, "max_batch_size": 16_384, "linger_ms": 20}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        futures = [await producer.send("one", b"x" * 500) for _ in range(20)]
        assert [(await future).offset for future in futures] == list(range(20))


# -- serializers ---


async def test_serializers_are_asked_for_everything(side: Any, cluster: FakeCluster) -> None:
    def dump(value: Any) -> bytes:
        return json.dumps(value).encode()

    async with started(
        side,
        cluster.bootstrap_servers,
        key_serializer=lambda key: key and key.upper().encode(),
        value_serializer=dump,
    ) as producer:
        await producer.send_and_wait("one", {"a": 1}, key="some key")
        await producer.send_and_wait("one", "text")
        # None goes through them, as everything does.
        await producer.send_and_wait("one", None, key="gone")
    assert [record[3:5] for record in cluster.records("one")] == [
        (b"SOME KEY", b'{"a": 1}'),
        (None, b'"text"'),
        (b"GONE", b"null"),
    ]


async def test_what_a_serializer_raises_is_what_the_caller_gets(side: Any, cluster: FakeCluster) -> None:
    async with started(
        side, cluster.bootstrap_servers, value_serializer=lambda value: value["x"]
    ) as producer:
        with pytest.raises(KeyError, match="x"):
            await producer.send("one", {"y": 1})
        with pytest.raises(TypeError):
            await producer.send("one", {"x": "no bytes"})
        await producer.send_and_wait("one", {"x": b"ok"})


async def test_a_record_is_too_large_once_it_is_serialized(side: Any, cluster: FakeCluster) -> None:
    arguments = {"value_serializer": lambda value: b"x" * value, "max_request_size": 1000}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        await producer.send_and_wait("one", 100)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send("one", 2000)


@pytest.mark.parametrize("serializer", [None, bytes], ids=["short way", "through a serializer"])
async def test_the_loop_has_its_turn_while_one_sends(cluster: FakeCluster, serializer: Any) -> None:
    """Ours alone: `send()` suspends only when a turn is due, on either way."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with started(OurProducer, cluster.bootstrap_servers, value_serializer=serializer) as producer:
        counting = asyncio.ensure_future(count_turns())
        futures = [await producer.send("t", b"value") for _ in range(20_000)]
        counting.cancel()
        await asyncio.gather(*futures)
    assert 0 < turns < 20_000
    assert len(cluster.records("t")) == 20_000


# -- partitions ---


async def test_keys_go_where_aiokafka_sends_them(cluster: FakeCluster) -> None:
    placed = {}
    for name, side in SIDES.items():
        async with started(side, cluster.bootstrap_servers) as producer:
            futures = [await producer.send("t", b"value", key=key) for key in KEYS]
            placed[name] = [(await future).partition for future in futures]
    assert placed["aioproduce"] == placed["aiokafka"]
    assert set(placed["aiokafka"]) == {0, 1, 2}


async def test_a_partitioner_of_ones_own(side: Any, cluster: FakeCluster) -> None:
    seen: list[Any] = []

    def choose(key: bytes | None, every: list[int], available: list[int]) -> int:
        seen.append((key, sorted(every), sorted(available)))
        return every[-1]

    async with started(
        side, cluster.bootstrap_servers, partitioner=choose, key_serializer=_encoded
    ) as producer:
        assert (await producer.send_and_wait("t", b"x", key="k")).partition == 2
        assert (await producer.send_and_wait("t", b"x")).partition == 2
        assert (await producer.send_and_wait("t", b"x", partition=1)).partition == 1
    assert seen == [(b"k", [0, 1, 2], [0, 1, 2]), (None, [0, 1, 2], [0, 1, 2])]


def _encoded(key: str | None) -> bytes | None:
    return None if key is None else key.encode()


async def test_what_a_partitioner_raises_is_what_the_caller_gets(side: Any, cluster: FakeCluster) -> None:
    def choose(*_: Any) -> int:
        raise LookupError("no idea")

    async with started(side, cluster.bootstrap_servers, partitioner=choose) as producer:
        with pytest.raises(LookupError, match="no idea"):
            await producer.send("t", b"x")


async def test_aiokafkas_own_partitioner_may_be_given(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, partitioner=DefaultPartitioner()) as producer:
        futures = [await producer.send("t", b"x") for _ in range(200)]
        assert {(await future).partition for future in futures} == {0, 1, 2}


async def test_an_answer_that_is_no_partition_is_refused_at_once(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka queues the record, and gives up on it when its time is over."""
    async with started(OurProducer, cluster.bootstrap_servers, partitioner=lambda *_: 17) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="17"):
            await producer.send("t", b"x")


async def test_keyless_records_fill_a_batch(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: aiokafka draws a partition for each."""
    async with started(OurProducer, cluster.bootstrap_servers, linger_ms=20) as producer:
        futures = [await producer.send("t", b"x") for _ in range(50)]
        assert len({(await future).partition for future in futures}) == 1


async def test_the_partitions_of_a_topic(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        partitions = await producer.partitions_for("t")
    assert partitions == {0, 1, 2}
    assert set(partitions) == {0, 1, 2}


async def test_a_topic_that_does_not_become_known(side: Any, cluster: FakeCluster) -> None:
    async with started(
        side, cluster.bootstrap_servers, request_timeout_ms=500, retry_backoff_ms=50
    ) as producer:
        for call in (producer.send("no.such", b"x"), producer.partitions_for("no.such")):
            with pytest.raises(UnknownTopicOrPartitionError):
                await call


async def test_a_topic_that_is_denied(side: Any, cluster: FakeCluster) -> None:
    cluster.deny_topic("t")
    async with started(side, cluster.bootstrap_servers) as producer:
        for call in (producer.send("t", b"x"), producer.partitions_for("t")):
            with pytest.raises(TopicAuthorizationFailedError) as caught:
                await call
            assert caught.value.args == ("t",)


async def test_a_name_that_is_no_topics(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka asks for it until its time is over, or fails where it encodes the request."""
    async with started(OurProducer, cluster.bootstrap_servers) as producer:
        with pytest.raises(InvalidTopicError):
            await producer.send("a b", b"x")
        with pytest.raises(TypeError):
            await producer.send(b"t", b"x")


# -- what comes back ---


async def test_each_record_has_its_own_timestamp(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: in a batch aiokafka gives all the timestamp of the first."""
    async with started(OurProducer, cluster.bootstrap_servers, linger_ms=50) as producer:
        futures = [await producer.send("one", b"x", timestamp_ms=1000 + number) for number in range(5)]
        assert [(await future).timestamp for future in futures] == [1000, 1001, 1002, 1003, 1004]
    assert len(cluster.log("one")) == 1


async def test_the_difference_of_timestamps_is_still_there(cluster: FakeCluster) -> None:
    """Theirs alone: when this fails, docs/how-to/migrate-from-aiokafka.md says too much."""
    async with started(SIDES["aiokafka"], cluster.bootstrap_servers, linger_ms=50) as producer:
        futures = [await producer.send("one", b"x", timestamp_ms=1000 + number) for number in range(5)]
        assert {(await future).timestamp for future in futures} == {1000}
    assert [record.timestamp for record in cluster.records("one")] == [1000, 1001, 1002, 1003, 1004]


async def test_the_time_of_appending(side: Any, cluster: FakeCluster) -> None:
    cluster.configure_topic("one", is_log_append_time=True)
    async with started(side, cluster.bootstrap_servers, linger_ms=20) as producer:
        futures = [await producer.send("one", b"x", timestamp_ms=1000) for _ in range(3)]
        found = [await future for future in futures]
    (appended_at,) = {record.timestamp for record in cluster.records("one")}
    assert [(metadata.timestamp, metadata.timestamp_type) for metadata in found] == [(appended_at, 1)] * 3


async def test_where_the_log_begins(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        for _ in range(5):
            await producer.send_and_wait("one", b"x")
        cluster.delete_records("one", 0, before_offset=3)
        metadata = await producer.send_and_wait("one", b"x")
    assert (metadata.offset, metadata.log_start_offset) == (5, 3)


async def test_without_acknowledgement_there_is_nothing_to_tell(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, acks=0) as producer:
        futures = [await producer.send("one", b"x", partition=0) for _ in range(2)]
        done, pending = await asyncio.wait(futures)
        assert (len(done), len(pending)) == (2, 0)
        assert [future.result() for future in done] == [None, None]
        assert await producer.send_and_wait("one", b"x") is None
    assert len(cluster.records("one")) == 3


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_codecs(side: Any, cluster: FakeCluster, codec: str) -> None:
    async with started(side, cluster.bootstrap_servers, compression_type=codec, linger_ms=20) as producer:
        futures = [await producer.send("one", b"large message " * 100) for _ in range(20)]
        assert [(await future).offset for future in futures] == list(range(20))
    assert {record.value for record in cluster.records("one")} == {b"large message " * 100}


async def test_errors_of_kafka_are_one_family(cluster: FakeCluster) -> None:
    """Code that catches KafkaError catches ours, and finds our error in its cause."""
    cluster.faults.fail_produce(10, times=None)
    async with started(OurProducer, cluster.bootstrap_servers) as producer:
        with pytest.raises(KafkaError) as caught:
            await producer.send_and_wait("one", b"x")
    assert type(caught.value) is MessageSizeTooLargeError
    cause: Any = caught.value.__cause__
    assert (cause.possibly_written, cause.attempts) == (False, 1)
