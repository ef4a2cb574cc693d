"""confluent-kafka's public behaviours on a real broker: each on both classes, read with Kafka's own consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from aioproduce.compat.confluent import AIOProducer as OurProducer
from tests.compat.confluent_sides import SIDES, code_of, produced
from tests.gate.marks import others_extended
from tests.integration.test_transactions_kafka import read

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.kafka

KEYS = [b"customer-%d" % number for number in range(200)]


@pytest.fixture(
    params=others_extended(SIDES, keep=["aioproduce"], reason="tests another client's behaviour, not ours")
)
def side(request: pytest.FixtureRequest) -> Any:
    """`AIOProducer`: confluent-kafka's, then ours."""
    return SIDES[request.param]


def conf(cluster: KafkaCluster, **options: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **options}


@pytest.mark.parametrize(
    "codec",
    others_extended(
        ["none", "gzip", "snappy", "lz4", "zstd"], keep=["lz4"], reason="one codec stays in the gate"
    ),
)
async def test_both_write_the_same_log(kafka1: KafkaCluster, topic_name: str, codec: str) -> None:
    logs = []
    for kind, make in SIDES.items():
        topic = kafka1.create_topic(f"{topic_name}-{kind}", partitions=5)
        async with make(conf(kafka1, **{"compression.type": codec})) as producer:
            futures = [await producer.produce(topic, b"value of " + key, key) for key in KEYS * 3]
            assert await producer.flush() == 0
            messages = await asyncio.gather(*futures)
        read = await asyncio.to_thread(kafka1.console_consume, topic)
        told = {(m.partition(), m.offset()): (m.key(), m.value(), m.timestamp()[1]) for m in messages}
        assert {(r.partition, r.offset): (r.key, r.value, r.timestamp) for r in read} == told
        assert {message.timestamp()[0] for message in messages} == {1}
        logs.append(sorted((r.partition, r.offset, r.key, r.value) for r in read))
    assert len(logs[0]) == 3 * len(KEYS)
    # Of one key: the same partition. Within a partition: the order of produce(), in which both were called alike.
    assert logs[0] == logs[1]


async def test_headers_and_timestamps_arrive(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    async with OurProducer(conf(kafka1)) as producer:
        await producer.produce(topic_name, "v", headers={"a": "1", "b": b"\xff"}, timestamp=1_700_000_000_000)
    (record,) = await asyncio.to_thread(kafka1.console_consume, topic_name)
    assert record.timestamp == 1_700_000_000_000
    assert tuple(record.headers) == (("a", b"1"), ("b", b"\xff"))


async def test_the_brokers_clock(side: Any, kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, configs={"message.timestamp.type": "LogAppendTime"})
    async with side(conf(kafka1)) as producer:
        message = await produced(producer, topic_name, b"v")
    (record,) = await asyncio.to_thread(kafka1.console_consume, topic_name)
    assert message.timestamp() == (2, record.timestamp)


@pytest.mark.parametrize("acks", [1, 0])
async def test_fewer_acknowledgements(side: Any, kafka1: KafkaCluster, topic_name: str, acks: int) -> None:
    kafka1.create_topic(topic_name)
    async with side(conf(kafka1, acks=acks)) as producer:
        message = await produced(producer, topic_name, b"v")
    assert message.error() is None
    assert message.offset() == (0 if acks else None)
    (record,) = await asyncio.to_thread(kafka1.console_consume, topic_name, max_messages=1)
    assert record.value == b"v"


async def test_larger_than_the_topic_allows(side: Any, kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, configs={"max.message.bytes": "1000"})
    async with side(conf(kafka1)) as producer:
        answer = await produced(producer, topic_name, bytes(5000))
        assert code_of(answer) == KafkaError.MSG_SIZE_TOO_LARGE
        assert (await produced(producer, topic_name, b"v")).offset() == 0


async def test_a_partition_that_there_is_not(side: Any, kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=2)
    async with side(conf(kafka1)) as producer:
        answer = await produced(producer, topic_name, b"v", partition=2)
    assert code_of(answer) == KafkaError._UNKNOWN_PARTITION


async def test_a_topics_name_that_kafka_refuses(side: Any, kafka1: KafkaCluster) -> None:
    async with side(conf(kafka1, **{"message.timeout.ms": 30_000})) as producer:
        answer = await produced(producer, "no topic's name", b"v")
    assert code_of(answer) in (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC)


async def test_the_topics_partitions(side: Any, kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=3)
    async with side(conf(kafka1)) as producer:
        metadata = await producer.list_topics(topic_name, timeout=60)
        assert metadata.cluster_id == await producer.cluster_id(timeout=60)
    assert sorted(metadata.topics[topic_name].partitions) == [0, 1, 2]
    assert [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()] == [
        kafka1.bootstrap_servers
    ]


@pytest.mark.extended("restarts a broker; the mock cluster's tests stay in the gate")
@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "not idempotent"])
async def test_messages_survive_a_leader(
    side: Any, kafka3: KafkaCluster, topic_name: str, is_idempotent: bool
) -> None:
    kafka3.create_topic(topic_name, partitions=2)
    options = conf(kafka3, **{"enable.idempotence": is_idempotent})
    values = [b"%d" % number for number in range(2000)]
    async with side(options, batch_size=50) as producer:
        futures = [await producer.produce(topic_name, value, b"k") for value in values[:1000]]
        await producer.flush()
        leader = kafka3.leader_of(topic_name, (await futures[0]).partition())
        bounce = asyncio.create_task(asyncio.to_thread(kafka3.bounce, leader, hard=True))
        futures += [await producer.produce(topic_name, value, b"k") for value in values[1000:]]
        assert await producer.flush() == 0
        messages = await asyncio.gather(*futures)
        await bounce
    read = [record.value for record in await asyncio.to_thread(kafka3.console_consume, topic_name)]
    assert set(read) == set(values)
    assert len({(message.partition(), message.offset()) for message in messages}) == len(values)
    if is_idempotent:
        assert read == values


