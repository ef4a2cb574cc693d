"""Forwarding a backlog to the null broker, next to `send_many` of the same records with a header of the same size.

1. The backlog is made before the clock starts, by a queue whose cluster is away.
2. The queue's clock runs from its start to the empty queue; the producer's from its start to the last
   acknowledgement. Both connect within it.
3. The null broker's count must be that of all records.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from aioproduce import Producer
from aioproduce.spool import SpooledProducer
from benchmarks.null_broker import NullBroker
from benchmarks.process import cpu_seconds
from benchmarks.spool.workload import (
    SETTINGS,
    TOPIC,
    Cost,
    Target,
    in_bulk,
    nobody,
    paired,
    queue,
    run,
    scratch,
    target,
)

RECORDS: Final = 1_000_000
LEAST_SHARE: Final = 0.8
_HEADER: Final = [("ap.id", bytes(24))]


def measure(
    broker: NullBroker, folder: Path, rounds: int, scale: float, show: Callable[[str], object]
) -> tuple[dict[str, Any], Target]:
    """Measure both in turn."""
    count = max(10_000, int(RECORDS * scale))
    drained: list[Cost] = []
    sent: list[Cost] = []
    broker.reset()
    for number in range(rounds):
        show(f"drain, round {number + 1}")
        drained.append(_drained(broker.bootstrap_servers, folder, count))
        sent.append(run(lambda: _sent(broker.bootstrap_servers, count)))
    if broker.records() != 2 * rounds * count:
        raise RuntimeError(f"the broker has {broker.records():,} records instead of {2 * rounds * count:,}")
    shares = paired([each.rate for each in drained], [each.rate for each in sent])
    told = {
        "records": count,
        "drained_per_second": round(median(each.rate for each in drained)),
        "sent_per_second": round(median(each.rate for each in sent)),
        "drained_cpu_us": median(each.cpu_us for each in drained),
        "sent_cpu_us": median(each.cpu_us for each in sent),
        "rounds": [[mine._asdict(), plain._asdict()] for mine, plain in zip(drained, sent, strict=True)],
    }
    return told, target("drain: rate by that of send_many", shares, LEAST_SHARE)


def _drained(servers: str, folder: Path, count: int) -> Cost:
    with scratch(folder) as place:

        async def prepare() -> Cost:
            with nobody() as away:
                async with queue(away, place, "os") as producer:

                    async def store(values: Any) -> None:
                        await producer.send_many(TOPIC, values)

                    await in_bulk(store, count)
            return Cost(count, 1.0, 0.0)

        async def drain() -> Cost:
            gc.collect()
            began, cpu = time.perf_counter(), cpu_seconds()
            async with SpooledProducer(servers, directory=place / "spool", sync="os", **SETTINGS) as producer:
                await producer.flush()
                return Cost(count, time.perf_counter() - began, cpu_seconds() - cpu)

        run(prepare)
        return run(drain)


async def _sent(servers: str, count: int) -> Cost:
    gc.collect()
    began, cpu = time.perf_counter(), cpu_seconds()
    async with Producer(servers, **SETTINGS) as producer:
        await in_bulk(lambda values: producer.send_many(TOPIC, values, headers=_HEADER), count)
        return Cost(count, time.perf_counter() - began, cpu_seconds() - cpu)
