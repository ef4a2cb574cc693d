"""The ways of sending that have a budget, as a user writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from aioproduce import Producer
from tests.budget.world import TOPIC

Mode: TypeAlias = Callable[[Producer, int], Awaitable[None]]
"""Sends so many records, and returns when all are acknowledged."""

VALUE: Final = b"v" * 100
LARGE_VALUE: Final = b"v" * 1000
KEYS: Final = [b"customer-%d" % number for number in range(1000)]
TASKS: Final = 100
ALONE_OF: Final = 10
"""`alone()` sends one of so many records, since each costs a lot."""


async def await_each(producer: Producer, records: int) -> None:
    """`await send()` in a loop, then `await` each delivery."""
    deliveries = [await producer.send(TOPIC, VALUE) for _ in range(records)]
    for delivery in deliveries:
        await delivery


async def dropped(producer: Producer, records: int) -> None:
    """`await send()` in a loop, deliveries dropped, `flush()` at the end."""
    for _ in range(records):
        await producer.send(TOPIC, VALUE)
    await producer.flush()


async def keyed(producer: Producer, records: int) -> None:
    """The same with keys."""
    for number in range(records):
        await producer.send(TOPIC, VALUE, KEYS[number % 1000])
    await producer.flush()


async def gathered(producer: Producer, records: int) -> None:
    """`await send()` in a loop, then `asyncio.gather()` of all deliveries."""
    await asyncio.gather(*[await producer.send(TOPIC, VALUE) for _ in range(records)])


async def tasks(producer: Producer, records: int) -> None:
    """Concurrent tasks that `send_and_wait()` one record after the other."""

    async def one() -> None:
        for _ in range(records // TASKS):
            await producer.send_and_wait(TOPIC, VALUE)

    await asyncio.gather(*[one() for _ in range(TASKS)])


async def alone(producer: Producer, records: int) -> None:
    """One record at a time, awaited, with `linger.ms=0`: what a batch and a request cost. One of `ALONE_OF`."""
    for _ in range(records // ALONE_OF):
        await producer.send_and_wait(TOPIC, VALUE)


async def large(producer: Producer, records: int) -> None:
    """Values of 1,000 bytes, 64 a batch, deliveries dropped, `flush()` at the end."""
    for _ in range(records):
        await producer.send(TOPIC, LARGE_VALUE)
    await producer.flush()


async def send_many(producer: Producer, records: int) -> None:
    """One `send_many()`, then `flush()`."""
    await producer.send_many(TOPIC, [VALUE] * records)
    await producer.flush()


async def callback(producer: Producer, records: int) -> None:
    """`await send(on_delivery=...)` in a loop, `flush()` at the end."""
    outcomes: list[object] = []
    for _ in range(records):
        await producer.send(TOPIC, VALUE, on_delivery=lambda metadata, error: outcomes.append(error))
    await producer.flush()
    assert outcomes == [None] * records


MODES: Final[dict[str, Mode]] = {
    mode.__name__: mode
    for mode in (await_each, dropped, keyed, gathered, tasks, callback, send_many, alone, large)
}


async def in_transaction(producer: Producer, records: int) -> None:
    """As `dropped`, all of them in one transaction."""
    async with producer.transaction() as txn:
        for _ in range(records):
            await txn.send(TOPIC, VALUE)
