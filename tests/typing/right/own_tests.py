"""A user's tests: the cluster in memory, and the plugin's fixtures."""

from __future__ import annotations

from typing import assert_type

from aioproduce import Producer
from aioproduce.pytest_plugin import MakeProducer
from aioproduce.testing import ClusterThread, FakeCluster, FakeRecord


async def test_by_hand() -> None:
    async with FakeCluster(brokers=1, topics={"orders": 3}) as cluster:
        cluster.faults.fail_produce(6, topic="orders")
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"42")
        records = cluster.records("orders")
        assert_type(records, list[FakeRecord])
        assert records[0].value == b"42"


async def test_by_fixtures(
    kafka_cluster: ClusterThread, producer: Producer, make_producer: MakeProducer
) -> None:
    async with producer, make_producer(linger_ms=20) as second:
        await producer.send_and_wait("orders", b"42")
        await second.send_and_wait("orders", b"43")
    assert len(kafka_cluster.records("orders")) == 2
