"""Tests of a service that produces, with aioproduce's pytest plugin: each test has its own cluster in memory.

python -m pytest examples/test_with_plugin.py

anyio's plugin runs the tests; it is installed with aioproduce. docs/how-to/testing.md shows other plugins.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pytest

from aioproduce.errors import DeliveryError

if TYPE_CHECKING:
    from aioproduce import Producer
    from aioproduce.testing import ClusterThread

pytestmark = [pytest.mark.anyio, pytest.mark.aioproduce(topics={"orders": 6, "rejected": 1})]


# -- the service ---


@dataclass(frozen=True)
class Order:
    """An order of a customer."""

    id: int
    customer: str
    cents: int


class Shop:
    """Accepts orders and writes them to Kafka."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def take(self, order: Order) -> bool:
        """Write the order to Kafka; return whether it is accepted and in the log."""
        topic = "orders" if order.cents > 0 else "rejected"
        value = json.dumps(asdict(order)).encode()
        try:
            await self._producer.send_and_wait(topic, value, key=order.customer.encode())
        except DeliveryError:
            return False
        return topic == "orders"


# -- its tests ---


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_an_order_is_told_once(kafka_cluster: ClusterThread, producer: Producer) -> None:
    async with producer:
        assert await Shop(producer).take(Order(42, "ann", 1250))

    kafka_cluster.assert_produced(
        "orders", json={"id": 42, "customer": "ann", "cents": 1250}, key="ann", count=1
    )
    kafka_cluster.assert_nothing_produced("rejected")


async def test_what_costs_nothing_is_rejected(kafka_cluster: ClusterThread, producer: Producer) -> None:
    async with producer:
        assert not await Shop(producer).take(Order(42, "ann", 0))

    kafka_cluster.assert_nothing_produced("orders")
    assert kafka_cluster.produced("rejected").json[0]["id"] == 42


async def test_a_customers_orders_keep_their_order(kafka_cluster: ClusterThread, producer: Producer) -> None:
    async with producer:
        shop = Shop(producer)
        for number in range(10):
            await shop.take(Order(number, "ann" if number % 2 else "bob", 100))

    assert [order["id"] for order in kafka_cluster.produced("orders").with_key("ann").json] == [1, 3, 5, 7, 9]


async def test_a_broker_that_dies_loses_nothing(kafka_cluster: ClusterThread, producer: Producer) -> None:
    async with producer:
        shop = Shop(producer)
        assert await shop.take(Order(1, "ann", 100))
        [first] = kafka_cluster.produced("orders")
        kafka_cluster.stop_broker(kafka_cluster.leader("orders", first.partition))
        assert await shop.take(Order(2, "ann", 100))

    assert [order["id"] for order in kafka_cluster.produced("orders").json] == [1, 2]


async def test_an_order_that_kafka_refuses_is_not_taken(
    kafka_cluster: ClusterThread, producer: Producer
) -> None:
    kafka_cluster.faults.fail_produce(87, topic="orders")  # INVALID_RECORD
    async with producer:
        assert not await Shop(producer).take(Order(42, "ann", 1250))

    kafka_cluster.assert_nothing_produced()
