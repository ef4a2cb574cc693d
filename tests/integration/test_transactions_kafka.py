"""Transactions against a real Kafka: what confluent-kafka reads of them; the examples, killed and restarted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import httpx
import pytest

from aioproduce import PreparedTransaction, Producer
from aioproduce.errors import TransactionOutcome, TransactionTimedOutError
from tests.integrations.test_examples import EXAMPLES, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import MakeTopic
    from tests.kafka_cluster import KafkaCluster

_PATIENCE = 60
END_OF_PARTITION = confluent_kafka.KafkaError._PARTITION_EOF


class Body(Exception):
    """What leaves the body of a transaction."""


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values from the beginning to the end of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        places = [confluent_kafka.TopicPartition(topic, number, 0) for number in partitions]
        consumer.assign(places)
        values: list[bytes] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + _PATIENCE
        while len(ended) < len(partitions) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                error, value = message.error(), message.value()
                if error is None and value is not None:
                    values.append(value)
                elif error is not None and error.code() == END_OF_PARTITION:
                    ended.add(message.partition())
        assert len(ended) == len(partitions), "a last stable offset that does not move on"
        return values
    finally:
        consumer.close()


async def test_committed_aborted_and_prepared(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=2)
    servers = kafka1.bootstrap_servers
    async with Producer(servers, transactional_id=topic_name, linger_ms=0) as producer:
        for number in range(5):
            async with producer.transaction() as txn:
                await txn.send_many(topic_name, [b"%d-%d" % (number, index) for index in range(10)])
            failed = producer.transaction()

            async def fail(txn: Any = failed) -> None:
                async with txn:
                    await txn.send_and_wait(topic_name, b"no")
                    raise Body

            with pytest.raises(Body):
                await fail()
        txn = await producer.begin_transaction()
        await txn.send(topic_name, b"prepared")
        prepared = (await txn.prepare()).to_bytes()
    await PreparedTransaction.from_bytes(prepared).commit(servers)
    values = await asyncio.to_thread(read, servers, topic_name)
    expected = [b"%d-%d" % (number, index) for number in range(5) for index in range(10)]
    assert sorted(values) == sorted([*expected, b"prepared"])
    assert len(await asyncio.to_thread(read, servers, topic_name, "read_uncommitted")) == 56


async def test_group_commit(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    servers = kafka1.bootstrap_servers
    async with (
        Producer(servers, transactional_id=topic_name, linger_ms=0) as producer,
        producer.group_commit(0.05) as group,
    ):
        for number in range(3):
            sends = [group.send(topic_name, b"%d-%d" % (number, index)) for index in range(100)]
            places = await asyncio.gather(*sends)
            assert len({place.offset for place in places}) == 100
    values = await asyncio.to_thread(read, servers, topic_name)
    assert sorted(values) == sorted(b"%d-%d" % (number, index) for number in range(3) for index in range(100))


@pytest.mark.extended(
    "waits up to ten seconds for a time-out of the coordinator; the model's time-out stays in the gate"
)
async def test_the_coordinators_own_time_out(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    servers = kafka1.bootstrap_servers
    settings: dict[str, Any] = {
        "transactional_id": topic_name,
        "linger_ms": 0,
        "transaction_timeout_ms": 1000,
    }
    async with Producer(servers, **settings) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait(topic_name, b"no")
        await asyncio.sleep(15)  # Kafka looks every ten seconds
        with pytest.raises(TransactionTimedOutError):
            await txn.commit()
        await txn.abort()
        assert txn.outcome is TransactionOutcome.ABORTED
        async with producer.transaction() as txn:
            await txn.send(topic_name, b"yes")
    assert await asyncio.to_thread(read, servers, topic_name) == [b"yes"]


# -- examples ---


@pytest.fixture
def copiers(kafka1: KafkaCluster, topic_name: str) -> Iterator[Any]:
    processes: list[subprocess.Popen[bytes]] = []
    environment = os.environ | {
        "PYTHONPATH": str(EXAMPLES.parent),
        "KAFKA_BOOTSTRAP_SERVERS": kafka1.bootstrap_servers,
        "GROUP": topic_name,
        "SESSION_TIMEOUT_MS": "6000",
    }
    with tempfile.TemporaryDirectory() as directory:

        def start_one(number: int) -> subprocess.Popen[bytes]:
            with (Path(directory) / f"{len(processes)}.log").open("wb") as log:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        str(EXAMPLES / "transactional_copy.py"),
                        topic_name,
                        f"{topic_name}-out",
                    ],
                    env=environment | {"TRANSACTIONAL_ID": f"{topic_name}-{number}"},
                    stdout=log,
                    stderr=log,
                )
            processes.append(process)
            return process

        yield start_one
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.extended("starts consumers as processes, kills and restarts them")
async def test_a_copy_that_is_killed_is_exactly_once(
    kafka1: KafkaCluster, topic_name: str, copiers: Any
) -> None:
    servers, target = kafka1.bootstrap_servers, f"{topic_name}-out"
    kafka1.create_topic(topic_name, partitions=4)
    kafka1.create_topic(target, partitions=4)
    count = 20_000
    first, second = copiers(1), copiers(2)
    async with Producer(servers) as producer:
        for start_at in range(0, count, 2_000):
            values = [b"v%06d" % number for number in range(start_at, start_at + 2_000)]
            keys = [b"%d" % (number % 16) for number in range(start_at, start_at + 2_000)]
            await (await producer.send_many(topic_name, values, keys)).wait()
            await asyncio.sleep(0.5)
            if start_at == 6_000:
                first.kill()
            if start_at == 8_000:
                first = copiers(1)
            if start_at == 12_000:
                second.kill()
                second = copiers(3)
    deadline = time.monotonic() + 120
    copied: list[bytes] = []
    while len(copied) < count and time.monotonic() < deadline:
        await asyncio.sleep(2)
        copied = await asyncio.to_thread(read, servers, target)
    assert sorted(copied) == [b"V%06d" % number for number in range(count)]


@pytest.mark.extended("starts uvicorn in a process; group commit on real Kafka stays in the gate")
async def test_a_service_with_group_commit(kafka1: KafkaCluster, make_topic: MakeTopic) -> None:
    make_topic("orders", partitions=1)
    with tempfile.TemporaryFile() as log:
        url, process = await start("fastapi_group_commit", kafka1.bootstrap_servers, log)
        try:
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                while True:
                    try:
                        await client.get("/docs")
                        break
                    except httpx.TransportError:
                        assert process.returncode is None
                        await asyncio.sleep(0.1)
                order = {"customer": "7", "article": "apple", "pieces": 2}
                answers = await asyncio.gather(*(client.post("/orders", json=order) for _ in range(50)))
            assert {answer.status_code for answer in answers} == {201}
            assert len({answer.json()["offset"] for answer in answers}) == 50
        finally:
            process.terminate()
            await process.wait()
    assert len(await asyncio.to_thread(read, kafka1.bootstrap_servers, "orders")) == 50
