"""Keys and values that are objects: what a producer takes is what its serializers take."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from aioproduce import BlockingProducer, Producer, ProducerConfig
from aioproduce.serializers import JsonSerializer, SerializingProducer


@dataclass
class Order:
    id: int


def order_json(order: Order) -> bytes:
    return json.dumps(asdict(order)).encode()


async def by_functions() -> None:
    async with Producer("localhost:9092", key_serializer=str.encode, value_serializer=order_json) as producer:
        await producer.send("orders", Order(1), key="customer-7")
        await producer.send("orders", None, key="customer-7")
        await producer.send_many("orders", [Order(1), None], ["a", None])
        producer.create_batch().append(Order(1), "a")
        await takes_orders(producer)
    async with Producer("localhost:9092", value_serializer=order_json) as producer_of_bytes_keys:
        await producer_of_bytes_keys.send("orders", Order(1), key=b"customer-7")


async def takes_orders(producer: Producer[str, Order]) -> None:
    await producer.send_and_wait("orders", Order(2), "customer-7")
    async with producer.transaction() as txn:
        await txn.send("orders", Order(3), key="customer-7")
    async with producer.group_commit(interval=0.05) as group:
        await group.send("orders", Order(4), key="customer-7")


async def said_by_hand(config: ProducerConfig) -> None:
    # A lambda does not tell what it takes, nor does a configuration.
    async with Producer[bytes, Any](
        "h:9092", value_serializer=lambda value: json.dumps(value).encode()
    ) as one:
        await one.send("orders", {"id": 1}, key=b"customer-7")
    async with Producer[str, Order](config) as another:
        await takes_orders(another)


async def takes_bytes(producer: Producer[bytes, bytes]) -> None:
    await producer.send("orders", b"42")


async def of_any_kind(producer: Producer[Any, Any]) -> None:
    await producer.send("orders", "whatever its serializers take")


async def who_takes_whom() -> None:
    await takes_bytes(Producer("localhost:9092"))
    await of_any_kind(Producer("localhost:9092"))
    await of_any_kind(Producer("localhost:9092", value_serializer=order_json))


async def by_serializers() -> None:
    async with SerializingProducer(
        "localhost:9092", value_serializer=JsonSerializer(), linger_ms=5
    ) as producer:
        delivery = await producer.send("orders", {"id": 42})
        print((await delivery).offset)


def in_threads() -> None:
    with BlockingProducer("localhost:9092", value_serializer=order_json) as producer:
        print(producer.send("orders", Order(1)).result(timeout=10).offset)
        with producer.transaction() as txn:
            txn.send_many("orders", [Order(1), Order(2)])
