"""Where a new member of a group begins while the group's offsets are in an open transaction (KIP-447).

This is why aiokafka's consumer cannot `subscribe()` in a copy. `test_transactional_copy_kafka.py` meets it only by
chance: a partition has to move before its old owner commits. Here the transaction stays open until it has moved.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition
from confluent_kafka import Consumer

from aioproduce import Producer
from tests.integration.test_transactions_kafka import read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.extended("the copy of 100,000 records covers the same case")]

VALUES = [b"0", b"1", b"2"]
# Seconds that a look of confluent-kafka's consumer waits, and how often it looks with its partition.
LOOK = 0.5
LOOKS = 4
# Looks until it has its partition.
JOINING = 60


@asynccontextmanager
async def being_copied(cluster: KafkaCluster, topic: str) -> AsyncIterator[None]:
    """A copy of all records, with their offsets, in a transaction that is open meanwhile and committed then."""
    cluster.create_topic(topic)
    cluster.create_topic(f"{topic}-out")
    async with (
        Producer(cluster.bootstrap_servers) as source,
        Producer(cluster.bootstrap_servers, transactional_id=topic) as producer,
    ):
        for value in VALUES:
            await source.send_and_wait(topic, value)
        async with producer.transaction() as txn:
            for value in VALUES:
                await txn.send_and_wait(f"{topic}-out", value)
            await txn.send_offsets({(topic, 0): len(VALUES)}, topic)
            yield
        await source.send_and_wait(topic, b"next")


async def test_confluents_waits_for_the_end_of_the_transaction(kafka1: KafkaCluster, topic_name: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka1.bootstrap_servers,
            "group.id": topic_name,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        async with being_copied(kafka1, topic_name):
            consumer.subscribe([topic_name])
            seen = []
            for _ in range(JOINING):
                seen.append(await asyncio.to_thread(consumer.poll, LOOK))
                if consumer.assignment():
                    break
            assert consumer.assignment()
            seen += [await asyncio.to_thread(consumer.poll, LOOK) for _ in range(LOOKS)]
            assert set(seen) == {None}
        (message,) = await asyncio.to_thread(consumer.consume, 1, LOOK * JOINING)
        assert message.error() is None
        assert message.value() == b"next"
    finally:
        consumer.close()


async def test_aiokafkas_reads_again_what_is_about_to_be_committed(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    """The control: its own producer commits the copies, so that each record is there twice."""
    consumer = AIOKafkaConsumer(
        topic_name,
        bootstrap_servers=kafka1.bootstrap_servers,
        group_id=topic_name,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka1.bootstrap_servers, transactional_id=f"{topic_name}-2", linger_ms=5
    )
    try:
        async with being_copied(kafka1, topic_name):
            await consumer.start()
            await producer.start()
            again = [await consumer.getone() for _ in VALUES]
        async with producer.transaction():
            for message in again:
                await producer.send(f"{topic_name}-out", message.value)
            offsets = {TopicPartition(topic_name, 0): again[-1].offset + 1}
            await producer.send_offsets_to_transaction(offsets, topic_name)
    finally:
        await producer.stop()
        await consumer.stop()
    assert await asyncio.to_thread(read, kafka1.bootstrap_servers, f"{topic_name}-out") == VALUES * 2
