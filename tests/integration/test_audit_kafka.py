"""An audited producer on real Kafka: stamps and marks as other clients read them, also of one that was killed."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as PlainTopicPartition
from confluent_kafka import Consumer, TopicPartition

from aioproduce import Producer
from aioproduce.audit import Auditor, Mark

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

ROOT = Path(__file__).parents[2]
PARTITIONS = 3

SENDING = """
import asyncio, sys
from aioproduce import Producer
from aioproduce.audit import Auditor
async def main(servers, topic, marks):
    async with Producer(servers, interceptors=[Auditor(marks, heartbeat_ms=100)]) as producer:
        while True:
            await producer.send_many(topic, [b"%d" % number for number in range(1000)])
asyncio.run(main(*sys.argv[1:]))
"""


def stamp_of(headers: list[tuple[str, bytes]]) -> tuple[bytes, int]:
    name, value = headers[-1]
    assert name == "ap.id"
    producer_id, number = struct.unpack(">16sQ", value)
    return producer_id, number


def read(servers: str, topic: str, partitions: int) -> list[Any]:
    """All that a topic holds, by confluent-kafka."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "audit", "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, each, 0) for each in range(partitions)]
        ends = [consumer.get_watermark_offsets(place)[1] for place in places]
        consumer.assign(places)
        found: list[Any] = []
        while len([each for each in found if (each.offset() or 0) < ends[each.partition() or 0]]) < sum(ends):
            found += [each for each in consumer.consume(1000, timeout=1.0) if each.error() is None]
        return found
    finally:
        consumer.close()


async def read_by_aiokafka(servers: str, topic: str, partitions: int, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([PlainTopicPartition(topic, each) for each in range(partitions)])
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_other_clients_read_the_stamps(kafka1: KafkaCluster, topic_name: str, codec: Any) -> None:
    marks = f"{topic_name}.marks"
    kafka1.create_topic(topic_name, partitions=PARTITIONS)
    kafka1.create_topic(marks, partitions=2)
    auditor = Auditor(marks)
    async with Producer(
        kafka1.bootstrap_servers, interceptors=[auditor], compression_type=codec, batch_size=4000
    ) as producer:
        for number in range(500):
            await producer.send(topic_name, b"%d" % number, headers=[("user", b"header")])
        await producer.send_many(topic_name, [b"%d" % number for number in range(500, 1000)])
    found = read(kafka1.bootstrap_servers, topic_name, PARTITIONS)
    for message in found:
        producer_id, number = stamp_of(message.headers())
        assert (producer_id, number) == (auditor.producer_id, int(message.value() or b""))
        assert message.headers()[:-1] == ([("user", b"header")] if number < 500 else [])
    assert sorted(int(message.value() or b"") for message in found) == list(range(1000))
    records = await read_by_aiokafka(kafka1.bootstrap_servers, topic_name, PARTITIONS, 1000)
    assert sorted(stamp_of(list(record.headers))[1] for record in records) == list(range(1000))
    [mark] = read(kafka1.bootstrap_servers, marks, 2)
    closing = Mark.from_json(mark.value())
    assert mark.key() == (auditor.producer_id or b"").hex().encode()
    assert (closing.kind, closing.next, closing.topics) == ("closing", 1000, {topic_name: 1000})


@pytest.mark.extended("takes 35 s of processor time")
def test_of_a_killed_producer_all_that_its_heartbeats_promise_is_there(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    marks = f"{topic_name}.marks"
    kafka1.create_topic(topic_name, partitions=PARTITIONS)
    kafka1.create_topic(marks, partitions=1)
    process = subprocess.Popen(
        [sys.executable, "-c", SENDING, kafka1.bootstrap_servers, topic_name, marks], cwd=ROOT
    )
    try:
        while len(read(kafka1.bootstrap_servers, marks, 1)) < 3:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    told = [Mark.from_json(each.value()) for each in read(kafka1.bootstrap_servers, marks, 1)]
    assert {mark.kind for mark in told} == {"heartbeat"}
    assert told[-1].next > 0
    numbers = [
        stamp_of(record.headers())[1] for record in read(kafka1.bootstrap_servers, topic_name, PARTITIONS)
    ]
    assert len(set(numbers)) == len(numbers)
    assert set(range(told[-1].next)) <= set(numbers)
