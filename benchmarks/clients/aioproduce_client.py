"""Our client. Modes without a method in this version are left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import cycle, islice
from typing import Any

from aioproduce import Producer
from benchmarks import latency
from benchmarks.cases import PARTITIONS, Case, Outcome
from benchmarks.clients import LOOPS
from benchmarks.clients.measuring import AsyncMode, in_tasks, measure_async, run
from benchmarks.process import payload

# Values given to one bulk call.
CHUNK = 10_000


@asynccontextmanager
async def opened(case: Case, bootstrap_servers: str, **more: Any) -> AsyncIterator[Producer]:
    """A producer with the case's settings."""
    settings = case.settings
    if settings.ca:
        more |= {
            "security_protocol": "SSL",
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": settings.ca,
        }
    more |= {"acks": settings.acks, "compression_type": settings.compression}
    async with Producer(
        bootstrap_servers,
        enable_idempotence=settings.is_idempotent,
        linger_ms=settings.linger_ms,
        batch_size=settings.batch_size,
        buffer_memory=settings.buffer_memory,
        **more,
    ) as producer:
        yield producer
        if producer.unobserved_failures:
            raise RuntimeError(f"{producer.unobserved_failures} records failed")


async def await_each(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop that keeps the deliveries, then `await` each."""
    send, topic = producer.send, case.topic
    deliveries = [await send(topic, value) for value in values]
    for delivery in deliveries:
        await delivery
    return len(deliveries)


async def dropped(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop, nothing kept, `flush()` at the end."""
    send, topic = producer.send, case.topic
    for value in values:
        await send(topic, value)
    await producer.flush()
    return count - producer.unobserved_failures


async def gather(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send()` in a loop, then `asyncio.gather` over all deliveries."""
    send, topic = producer.send, case.topic
    return len(await asyncio.gather(*[await send(topic, value) for value in values]))


async def tasks(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """1,000 tasks of `send_and_wait`."""
    return await in_tasks(producer.send_and_wait, case, values, count)


async def callback(producer: Producer, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await send(on_delivery=...)` in a loop, then `flush()`."""
    send, topic = producer.send, case.topic
    acknowledged = 0

    def on_delivery(metadata: object, error: BaseException | None) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    for value in values:
        await send(topic, value, on_delivery=on_delivery)
    await producer.flush()
    return acknowledged


async def send_many(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`send_many()` of 10,000 values at a time, then wait for each handle, which has a result for each record."""
    source, handles = iter(values), []
    while chunk := list(islice(source, CHUNK)):
        handles.append(await producer.send_many(case.topic, chunk))
    return await _settled(handles)


async def send_batch(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`append_many()` until a batch is full, `send_batch()` to partition after partition, then wait for each."""
    source = iter(values)
    handles: list[Any] = []
    batch = producer.create_batch()

    async def give() -> None:
        handles.append(await producer.send_batch(batch, case.topic, partition=len(handles) % PARTITIONS))

    while chunk := list(islice(source, CHUNK)):
        start = batch.append_many(chunk)
        while start < len(chunk):
            await give()
            batch = producer.create_batch()
            start += batch.append_many(chunk, start=start)
    await give()
    return await _settled(handles)


async def send_arrow(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`send_arrow()` of 10,000 rows at a time, which are Arrow data before the clock starts."""
    rows = _rows(case.settings.value_size)
    handles = [
        await producer.send_arrow(case.topic, rows.slice(0, min(CHUNK, count - start)))
        for start in range(0, count, CHUNK)
    ]
    return await _settled(handles)


@cache
def _rows(size: int) -> Any:
    """Return CHUNK rows of the usual values."""
    import pyarrow

    return pyarrow.record_batch(
        {"value": pyarrow.array(islice(cycle(payload(size)), CHUNK), pyarrow.binary())}
    )


async def _settled(handles: Iterable[Any]) -> int:
    """Wait for bulk handles; a failed record raises."""
    acknowledged = 0
    for handle in handles:
        if hasattr(handle, "wait"):
            await handle.wait()
        else:
            await handle
        acknowledged += len(handle)
    return acknowledged


_MODES: dict[str, tuple[int, AsyncMode[Any], str]] = {
    "await-each": (500_000, await_each, "send"),
    "dropped": (600_000, dropped, "send"),
    "gather": (250_000, gather, "send"),
    "tasks": (250_000, tasks, "send_and_wait"),
    "callback": (300_000, callback, "send"),
    "send-many": (3_000_000, send_many, "send_many"),
    "send-batch": (2_500_000, send_batch, "send_batch"),
    **({"send-arrow": (3_000_000, send_arrow, "send_arrow")} if find_spec("pyarrow") else {}),
}


class AioproduceClient:
    """`aioproduce.Producer`."""

    name = "aioproduce"
    loops = LOOPS

    @property
    def modes(self) -> Mapping[str, int]:
        return {mode: rate for mode, (rate, _, method) in _MODES.items() if hasattr(Producer, method)}

    def unavailable(self) -> str | None:
        return None

    def version(self) -> str:
        return version("aioproduce")

    def opened(self, case: Case, bootstrap_servers: str) -> AbstractAsyncContextManager[Producer]:
        """A producer with the case's settings."""
        return opened(case, bootstrap_servers)

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        mode = _MODES[case.mode][1]
        outcome: Outcome = run(case, measure_async(case, opened(case, bootstrap_servers), mode))
        return outcome

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        measure = latency.measure_async(
            case,
            opened(case, bootstrap_servers),
            lambda p, topic, value: p.send(topic, value),
            Producer.flush,
        )
        outcome: Outcome = run(case, measure)
        return outcome


CLIENT = AioproduceClient()
