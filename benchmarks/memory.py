"""The cost of a delivery that the caller keeps: its bytes, and the garbage collector's work on a million of them.

Called in a worker process. These deliveries are acknowledged, and no caller has asked for their results yet.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import Any

from benchmarks.cases import Case, Outcome
from benchmarks.clients import client
from benchmarks.clients.measuring import run, values_of
from benchmarks.process import cpu_seconds, resident

TRACED = 50_000


class _Collections:
    """The number of the garbage collector's own runs, and their time."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.count += 1
            self.seconds += time.perf_counter() - self._began


async def _keep(producer: Any, case: Case, kept: list[Any]) -> None:
    send, topic = producer.send, case.topic
    for index, value in enumerate(values_of(case, len(kept))):
        kept[index] = await send(topic, value)
    await producer.flush()


def _full_collection() -> float:
    began = time.perf_counter()
    gc.collect()
    return time.perf_counter() - began


async def _measure(case: Case, bootstrap_servers: str) -> Outcome:
    made: Any = client(case.client)
    async with made.opened(case, bootstrap_servers) as producer:
        # Buffers are made once and reused: make them before counting.
        await _keep(producer, case, [None] * case.warmup)
        kept: list[Any] = [None] * case.records
        _full_collection()
        without = min(_full_collection() for _ in range(3))
        outcome = Outcome(records=case.records, rss_start=resident())
        collections = _Collections()
        gc.callbacks.append(collections)
        began, cpu = time.perf_counter(), cpu_seconds()
        await _keep(producer, case, kept)
        outcome.seconds, outcome.cpu_seconds = time.perf_counter() - began, cpu_seconds() - cpu
        gc.callbacks.remove(collections)
        grown = resident() - outcome.rss_start
        outcome.rss_peak = resident(peak=True)
        with_them = min(_full_collection() for _ in range(3))
        kept.clear()
        traced: list[Any] = [None] * TRACED
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await _keep(producer, case, traced)
        size = (tracemalloc.get_traced_memory()[0] - before) / TRACED
        tracemalloc.stop()
    outcome.total = case.warmup + case.records + TRACED
    outcome.figures = {
        "bytes_per_delivery": size,
        "resident_bytes_per_delivery": grown / case.records,
        "gc_full_ms": (with_them - without) * 1e3,
        "gc_runs": collections.count,
        "gc_seconds": collections.seconds,
    }
    return outcome


def futures(case: Case, bootstrap_servers: str) -> Outcome:
    """Keep ``case.records`` deliveries."""
    outcome: Outcome = run(case, _measure(case, bootstrap_servers))
    return outcome
