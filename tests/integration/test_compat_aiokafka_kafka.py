"""aiokafka's public behaviours on a real broker: its own tests of the producer, ported, and run on both classes.

What their tests do by replacing parts of aiokafka's inside (its client, its sender) is done here to the
broker, or in `tests/compat` to a fake one. aiokafka's own consumer reads what was written.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    KafkaConnectionError,
    MessageSizeTooLargeError,
    ProducerClosed,
)
from aiokafka.structs import RecordMetadata, TopicPartition

from tests.compat.aiokafka_sides import SIDES, nobody_there, started
from tests.gate.marks import others_extended

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.fixture(
    params=others_extended(
        sorted(SIDES), keep=["aioproduce"], reason="tests another client's behaviour, not ours"
    )
)
def side(request: pytest.FixtureRequest) -> Any:
    """`AIOKafkaProducer`: aiokafka's, then ours."""
    return SIDES[request.param]


@pytest.fixture
def topic(kafka1: KafkaCluster, topic_name: str) -> str:
    """A topic of two partitions, led."""
    return kafka1.create_topic(topic_name, partitions=2)


@pytest.fixture
def servers(kafka1: KafkaCluster) -> str:
    """Where the broker is."""
    return kafka1.bootstrap_servers


async def consumed(servers: str, topic: str, count: int) -> list[Any]:
    """So many records, as aiokafka's consumer reads them; those of a partition in their order."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


async def test_start(side: Any, servers: str, topic: str) -> None:
    producer = side(bootstrap_servers=servers)
    await producer.start()
    partitions = await producer.partitions_for(topic)
    assert len(partitions) == 2
    assert partitions == {0, 1}
    await producer.stop()
    assert producer._closed
    with nobody_there() as nobody:
        producer = side(bootstrap_servers=nobody)
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await producer.stop()


async def test_warn_unclosed(side: Any, servers: str, topic: str) -> None:
    loop = asyncio.get_running_loop()
    told: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    producer = side(bootstrap_servers=servers)
    await producer.start()
    await producer.send_and_wait(topic, b"x")
    inside = producer.client if hasattr(producer, "_sender") else producer._sends
    sender = getattr(producer, "_sender", None)
    reference = weakref.ref(producer)
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):  # noqa: PT031
        del producer
        gc.collect()
    loop.set_exception_handler(None)
    assert reference() is None
    assert told == ["Unclosed AIOKafkaProducer"]
    # What it left running: the warning is about that.
    if sender is None:
        await inside.stop()
    else:
        await sender.close()
        await inside.close()


async def test_a_topic_is_created_by_asking_for_it(side: Any, servers: str, topic_name: str) -> None:
    async with started(side, servers) as producer:
        assert (await producer.send_and_wait(topic_name, b"hello")).offset == 0


async def test_send(side: Any, servers: str, topic: str) -> None:
    async with started(side, servers) as producer:
        with pytest.raises(TypeError):
            await producer.send(topic, "hello, Kafka!", partition=0)
        future = await producer.send(topic, b"hello, Kafka!", partition=0)
        metadata = await future
        assert type(metadata) is RecordMetadata
        assert metadata.topic == topic
        assert metadata.topic_partition == TopicPartition(topic, 0)
        assert (metadata.partition, metadata.offset) == (0, 0)

        future = await producer.send(topic, b"second msg", partition=1)
        assert (await future).partition == 1

        future = await producer.send(topic, b"value", key=b"KEY")
        assert (await future).partition in (0, 1)
        assert (await producer.send_and_wait(topic, b"value")).partition in (0, 1)
    with pytest.raises(ProducerClosed):
        await producer.send(topic, b"value", key=b"KEY")
    found = await consumed(servers, topic, 4)
    assert sorted(record.value for record in found) == [b"hello, Kafka!", b"second msg", b"value", b"value"]


def test_create_producer_no_running_loop(side: Any, servers: str, topic: str) -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.warns(DeprecationWarning, match="The `loop` parameter"):
            producer = side(bootstrap_servers=servers, loop=loop)
        loop.run_until_complete(producer.start())
        try:
            future = loop.run_until_complete(producer.send(topic, b"hello, Kafka!", partition=0))
            metadata = loop.run_until_complete(future)
            assert (metadata.topic, metadata.offset) == (topic, 0)
        finally:
            loop.run_until_complete(producer.stop())
    finally:
        loop.close()


async def test_context_manager(side: Any, servers: str, topic: str) -> None:
    producer = side(bootstrap_servers=servers)
    async with producer as entered:
        assert entered is producer
        await producer.send(topic, b"value", key=b"KEY")
    assert producer._closed

    producer = side(bootstrap_servers=servers)

    async def fail_within() -> None:
        async with producer:
            await producer.send(topic, b"value", key=b"KEY")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail_within()
    assert producer._closed
    assert len(await consumed(servers, topic, 2)) == 2


async def test_send_noack(side: Any, servers: str, topic: str) -> None:
    async with started(side, servers, acks=0) as producer:
        futures = [await producer.send(topic, b"hello, Kafka!", partition=number) for number in (0, 1)]
        done, _ = await asyncio.wait(futures)
        assert [future.result() for future in done] == [None, None]
    assert len(await consumed(servers, topic, 2)) == 2


async def test_send_with_serializer(side: Any, servers: str, topic: str) -> None:
    producer = side(
        bootstrap_servers=servers,
        value_serializer=lambda value: json.dumps(value).encode(),
        key_serializer=lambda key: key.upper().encode(),
        acks="all",
        max_request_size=1000,
    )
    await producer.start()
    value = {"strKey": 23523.443, 23: "STRval"}
    first = await (await producer.send(topic, value, key="some key"))
    second = await (await producer.send(topic, "some str", key="some key"))
    assert second.partition == first.partition
    assert second.offset == first.offset + 1
    value[23] = "*VALUE" * 800
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send(topic, value, key="some key")
    await producer.stop()
    await producer.stop()  # should be Ok
    found = await consumed(servers, topic, 2)
    assert [record.key for record in found] == [b"SOME KEY"] * 2
    assert [record.value for record in found] == [b'{"strKey": 23523.443, "23": "STRval"}', b'"some str"']


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_send_with_compression(side: Any, servers: str, topic: str, codec: str) -> None:
    async with started(side, servers, compression_type=codec) as producer:
        metadata = await (await producer.send(topic, b"too short for compress"))
        assert metadata.topic == topic
        metadata = await producer.send_and_wait(topic, b"large_message-" * 100)
        assert metadata.partition in (0, 1)
    values = sorted(record.value for record in await consumed(servers, topic, 2))
    assert values == [b"large_message-" * 100, b"too short for compress"]


async def test_send_batch(side: Any, servers: str, topic: str) -> None:
    max_batch_size = 10_000
    async with started(side, servers, max_batch_size=max_batch_size) as producer:
        partition = (await producer.partitions_for(topic)).pop()
        offset = (
            await producer.send_and_wait(topic, value=b"discovering offset", partition=partition)
        ).offset

        batch = producer.create_batch()
        assert batch.record_count() == 0
        count = 0
        while batch.append(key=b"test key", value=b"test value", timestamp=None) is not None:
            count += 1
        assert count > 0
        assert batch.record_count() == count

        metadata = await (await producer.send_batch(batch, topic, partition=partition))
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, partition, offset + 1)

        too_large = b"m" * (max_batch_size + 1)
        batch = producer.create_batch()
        assert batch.append(key=None, value=too_large, timestamp=None) is not None
        batch = producer.create_batch()
        batch.append(key=None, value=b"short", timestamp=None)
        assert batch.append(key=None, value=too_large, timestamp=None) is None
    with pytest.raises(ProducerClosed):
        await producer.send_batch(batch, topic, partition=partition)
    found = await consumed(servers, topic, count + 1)
    assert [record.value for record in found] == [b"discovering offset", *[b"test value"] * count]


async def test_send_batch_with_serializer(side: Any, servers: str, topic: str) -> None:
    arguments = {
        "key_serializer": lambda key: key.upper().encode(),
        "value_serializer": lambda value: json.dumps(value, separators=(",", ":")).encode(),
    }
    async with started(side, servers, **arguments) as producer:
        batch = producer.create_batch()
        batch.append(key="key1", value={"value": 111}, timestamp=None)
        batch.append(key="key2", value={"value": 222}, timestamp=None)
        assert batch.record_count() == 2
        assert (await (await producer.send_batch(batch, topic, partition=1))).partition == 1
    found = await consumed(servers, topic, 2)
    assert [(record.key, record.value) for record in found] == [
        (b"KEY1", b'{"value":111}'),
        (b"KEY2", b'{"value":222}'),
    ]


async def test_flush(side: Any, servers: str, topic: str) -> None:
    async with started(side, servers) as producer:
        futures = [await producer.send(topic, b"text") for _ in range(2)]
        assert [future.done() for future in futures] == [False, False]
        await producer.flush()
        assert [future.done() for future in futures] == [True, True]


async def test_correct_time_returned(side: Any, kafka1: KafkaCluster, servers: str, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    appended = kafka1.create_topic(
        f"{topic_name}-appended", configs={"message.timestamp.type": "LogAppendTime"}
    )
    async with started(side, servers) as producer:
        before = time.time() * 1000
        metadata = await producer.send_and_wait(topic_name, b"text1", partition=0)
        assert before - 1 <= metadata.timestamp <= time.time() * 1000
        metadata = await producer.send_and_wait(topic_name, b"text1", partition=0, timestamp_ms=123123123)
        assert (metadata.timestamp, metadata.timestamp_type) == (123123123, 0)
        metadata = await producer.send_and_wait(appended, b"text1", partition=0, timestamp_ms=123123123)
        assert metadata.timestamp_type == 1
        assert metadata.timestamp >= before - 1
    assert [record.timestamp for record in await consumed(servers, appended, 1)] == [metadata.timestamp]


async def test_send_empty_batch(side: Any, servers: str, topic: str) -> None:
    async with started(side, servers) as producer:
        with pytest.raises(TypeError):
            await producer.send(topic, "text1")
        await producer.flush()
        assert (await producer.send_and_wait(topic, b"first", partition=0)).offset == 0


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
async def test_idempotence_simple(side: Any, servers: str, topic: str, is_idempotent: bool) -> None:
    async with started(side, servers, enable_idempotence=is_idempotent) as producer:
        metadata = await producer.send_and_wait(topic, b"hello, Kafka!", headers=[("type", b"Normal")])
    (record,) = await consumed(servers, topic, 1)
    assert (record.offset, record.timestamp) == (metadata.offset, metadata.timestamp)
    assert (record.key, record.value, record.headers) == (None, b"hello, Kafka!", (("type", b"Normal"),))


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
async def test_order(side: Any, servers: str, topic: str, is_idempotent: bool) -> None:
    """Ten senders at once, many batches: those of each partition in the order in which they were accepted."""
    arguments = {"enable_idempotence": is_idempotent, "max_batch_size": 2000}
    async with started(side, servers, **arguments) as producer:
        futures = [
            await producer.send(topic, b"%06d" % number, partition=number % 2) for number in range(4000)
        ]
        for partition in (0, 1):
            assert [(await future).offset for future in futures[partition::2]] == list(range(2000))
    found = await consumed(servers, topic, 4000)
    for partition in (0, 1):
        values = [record.value for record in found if record.partition == partition]
        assert values == [b"%06d" % number for number in range(partition, 4000, 2)]


@pytest.mark.extended("restarts a broker; the mock cluster's tests stay in the gate")
async def test_the_broker_restarts(side: Any, kafka1: KafkaCluster, servers: str, topic: str) -> None:
    """Idempotent: what was sent while it was away is there afterwards, once and in order."""
    (node,) = kafka1.nodes
    async with started(side, servers, enable_idempotence=True) as producer:
        first = await producer.send_and_wait(topic, b"0", partition=0)
        futures = []

        async def send() -> None:
            for number in range(1, 50):
                futures.append(await producer.send(topic, b"%d" % number, partition=0))
                await asyncio.sleep(0.01)

        sending = asyncio.ensure_future(send())
        await asyncio.to_thread(kafka1.bounce, node)
        await sending
        offsets = [first.offset, *[(await future).offset for future in futures]]
    assert offsets == list(range(50))
    found = await consumed(servers, topic, 50)
    assert [record.value for record in found] == [b"%d" % number for number in range(50)]