@pytest.mark.extended("starts and stops brokers; the mock cluster's tests stay in the gate")
async def test_a_broker_that_comes_later(side: Any, kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    (node,) = kafka1.nodes
    await asyncio.to_thread(kafka1.kill, node)
    async with side(conf(kafka1), buffer_timeout=0.1) as producer:
        futures = [await producer.produce(topic_name, b"%d" % number) for number in range(10)]
        assert await producer.flush(0.05) >= 10
        await asyncio.to_thread(kafka1.start, node)
        assert await producer.flush() == 0
        assert [(await future).offset() for future in futures] == list(range(10))


async def test_a_service_that_was_written_for_theirs(
    side: Any, kafka1: KafkaCluster, topic_name: str
) -> None:
    """The pattern of their documentation: many tasks, each awaits its own message's future, close at the end."""
    kafka1.create_topic(topic_name, partitions=3)
    producer = side(conf(kafka1, **{"linger.ms": 1}), max_workers=2, batch_size=10, buffer_timeout=0.2)
    failures: list[KafkaException] = []

    async def request(number: int) -> int:
        future = await producer.produce(topic_name, value=f"{number}", key=f"{number % 7}")
        try:
            message = await future
        except KafkaException as error:
            failures.append(error)
            return -1
        return int(message.offset())

    requests = [asyncio.create_task(request(number)) for number in range(200)]
    while not all(task.done() for task in requests):
        # Theirs settles futures from threads, which do not wake the loop.
        await producer.flush(0.1)
    await producer.close()
    assert failures == []
    assert len(await asyncio.to_thread(kafka1.console_consume, topic_name)) == 200


@pytest.mark.extended(
    "transactions of both sides on real Kafka; the mock cluster's and FakeCluster's tests stay in the gate"
)
async def test_transactions_and_a_groups_offsets(side: Any, kafka1: KafkaCluster, topic_name: str) -> None:
    """Read, transform, write: commits and aborts in turn, read back by their consumer of committed messages."""
    source, target = f"{topic_name}-in", f"{topic_name}-out"
    for name in (source, target):
        kafka1.create_topic(name, partitions=2)
    place = TopicPartition(source, 0)
    consumer = Consumer(conf(kafka1, **{"group.id": topic_name, "enable.auto.commit": False}))
    try:
        async with side(conf(kafka1, **{"transactional.id": topic_name})) as producer:
            await producer.init_transactions(60)
            for number in range(6):
                await producer.begin_transaction()
                futures = [await producer.produce(target, b"%d.%d" % (number, part)) for part in range(50)]
                positions = [TopicPartition(source, 0, 100 + number)]
                group = consumer.consumer_group_metadata()
                await producer.send_offsets_to_transaction(positions, group, 60)
                if number % 2:
                    await producer.flush()
                    await producer.abort_transaction(60)
                else:
                    await producer.commit_transaction(60)
                await asyncio.gather(*futures)
            # Fenced by the next one of its name.
            await producer.begin_transaction()
            await produced(producer, target, b"left open")
            async with side(conf(kafka1, **{"transactional.id": topic_name})) as successor:
                await successor.init_transactions(60)
                with pytest.raises(KafkaException) as fenced:
                    await producer.commit_transaction(60)
                assert fenced.value.args[0].fatal()
                assert code_of(fenced.value.args[0]) == KafkaError._FENCED
                await successor.begin_transaction()
                await produced(successor, target, b"successor")
                await successor.commit_transaction(60)
            if side is not OurProducer:
                with pytest.raises(KafkaException):
                    await producer.flush()
                producer.flush = _nothing  # or close() raises what has been told
        (committed,) = await asyncio.to_thread(consumer.committed, [place], 60)
        assert committed.offset == 104
    finally:
        await asyncio.to_thread(consumer.close)
    expected = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(50)]
    found = await asyncio.to_thread(read, kafka1.bootstrap_servers, target)
    assert sorted(found) == sorted([*expected, b"successor"])
    everything = await asyncio.to_thread(read, kafka1.bootstrap_servers, target, "read_uncommitted")
    assert len(everything) == 6 * 50 + 2


async def _nothing() -> int:
    return 0
