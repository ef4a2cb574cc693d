"""confluent-kafka's AIOProducer: it passes thousands of records at a time to librdkafka on a thread pool.

Our drop-in for it runs the same code with another import (`drop_in_confluent_client.py`). Theirs cannot wait for
room in its queue, so the queue is made large enough for a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from benchmarks import latency
from benchmarks.cases import Case, Outcome
from benchmarks.clients import LOOPS
from benchmarks.clients.confluent_client import settings_of
from benchmarks.clients.measuring import AsyncMode, measure_async, run


@asynccontextmanager
async def opened(case: Case, bootstrap_servers: str, imported_from: str, **more: Any) -> AsyncIterator[Any]:
    """A producer with the case's settings."""
    AIOProducer = import_module(imported_from).AIOProducer
    settings = {**settings_of(case, bootstrap_servers), "queue.buffering.max.kbytes": 2**20}
    producer = AIOProducer(settings, **more)
    try:
        yield producer
    finally:
        await producer.close()


async def await_each(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """`await produce()` in a loop that keeps the futures, `flush()`, then `await` each."""
    produce, topic = producer.produce, case.topic
    futures = [await produce(topic, value) for value in values]
    await producer.flush()
    for future in futures:
        await future
    return len(futures)


async def gather(producer: Any, case: Case, values: Iterable[bytes], count: int) -> int:
    """The same, with `asyncio.gather` over all futures."""
    produce, topic = producer.produce, case.topic
    futures = [await produce(topic, value) for value in values]
    await producer.flush()
    return len(await asyncio.gather(*futures))


_MODES: dict[str, tuple[int, AsyncMode[Any]]] = {
    "await-each": (100_000, await_each),
    "gather": (100_000, gather),
}


class ConfluentAioClient:
    """`AIOProducer`, confluent-kafka's or the drop-in.

    Args:
        name: Its name in the tables.
        imported_from: The module to import it from.
        package: The distribution whose version is shown.
        speed: The expected rate, as a multiple of theirs, for the lengths of runs.
    """

    loops = LOOPS

    def __init__(self, name: str, imported_from: str, package: str, speed: int) -> None:
        self.name = name
        self.modes: Mapping[str, int] = {mode: rate * speed for mode, (rate, _) in _MODES.items()}
        self._imported_from = imported_from
        self._package = package

    def unavailable(self) -> str | None:
        try:
            found = find_spec("confluent_kafka.aio")
        except ModuleNotFoundError:
            found = None
        return None if found else "not installed (pip install 'confluent-kafka>=2.13')"

    def version(self) -> str:
        return version(self._package)

    def opened(self, case: Case, bootstrap_servers: str, **more: Any) -> AbstractAsyncContextManager[Any]:
        """A producer with the case's settings, closed at the end."""
        return opened(case, bootstrap_servers, self._imported_from, **more)

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        outcome: Outcome = run(
            case, measure_async(case, self.opened(case, bootstrap_servers), _MODES[case.mode][1])
        )
        return outcome

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        # With its default of 1,000 records to a batch, or one second, nothing at 5,000/s would be below 100 ms.
        measure = latency.measure_async(
            case,
            self.opened(case, bootstrap_servers, batch_size=1),
            lambda producer, topic, value: producer.produce(topic, value),
            lambda producer: producer.flush(),
        )
        outcome: Outcome = run(case, measure)
        return outcome


CLIENT = ConfluentAioClient("confluent AIO", "confluent_kafka.aio", "confluent-kafka", speed=1)
