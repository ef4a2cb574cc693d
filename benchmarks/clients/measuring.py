"""The measured part of a run, the same for every client in Python.

Called by the client modules. A mode is a coroutine (or a function) that sends a number of values and returns how
many were acknowledged. This module adds warm-up, clocks and memory.

1. Clocks run from before the first measured send until the caller knows the last acknowledgement.
2. Garbage collection has Python's defaults: its cost is part of the client's.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import cycle, islice
from typing import Any, TypeVar

from benchmarks.cases import Case, Outcome
from benchmarks.loop_clock import LoopWatch
from benchmarks.process import cpu_seconds, payload, resident

P = TypeVar("P")
AsyncMode = Callable[[P, Case, Iterable[bytes], int], Awaitable[int]]
SyncMode = Callable[[P, Case, Iterable[bytes], int], int]


def values_of(case: Case, count: int) -> Iterator[bytes]:
    """Return this number of values, again and again from the same list."""
    return islice(cycle(payload(case.settings.value_size)), count)


def loop_factory(case: Case) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the event loop of the case."""
    if case.loop == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def run(case: Case, coroutine: Any) -> Any:
    """Run a coroutine on the case's event loop."""
    with asyncio.Runner(loop_factory=loop_factory(case)) as runner:
        return runner.run(coroutine)


async def measure_async(case: Case, opened: AbstractAsyncContextManager[P], mode: AsyncMode[P]) -> Outcome:
    """Open a client, warm it up, and measure a mode; with ``options["stall"]`` watch the loop during it."""
    outcome = Outcome()
    values = list(values_of(case, 1000))
    async with opened as producer:
        outcome.total = await mode(producer, case, values[:1], 1)
        outcome.rss_start = resident()
        warm = case.warmup
        outcome.total += await mode(producer, case, islice(cycle(values), warm), warm) if warm else 0
        gc.collect()
        with LoopWatch() if case.options.get("stall") else nullcontext() as watch:
            started, cpu = time.perf_counter(), cpu_seconds()
            outcome.records = await mode(producer, case, islice(cycle(values), case.records), case.records)
            outcome.seconds, outcome.cpu_seconds = time.perf_counter() - started, cpu_seconds() - cpu
        outcome.rss_peak = resident(peak=True)
    outcome.total += outcome.records
    if watch is not None:
        outcome.figures.update(watch.figures())
    return outcome


def measure_sync(case: Case, producer: P, mode: SyncMode[P]) -> Outcome:
    """Warm up a client without an event loop, and measure a mode. The caller closes it."""
    outcome = Outcome()
    values = list(values_of(case, 1000))
    outcome.total = mode(producer, case, values[:1], 1)
    outcome.rss_start = resident()
    warm = case.warmup
    outcome.total += mode(producer, case, islice(cycle(values), warm), warm) if warm else 0
    gc.collect()
    started, cpu = time.perf_counter(), cpu_seconds()
    outcome.records = mode(producer, case, islice(cycle(values), case.records), case.records)
    outcome.seconds, outcome.cpu_seconds = time.perf_counter() - started, cpu_seconds() - cpu
    outcome.rss_peak = resident(peak=True)
    outcome.total += outcome.records
    return outcome


async def in_tasks(
    send_and_wait: Callable[[str, bytes], Awaitable[Any]], case: Case, values: Iterable[bytes], count: int
) -> int:
    """Send ``count`` records by 1,000 (or ``options["tasks"]``) tasks that each send one and wait for it."""
    tasks = min(int(case.options.get("tasks", 1000)), count)
    source = iter(values)
    topic = case.topic

    async def one() -> int:
        sent = 0
        for value in source:
            await send_and_wait(topic, value)
            sent += 1
        return sent

    return sum(await asyncio.gather(*(one() for _ in range(tasks))))
