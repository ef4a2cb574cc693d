"""Our producer on each of its loops, made of Kafka's keys: what the tests of security send with.

1. A run sends half of its records, waits until its connections were closed for want of use, and sends the rest on
   new ones: every run logs in twice.
2. Each record's outcome is awaited, and none may be an error.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
import uvloop

from aioproduce import BlockingProducer, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce import RecordMetadata

RECORDS: Final = 200
PAIRS: Final = [(b"key-%d" % (number % 7), b"%d" % number) for number in range(RECORDS)]

# A bound for a hang, not a budget.
_PATIENCE: Final = 60.0
# Milliseconds of no use after which a connection is closed: above what a handshake and a login take.
_IDLE: Final = "1500"


def send(client: str, keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    """Send `PAIRS` to a topic, in their order.

    Args:
        client: `asyncio`, `uvloop`, `trio` or `blocking`.
        keys: Kafka's keys.
        topic: The topic.
    """
    return CLIENTS[client]({**keys, "connections.max.idle.ms": _IDLE, "max.block.ms": "30000"}, topic)


async def _send(keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    told: list[RecordMetadata] = []
    with anyio.fail_after(_PATIENCE):
        async with Producer(keys) as producer:
            for half in (PAIRS[: RECORDS // 2], PAIRS[RECORDS // 2 :]):
                deliveries = [await producer.send(topic, value, key) for key, value in half]
                told += [await delivery for delivery in deliveries]
                if len(told) < RECORDS:
                    while producer.metrics().value("connection-count"):  # noqa: ASYNC110 (nothing tells it)
                        await anyio.sleep(0.02)
            assert producer.metrics().value("connection-creation-total") >= 2
    return told


def _on_asyncio(keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(_send(keys, topic))


def _on_uvloop(keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(keys, topic))


def _on_trio(keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    return trio.run(_send, keys, topic)


def _blocking(keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    told: list[RecordMetadata] = []
    with BlockingProducer(keys) as producer:
        for half in (PAIRS[: RECORDS // 2], PAIRS[RECORDS // 2 :]):
            deliveries = [producer.send(topic, value, key) for key, value in half]
            told += [delivery.result() for delivery in deliveries]
            if len(told) < RECORDS:
                deadline = time.monotonic() + _PATIENCE
                while producer.metrics().value("connection-count"):
                    assert time.monotonic() < deadline, "its connections stay open"
                    time.sleep(0.02)
        assert producer.metrics().value("connection-creation-total") >= 2
    return told


CLIENTS: Final[dict[str, Callable[[Mapping[str, Any], str], list[RecordMetadata]]]] = {
    "asyncio": _on_asyncio,
    "uvloop": _on_uvloop,
    "trio": _on_trio,
    "blocking": _blocking,
}
