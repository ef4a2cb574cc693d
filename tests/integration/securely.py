"""Our producer on each of its loops, made of Kafka's keys: what the tests of security send with.

1. A run sends half of its records with one producer and the rest with another: every run logs in twice. Where it
   is told to idle, one producer sends both halves, and its connections are closed for want of use between them.
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
    from collections.abc import Callable, Mapping, Sequence

    from aioproduce import RecordMetadata

RECORDS: Final = 200
PAIRS: Final = [(b"key-%d" % (number % 7), b"%d" % number) for number in range(RECORDS)]

# A bound for a hang, not a budget.
_PATIENCE: Final = 60.0
# Milliseconds of no use after which a connection is closed: above what a handshake and a login take.
_IDLE: Final = "1500"
_HALVES: Final = (PAIRS[: RECORDS // 2], PAIRS[RECORDS // 2 :])


def send(client: str, keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    """Send `PAIRS` to a topic, in their order, by two producers.

    Args:
        client: `asyncio`, `uvloop`, `trio` or `blocking`.
        keys: Kafka's keys.
        topic: The topic.
    """
    return CLIENTS[client]({**keys, "max.block.ms": "30000"}, topic, False)


def send_idle_send(client: str, keys: Mapping[str, Any], topic: str) -> list[RecordMetadata]:
    """Send `PAIRS` with one producer, whose connections are closed and opened again half-way."""
    return CLIENTS[client]({**keys, "connections.max.idle.ms": _IDLE, "max.block.ms": "30000"}, topic, True)


async def _send(keys: Mapping[str, Any], topic: str, idles: bool) -> list[RecordMetadata]:
    told: list[RecordMetadata] = []
    with anyio.fail_after(_PATIENCE):
        if not idles:
            for half in _HALVES:
                async with Producer(keys) as producer:
                    told += await _send_half(producer, topic, half)
            return told
        async with Producer(keys) as producer:
            told += await _send_half(producer, topic, _HALVES[0])
            while producer.metrics().value("connection-count"):  # noqa: ASYNC110 (nothing tells it)
                await anyio.sleep(0.02)
            told += await _send_half(producer, topic, _HALVES[1])
            assert producer.metrics().value("connection-creation-total") >= 2
    return told


async def _send_half(
    producer: Producer, topic: str, half: Sequence[tuple[bytes, bytes]]
) -> list[RecordMetadata]:
    deliveries = [await producer.send(topic, value, key) for key, value in half]
    return [await delivery for delivery in deliveries]


def _on_asyncio(keys: Mapping[str, Any], topic: str, idles: bool) -> list[RecordMetadata]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(_send(keys, topic, idles))


def _on_uvloop(keys: Mapping[str, Any], topic: str, idles: bool) -> list[RecordMetadata]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(keys, topic, idles))


def _on_trio(keys: Mapping[str, Any], topic: str, idles: bool) -> list[RecordMetadata]:
    return trio.run(_send, keys, topic, idles)


def _blocking(keys: Mapping[str, Any], topic: str, idles: bool) -> list[RecordMetadata]:
    told: list[RecordMetadata] = []
    if not idles:
        for half in _HALVES:
            with BlockingProducer(keys) as producer:
                told += _send_half_blocking(producer, topic, half)
        return told
    with BlockingProducer(keys) as producer:
        told += _send_half_blocking(producer, topic, _HALVES[0])
        deadline = time.monotonic() + _PATIENCE
        while producer.metrics().value("connection-count"):
            assert time.monotonic() < deadline, "its connections stay open"
            time.sleep(0.02)
        told += _send_half_blocking(producer, topic, _HALVES[1])
        assert producer.metrics().value("connection-creation-total") >= 2
    return told


def _send_half_blocking(
    producer: BlockingProducer, topic: str, half: Sequence[tuple[bytes, bytes]]
) -> list[RecordMetadata]:
    deliveries = [producer.send(topic, value, key) for key, value in half]
    return [delivery.result() for delivery in deliveries]


CLIENTS: Final[dict[str, Callable[[Mapping[str, Any], str, bool], list[RecordMetadata]]]] = {
    "asyncio": _on_asyncio,
    "uvloop": _on_uvloop,
    "trio": _on_trio,
    "blocking": _blocking,
}
