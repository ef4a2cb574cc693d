"""How long `send()` takes with `sync="always"`, in direct mode and without it, next to an acknowledgement.

One task sends one record after the other. In direct mode a record goes to the disk and to the cluster at a time,
and its `send()` ends with the faster of the two. So it should never take longer than by the disk alone. There are
two clusters: the null broker answers at once, or after 20 ms, which is slower than any disk.

1. The contenders take turns.
2. The share of records that were never written is read from the queue's own metrics: what was stored, of what was
   sent.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from aioproduce import Producer
from benchmarks.null_broker import NullBroker, null_broker
from benchmarks.spool.workload import (
    PARTITIONS,
    SETTINGS,
    TOPIC,
    VALUES,
    WARM_UP,
    Cost,
    Target,
    paired,
    queue,
    run,
    scratch,
    target,
)

RECORDS: Final = 2_000
SLOW: Final = 0.02
MOST: Final = 1.1
_CLUSTER, _DISK, _DIRECT = "acknowledged: send_and_wait()", "on disk: send()", "direct: send()"


class Turn(NamedTuple):
    """One turn of one contender.

    Attributes:
        p50: Milliseconds of a call, the median.
        p99: Of 99 in a hundred at most.
        written: The share of the records that were written to disk.
    """

    p50: float
    p99: float
    written: float


def measure(
    broker: NullBroker, folder: Path, rounds: int, scale: float, show: Callable[[str], object]
) -> tuple[list[dict[str, Any]], list[Target]]:
    """Measure all with both clusters."""
    count = max(100, int(RECORDS * scale))
    with null_broker(topics={TOPIC: PARTITIONS}, delay=SLOW) as slow:
        told: list[dict[str, Any]] = []
        targets = []
        for cluster, servers, records in (
            ("answers at once", broker.bootstrap_servers, count),
            (f"answers after {SLOW * 1000:g} ms", slow.bootstrap_servers, max(50, count // 10)),
        ):
            turns: dict[str, list[Turn]] = {_CLUSTER: [], _DISK: [], _DIRECT: []}
            for number in range(rounds):
                show(f"direct, a cluster that {cluster}, round {number + 1}")
                for contender, found in turns.items():
                    found.append(_turn(contender, servers, folder, records))
            told += [_row(cluster, contender, found) for contender, found in turns.items()]
            ratios = paired([each.p50 for each in turns[_DIRECT]], [each.p50 for each in turns[_DISK]])
            what = f"direct, a cluster that {cluster}: p50 of send() by that of the disk alone"
            targets.append(target(what, ratios, MOST, is_least=False))
    return told, targets


def _row(cluster: str, contender: str, turns: list[Turn]) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "contender": contender,
        "p50_ms": median(each.p50 for each in turns),
        "p99_ms": median(each.p99 for each in turns),
        "written": median(each.written for each in turns),
    }


def _turn(contender: str, servers: str, folder: Path, count: int) -> Turn:
    found: list[float] = []
    written = 0.0

    async def one_by_one() -> Cost:
        nonlocal written
        async with AsyncExitStack() as stack:
            if contender == _CLUSTER:
                producer = await stack.enter_async_context(Producer(servers, **{**SETTINGS, "linger_ms": 0}))
                send: Callable[[str, bytes], Any] = producer.send_and_wait
            else:
                place = stack.enter_context(scratch(folder))
                spooled = await stack.enter_async_context(
                    queue(servers, place, "always", direct=contender == _DIRECT, linger_ms=0)
                )
                send = spooled.send
            for number in range(min(WARM_UP, count)):
                await send(TOPIC, VALUES[number % len(VALUES)])
            gc.collect()
            for number in range(count):
                began = time.perf_counter()
                await send(TOPIC, VALUES[number % len(VALUES)])
                found.append((time.perf_counter() - began) * 1e3)
            if contender != _CLUSTER:
                written = spooled.metrics().value("spool-append-total") / (count + min(WARM_UP, count))
        return Cost(count, 1.0, 0.0)

    run(one_by_one)
    return Turn(median(found), quantiles(found, n=100)[-1], written)
