"""Records, ways to send them, and what is opened for one round. Used by the measurements.

1. Each round has a new queue in a new folder, which is removed after it: no round pays for an earlier one's files.
2. Clocks run from before the first measured record until the last one is on disk (or acknowledged); opening, a
   thousand records before it, and closing are not measured.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias, final

import uvloop

from aioproduce import Producer
from aioproduce.spool import SpooledProducer
from benchmarks.process import cpu_seconds, payload

TOPIC: Final = "bench"
PARTITIONS: Final = 6
VALUES: Final = payload(100)
CHUNK: Final = 10_000
ROWS: Final = [VALUES[number % len(VALUES)] for number in range(CHUNK)]
TASKS: Final = 1_000
WARM_UP: Final = 1_000
SETTINGS: Final[Mapping[str, Any]] = {
    "linger_ms": 5,
    "batch_size": 65_536,
    "reconnect_backoff_ms": 1_000,
    "reconnect_backoff_max_ms": 1_000,
}
"""The same for both. An unreachable cluster is tried once a second, which costs nothing."""

Send: TypeAlias = Callable[[bytes], Awaitable[Any]]
SendMany: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Any]]


class Cost(NamedTuple):
    """What a turn took.

    Attributes:
        records: Its records.
        seconds: From the first to the last.
        cpu: Processor seconds.
    """

    records: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Processor microseconds of a record."""
        return self.cpu / self.records * 1e6


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A target and what was measured.

    Attributes:
        what: In words.
        measured: The median of the rounds.
        bound: The target.
        is_least: Whether the bound is the least allowed value, or the largest.
        spread: The least and the largest round.
    """

    what: str
    measured: float
    bound: float
    is_least: bool
    spread: tuple[float, float]

    @property
    def is_met(self) -> bool:
        """Whether it is met."""
        return self.measured >= self.bound if self.is_least else self.measured <= self.bound

    def as_json(self) -> dict[str, Any]:
        """Return it with its verdict."""
        return {**asdict(self), "is_met": self.is_met}


def target(what: str, rounds: Sequence[float], bound: float, *, is_least: bool = True) -> Target:
    """Judge the median of some rounds."""
    return Target(what, median(rounds), bound, is_least, (min(rounds), max(rounds)))


def paired(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a new folder, and remove it afterwards."""
    made = Path(tempfile.mkdtemp(prefix="round-", dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def nobody() -> Iterator[str]:
    """Yield an address that refuses connections: a cluster that is away."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@asynccontextmanager
async def queue(servers: str, folder: Path, sync: str, **more: Any) -> AsyncIterator[SpooledProducer]:
    """Open a queue that is closed without forwarding what it has left."""
    producer = SpooledProducer(servers, directory=folder / "spool", sync=sync, **{**SETTINGS, **more})
    await producer.start()
    try:
        yield producer
    finally:
        await producer.close(0)


# -- ways to send ---


async def by_tasks(send: Send, count: int) -> None:
    """Send by 1,000 tasks, each of which waits for one record at a time."""
    source = (VALUES[number % len(VALUES)] for number in range(count))

    async def one() -> None:
        for value in source:
            await send(value)

    await asyncio.gather(*(one() for _ in range(min(TASKS, count))))


async def by_one(send: Send, count: int) -> None:
    """Send by one task, which waits for each record."""
    for number in range(count):
        await send(VALUES[number % len(VALUES)])


async def in_bulk(send_many: SendMany, count: int) -> None:
    """Send 10,000 values in a call, and wait for all that the calls return."""
    handles = [await send_many(ROWS[: min(CHUNK, count - start)]) for start in range(0, count, CHUNK)]
    for handle in handles:
        if hasattr(handle, "wait"):
            await handle.wait()


async def measured(count: int, turn: Callable[[int], Awaitable[object]]) -> Cost:
    """Warm up, and measure a turn."""
    await turn(min(WARM_UP, count))
    gc.collect()
    began, cpu = time.perf_counter(), cpu_seconds()
    await turn(count)
    return Cost(count, time.perf_counter() - began, cpu_seconds() - cpu)


def run(work: Callable[[], Awaitable[Cost]]) -> Cost:
    """Run a turn on a new loop."""

    async def whole() -> Cost:
        return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(whole())


# -- a producer's own turns ---


async def producers_turn(servers: str, way: str, count: int) -> Cost:
    """Measure a plain producer. Tasks that wait for each record have no linger, as on the way to the disk."""
    async with Producer(servers, **{**SETTINGS, **({} if way == BULK else {"linger_ms": 0})}) as producer:

        async def turn(records: int) -> None:
            if way == BULK:
                await in_bulk(lambda values: producer.send_many(TOPIC, values), records)
            else:
                await _ONE_BY_ONE[way](lambda value: producer.send_and_wait(TOPIC, value), records)

        return await measured(count, turn)


async def queues_turn(servers: str, folder: Path, sync: str, way: str, count: int, *, drains: bool) -> Cost:
    """Measure a queue: until all is on disk, or (`drains`) until the cluster has it."""
    with scratch(folder) as place:
        async with queue(servers, place, sync, max_bytes=2**40) as producer:

            async def store(values: Sequence[bytes]) -> None:
                await producer.send_many(TOPIC, values)  # its deliveries would wait for the cluster

            async def turn(records: int) -> None:
                if way == BULK:
                    await in_bulk(store, records)
                else:
                    await _ONE_BY_ONE[way](lambda value: producer.send(TOPIC, value), records)
                if drains:
                    await producer.flush()

            return await measured(count, turn)


IN_TASKS: Final = "1,000 tasks"
ONE_TASK: Final = "one task"
BULK: Final = "send_many"
_ONE_BY_ONE: Final = {IN_TASKS: by_tasks, ONE_TASK: by_one}
