"""FastStream publishes through a Producer: what it would have sent itself, and nothing by itself."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import faststream.confluent
import faststream.kafka
import pytest
from faststream.exceptions import FeatureNotSupportedException
from faststream.kafka import KafkaBroker, KafkaPublishMessage, TestKafkaBroker
from pydantic import BaseModel

from aioproduce import Producer
from aioproduce.errors import InvalidRecordError, MissingExtraError, NotStartedError
from aioproduce.integrations.faststream import PublishThrough
from aioproduce.testing import FakeCluster


class Order(BaseModel):
    number: int


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=1, topics={"theirs": 3, "ours": 3, "orders": 3}) as started:
        yield started


def broker_of(cluster: FakeCluster, *middlewares: Any, **more: Any) -> KafkaBroker:
    return KafkaBroker(cluster.bootstrap_servers, middlewares=middlewares, logger=None, **more)


def seen(cluster: FakeCluster, topic: str) -> list[tuple[Any, ...]]:
    return [(record.key, record.value, record.headers, record.timestamp) for record in cluster.records(topic)]


BODIES: dict[str, Any] = {
    "bytes": b"\x00\xff",
    "text": "käse",
    "empty": "",
    "mapping": {"a": [1, None]},
    "model": Order(number=7),
    "list": [Order(number=1), Order(number=2)],
    "null": None,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("key", [None, b"key"], ids=["keyless", "keyed"])
async def test_a_record_is_the_one_that_faststream_would_send(
    cluster: FakeCluster, body: Any, key: bytes | None
) -> None:
    """FastStream's own producer (aiokafka) is the oracle."""
    more: dict[str, Any] = {
        "key": key,
        "timestamp_ms": 1_700_000_000_000,
        "headers": {"x": "y"},
        "correlation_id": "c",
        "reply_to": "r",
    }
    async with broker_of(cluster) as theirs:
        await theirs.publish(body, "theirs", **more)
    async with (
        Producer(cluster.bootstrap_servers) as producer,
        broker_of(cluster, PublishThrough(producer), consumer_only=True) as ours,
    ):
        metadata = await ours.publish(body, "ours", **more)
    assert seen(cluster, "ours") == seen(cluster, "theirs")
    assert (metadata.topic, metadata.offset, metadata.timestamp) == ("ours", 0, 1_700_000_000_000)


async def test_a_batch_is_the_one_that_faststream_would_send(cluster: FakeCluster) -> None:
    messages = ["text", b"bytes", Order(number=3), KafkaPublishMessage({"a": 1}, key=b"its own")]
    more: dict[str, Any] = {"partition": 2, "timestamp_ms": 1_700_000_000_000, "correlation_id": "c"}
    async with broker_of(cluster) as theirs:
        await theirs.publish_batch(*messages, topic="theirs", **more)
    async with (
        Producer(cluster.bootstrap_servers) as producer,
        broker_of(cluster, PublishThrough(producer), consumer_only=True) as ours,
    ):
        metadata = await ours.publish_batch(*messages, topic="ours", **more)
    assert len(cluster.records("ours", 2)) == 4
    assert seen(cluster, "ours") == seen(cluster, "theirs")
    assert (metadata.partition, metadata.offset) == (2, 0)


async def test_a_batch_that_does_not_fit_is_not_sent_in_part(cluster: FakeCluster) -> None:
    async with (
        Producer(cluster.bootstrap_servers, batch_size=1000) as producer,
        broker_of(cluster, PublishThrough(producer), consumer_only=True) as broker,
    ):
        with pytest.raises(InvalidRecordError, match="full at message 1 of 2"):
            await broker.publish_batch(bytes(700), bytes(700), topic="ours")
    assert cluster.records("ours") == []


async def test_without_confirmation_a_future_is_returned(cluster: FakeCluster) -> None:
    async with (
        Producer(cluster.bootstrap_servers) as producer,
        broker_of(cluster, PublishThrough(producer), consumer_only=True) as broker,
    ):
        futures: list[Any] = [
            await broker.publish("v", "ours", partition=0, no_confirm=True),
            await broker.publish_batch("v", "w", topic="ours", partition=0, no_confirm=True),
        ]
        assert all(asyncio.isfuture(future) for future in futures)
        assert [(await future).offset for future in futures] == [0, 1]


