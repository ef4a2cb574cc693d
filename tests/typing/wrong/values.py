"""Keys and values that are wrong. `# error:` names what pyright and mypy must say of a line."""

from __future__ import annotations

from dataclasses import dataclass

from aioproduce import BlockingProducer, Producer


@dataclass
class Order:
    id: int


def order_json(order: Order) -> bytes:
    return b"%d" % order.id


async def without_serializers(producer: Producer) -> None:
    await producer.send("orders", "42")  # error: reportArgumentType, arg-type
    await producer.send("orders", b"42", key="k")  # error: reportArgumentType, arg-type
    await producer.send("orders", 42)  # error: reportArgumentType, arg-type
    await producer.send_and_wait("orders", "42")  # error: reportArgumentType, arg-type
    producer.try_send("orders", "42")  # error: reportArgumentType, arg-type
    await producer.send_many("orders", ["42"])  # error: reportArgumentType, list-item
    producer.create_batch().append("42")  # error: reportArgumentType, arg-type
    async with producer.transaction() as txn:
        await txn.send("orders", "42")  # error: reportArgumentType, arg-type
    async with producer.group_commit() as group:
        await group.send("orders", "42")  # error: reportArgumentType, arg-type


async def made_here() -> None:
    async with Producer("localhost:9092", linger_ms=5) as producer:
        await producer.send("orders", "42")  # error: reportArgumentType, arg-type
        await producer.send(42, b"42")  # error: reportArgumentType, arg-type
        await producer.send("orders", b"42", partition="3")  # error: reportArgumentType, arg-type
        await producer.send("orders", b"42", on_delivery=print_one)  # error: reportArgumentType, arg-type
        await producer.send("orders", b"42", timeOut=3)  # error: reportCallIssue, call-arg
    async with Producer("localhost:9092", value_serializer=order_json) as orders:
        await orders.send("orders", b"42")  # error: reportArgumentType, arg-type
        await orders.send("orders", Order(1), key="k")  # error: reportArgumentType, arg-type
        await takes_bytes(orders)  # error: reportArgumentType, arg-type


def print_one(error: int) -> None:
    print(error)


async def takes_bytes(producer: Producer) -> None:
    await producer.send("orders", b"42")


def in_threads() -> None:
    with BlockingProducer("localhost:9092") as producer:
        producer.send("orders", "42")  # error: reportArgumentType, arg-type
        producer.send_many("orders", ["42"])  # error: reportArgumentType, list-item
