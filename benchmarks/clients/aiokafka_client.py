"""aiokafka: one request in flight per broker, random partitions, memory bounded only by one batch per partition.

Our drop-in for it runs the same code with another import (`drop_in_client.py`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from benchmarks import latency
from benchmarks.cases import PARTITIONS, Case, Outcome
from benchmarks.clients import LOOPS
from benchmarks.clients.measuring import AsyncMode, in_tasks, measure_async, run


@asynccontextmanager
async def opened(case: Case, bootstrap_servers: str, imported_from: str) -> AsyncIterator[Any]:
    """A producer with the case's settings."""
    settings = case.settings
    context = ssl.create_default_context(cafile=settings.ca) if settings.ca else None
    producer = import_module(imported_from).AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all" if settings.acks == "all" else int(settings.acks),
        enable_idempotence=settings.is_idempotent,
        linger_ms=settings.linger_ms,
        max_batch_size=settings.batch_size,
        compression_type=None if settings.compression == "none" else settings.compression,
        max_request_size=2 * 2**20,
        security_protocol="SSL" if context else "PLAINTEXT",
        ssl_context=context,
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def await_each(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop that keeps the futures, then `await` each."""
    send, topic = producer.send, case.topic
    futures = [await send(topic, value) for value in values]
    for future in futures:
        await future
    return len(futures)


async def gather(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop, then `asyncio.gather` over all futures."""
    send, topic = producer.send, case.topic
    return len(await asyncio.gather(*[await send(topic, value) for value in values]))


async def dropped(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop, nothing kept, `flush()` at the end: a failure would be logged by the future."""
    send, topic = producer.send, case.topic
    for value in values:
        await send(topic, value)
    await producer.flush()
    return count


async def tasks(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """1,000 tasks of `send_and_wait`."""
    return await in_tasks(producer.send_and_wait, case, values, count)


async def send_batch(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`create_batch()`, appended to until it is full, `send_batch()` to the partitions in turn."""
    futures: list[Any] = []
    sent = 0

    async def give(batch: Any) -> None:
        nonlocal sent
        sent += batch.record_count()
        futures.append(await producer.send_batch(batch, case.topic, partition=len(futures) % PARTITIONS))

    batch = producer.create_batch()
    for value in values:
        if batch.append(key=None, value=value, timestamp=None) is None:
            await give(batch)
            batch = producer.create_batch()
            batch.append(key=None, value=value, timestamp=None)
    await give(batch)
    for future in futures:
        await future
    return sent


_MODES: dict[str, tuple[int, AsyncMode[Any]]] = {
    "await-each": (80_000, await_each),
    "dropped": (80_000, dropped),
    "gather": (80_000, gather),
    "tasks": (60_000, tasks),
    "send-batch": (800_000, send_batch),
}


class AiokafkaClient:
    """`AIOKafkaProducer`, aiokafka's or the drop-in.

    Args:
        name: As in `Client`.
        imported_from: The module to import it from.
        package: The distribution that is measured.
        speed: The expected rates, as a multiple of aiokafka's.
    """

    loops = LOOPS

    def __init__(self, name: str, imported_from: str, package: str, speed: int) -> None:
        self.name = name
        self.modes: Mapping[str, int] = {mode: rate * speed for mode, (rate, _) in _MODES.items()}
        self._imported_from = imported_from
        self._package = package

    def unavailable(self) -> str | None:
        return None if find_spec("aiokafka") else "not installed (pip install aiokafka)"

    def version(self) -> str:
        return version(self._package)

    def opened(self, case: Case, bootstrap_servers: str) -> AbstractAsyncContextManager[Any]:
        """A producer with the case's settings."""
        return opened(case, bootstrap_servers, self._imported_from)

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        outcome: Outcome = run(
            case, measure_async(case, self.opened(case, bootstrap_servers), _MODES[case.mode][1])
        )
        return outcome

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        measure = latency.measure_async(
            case,
            self.opened(case, bootstrap_servers),
            lambda producer, topic, value: producer.send(topic, value),
            lambda producer: producer.flush(),
        )
        outcome: Outcome = run(case, measure)
        return outcome


CLIENT = AiokafkaClient("aiokafka", "aiokafka", "aiokafka", speed=1)