async def test_a_publisher_and_what_a_handler_returns(cluster: FakeCluster) -> None:
    handled = asyncio.Event()
    async with Producer(cluster.bootstrap_servers) as producer:
        broker = broker_of(cluster, PublishThrough(producer), consumer_only=True)

        @broker.subscriber("orders", auto_offset_reset="earliest")
        @broker.publisher("ours", key=b"its key")
        async def on_order(order: Order) -> dict[str, int]:
            handled.set()
            return {"twice": order.number * 2}

        async with broker:
            await broker.start()
            await broker.publish(Order(number=21), "orders")
            await handled.wait()
        # Stopped, the broker has waited for its handlers, and what they returned was published.
    (record,) = cluster.records("ours")
    assert (record.key, record.value) == (b"its key", b'{"twice":42}')


async def test_the_confluent_package(cluster: FakeCluster) -> None:
    async with (
        Producer(cluster.bootstrap_servers) as producer,
        faststream.confluent.KafkaBroker(
            cluster.bootstrap_servers, middlewares=[PublishThrough(producer)], logger=None
        ) as broker,
    ):
        await broker.publish(Order(number=1), "ours", key=b"k", partition=1)
        await broker.publish_batch("a", "b", topic="ours", partition=2)
        assert producer.metrics().value("record-send-total") == 3
    assert [record.value for record in cluster.records("ours", 1)] == [b'{"number":1}']
    assert [record.value for record in cluster.records("ours", 2)] == [b"a", b"b"]


async def test_errors_are_the_producers(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    async with broker_of(cluster, PublishThrough(producer), consumer_only=True) as broker:
        with pytest.raises(NotStartedError):
            await broker.publish("v", "ours")
        async with producer:
            with pytest.raises(InvalidRecordError):
                await broker.publish("v", "no topic's name")


async def test_a_request_is_faststreams_to_refuse(cluster: FakeCluster) -> None:
    async with (
        Producer(cluster.bootstrap_servers) as producer,
        broker_of(cluster, PublishThrough(producer), consumer_only=True) as broker,
    ):
        with pytest.raises(FeatureNotSupportedException):
            await broker.request("v", "ours")
    assert cluster.records("ours") == []


async def test_suspended_in_their_test_broker() -> None:
    """No cluster at all: TestKafkaBroker's producer is a fake, which the middleware lets through."""
    through = PublishThrough(Producer("localhost:9"))
    broker = KafkaBroker(middlewares=[through], consumer_only=True, logger=None)
    got: list[Order] = []

    @broker.subscriber("orders")
    async def on_order(order: Order) -> None:
        got.append(order)

    async with TestKafkaBroker(broker):
        with through.suspended():
            await broker.publish(Order(number=5), "orders")
        with pytest.raises(NotStartedError):
            await broker.publish(Order(number=6), "orders")
    assert got == [Order(number=5)]


async def test_bytes_made_by_an_encoder_of_ones_own(cluster: FakeCluster) -> None:
    async def encode(message: Any, /) -> tuple[bytes, str | None]:
        return repr(message).encode(), "text/x-repr"

    async with (
        Producer(cluster.bootstrap_servers) as producer,
        broker_of(cluster, PublishThrough(producer, encode=encode), consumer_only=True) as broker,
    ):
        await broker.publish(Order(number=1), "ours")
    (record,) = cluster.records("ours")
    assert record.value == b"Order(number=1)"
    assert ("content-type", b"text/x-repr") in record.headers


def test_without_faststream_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faststream", None)
    monkeypatch.delitem(sys.modules, "aioproduce.integrations.faststream")
    with pytest.raises(MissingExtraError, match=r"aioproduce\[faststream\]"):
        importlib.import_module("aioproduce.integrations.faststream")


async def test_the_example(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.delitem(sys.modules, "examples.faststream_app", raising=False)
    example: Any = importlib.import_module("examples.faststream_app")
    running = asyncio.create_task(example.app.run(log_level=logging.CRITICAL))
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b'{"customer": "7", "article": "apple", "pieces": 5}')
    while not cluster.topics.get("invoices") or not cluster.records("invoices"):
        assert not running.done()
        await asyncio.sleep(0.01)
    example.app.exit()
    await running
    (invoice,) = cluster.records("invoices")
    assert (invoice.key, invoice.value) == (b"7", b'{"customer":"7","total":15}')
