"""Latency from the instant at which a record is due to the one at which its caller knows the acknowledgement.

Called by the client modules, in a worker process.

1. The schedule is open-loop: record k is due at a fixed instant, and its latency counts from there. A client that
   stalls makes all records due during the stall late.
2. The event loop tells asyncio clients that a record is due, as it reports a request from the network.
3. Records due in the first second are sent and not counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import cycle
from typing import Any, TypeVar

from benchmarks.cases import Case, Outcome
from benchmarks.loop_clock import Ticks, percentiles
from benchmarks.process import cpu_seconds, payload, resident

P = TypeVar("P")
RATE = 5000


async def measure_async(
    case: Case,
    opened: AbstractAsyncContextManager[P],
    send: Callable[[P, str, bytes], Awaitable[Any]],
    flush: Callable[[P], Awaitable[Any]],
) -> Outcome:
    """``send`` returns a future per record, whose done callback is the acknowledgement."""
    rate = int(case.options.get("rate", RATE))
    latencies: list[float] = []
    failures: list[BaseException] = []

    def done(due: float, future: Any) -> None:
        latencies.append(time.perf_counter() - due)
        if (error := future.exception()) is not None:
            failures.append(error)

    values = cycle(payload(case.settings.value_size))
    async with opened as producer:
        first = await send(producer, case.topic, next(values))
        await flush(producer)
        await first
        start, cpu = resident(), cpu_seconds()
        began = time.perf_counter()
        with Ticks(1 / rate) as ticks:
            for tick in range(case.records + rate):
                if ticks.expired <= tick:
                    await ticks.wait(tick)
                future = await send(producer, case.topic, next(values))
                future.add_done_callback(partial(done, ticks.due(tick)))
        await flush(producer)
        # A done callback of the last records may still be queued on the loop.
        with Ticks(0.01) as ticks:
            await ticks.wait(1)
        burnt, seconds = cpu_seconds() - cpu, time.perf_counter() - began
    if failures:
        raise failures[0]
    return _outcome(latencies, rate, seconds, burnt, start)


def measure_threads(
    case: Case, send: Callable[[bytes, Callable[[], None]], object], flush: Callable[[], object]
) -> Outcome:
    """``send`` takes a callback that is called, on whatever thread, when the record is acknowledged."""
    rate = int(case.options.get("rate", RATE))
    latencies: list[float] = []
    values = cycle(payload(case.settings.value_size))
    first = threading.Event()
    send(next(values), first.set)
    flush()
    if not first.wait(30):
        raise TimeoutError("the first record was not acknowledged within 30 s")

    def done(due: float) -> None:
        latencies.append(time.perf_counter() - due)

    start, cpu = resident(), cpu_seconds()
    began = time.perf_counter()
    for tick in range(case.records + rate):
        due = began + tick / rate
        while (early := due - time.perf_counter()) > 0:
            time.sleep(early)
        send(next(values), partial(done, due))
    flush()
    return _outcome(latencies, rate, time.perf_counter() - began, cpu_seconds() - cpu, start)


def _outcome(latencies: list[float], warm: int, seconds: float, burnt: float, start: int) -> Outcome:
    # In order of acknowledgement, which differs from that of sending by a few records between partitions.
    counted = latencies[warm:]
    return Outcome(
        records=len(latencies),
        total=len(latencies) + 1,
        seconds=seconds,
        cpu_seconds=burnt,
        rss_start=start,
        rss_peak=resident(peak=True),
        figures=percentiles("latency", counted),
    )
