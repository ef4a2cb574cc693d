"""A start with a backlog of 50 GB, and the memory of forwarding; in processes of their own.

The backlog is 3,200 segments of 16 MiB, of which most are holes: the first ones and the last one have records, all
others have the right name and size and nothing in them. Nothing is measured that reads a hole: a start reads names,
sizes and positions, and forwarding is stopped before it comes to the first hole.

1. Memory is the process's resident set, against that of the same program with an empty queue.
2. The first start in a process pays for imports, so an empty queue and a second start are shown, too.
3. Holes are honest for a start only if it opens no segment. The report says how many have records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from aioproduce.spool import SpooledProducer
from benchmarks.null_broker import NullBroker
from benchmarks.process import resident
from benchmarks.spool.workload import (
    SETTINGS,
    TOPIC,
    Cost,
    Target,
    in_bulk,
    nobody,
    queue,
    run,
    scratch,
    target,
)

BACKLOG: Final = 50 * 10**9
SEGMENT: Final = 16 * 1024**2
REAL: Final = 20
"""Segments with records at the beginning."""

MOST_SECONDS: Final = 1.0
MOST_MIB: Final = 64.0
_RECORDS: Final = 135_000
"""A little less than what fits a segment."""

_LIMIT: Final = 2**40


def measure(
    broker: NullBroker, folder: Path, rounds: int, show: Callable[[str], object]
) -> tuple[dict[str, Any], list[Target]]:
    """Measure starts with the backlog and without, in turn."""
    full, empty = [], []
    for number in range(rounds):
        show(f"start-up, round {number + 1}: writing a backlog")
        with scratch(folder) as place:
            holes = prepare(place)
            show(f"start-up, round {number + 1}")
            empty.append(_child(broker.bootstrap_servers, place / "empty"))
            full.append(_child(broker.bootstrap_servers, place))
    more = [(mine["rss"] - plain["rss"]) / 2**20 for mine, plain in zip(full, empty, strict=True)]
    peak = [(mine["peak"] - plain["rss"]) / 2**20 for mine, plain in zip(full, empty, strict=True)]
    told = {
        "segments": holes["segments"],
        "segments_with_records": holes["real"],
        "backlog_bytes": holes["bytes"],
        "bytes_on_disk": holes["blocks"],
        "seconds": median(each["seconds"] for each in full),
        "seconds_when_empty": median(each["seconds"] for each in empty),
        "seconds_again": median(each["seconds_again"] for each in full),
        "forwarded": median(each["forwarded"] for each in full),
        "more_mib_after_start": median(more),
        "more_mib_at_most_while_forwarding": median(peak),
    }
    return told, [
        target("50 GB: seconds to start", [each["seconds"] for each in full], MOST_SECONDS, is_least=False),
        target("50 GB: MiB more than with an empty queue, after the start", more, MOST_MIB, is_least=False),
        target("50 GB: MiB more, at most while it forwards", peak, MOST_MIB, is_least=False),
    ]


def prepare(place: Path) -> dict[str, int]:
    """Make the backlog."""

    async def store(count: int) -> Cost:
        with nobody() as away:
            async with queue(away, place, "os", segment_bytes=SEGMENT, max_bytes=_LIMIT) as producer:

                async def some(values: Any) -> None:
                    await producer.send_many(TOPIC, values)

                await in_bulk(some, count)
        return Cost(count, 1.0, 0.0)

    run(lambda: store(REAL * _RECORDS))
    (log,) = place.glob(f"**/logs/{TOPIC}-0")
    real = sorted(log.glob("*.log"))
    base = int(real[-1].stem) + _RECORDS * 2
    for number in range(BACKLOG // SEGMENT - len(real)):
        with open(log / f"{base + number * _RECORDS:020}.log", "wb") as hole:
            hole.truncate(SEGMENT)
    run(lambda: store(10_000))
    every = [each.stat() for each in log.glob("*.log")]
    return {
        "segments": len(every),
        "real": len(real) + 1,
        "bytes": sum(each.st_size for each in every),
        "blocks": sum(each.st_blocks * 512 for each in every),
    }


def _child(servers: str, place: Path) -> dict[str, Any]:
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.spool.startup", servers, str(place)]
    told: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return told


async def start(servers: str, place: Path) -> dict[str, Any]:
    """Start a queue, look at the memory, and forward most of the segments that have records."""
    producer = SpooledProducer(servers, directory=place / "spool", sync="os", max_bytes=_LIMIT, **SETTINGS)
    began = time.perf_counter()
    await producer.start()
    seconds, rss = time.perf_counter() - began, resident()
    stop = (REAL - 2) * _RECORDS
    forwarded = 0
    while producer.backlog() and forwarded < stop:
        await asyncio.sleep(0.01)
        forwarded = producer.backlog()[TOPIC].forwarded
    peak = resident(peak=True)
    await producer.close(0)
    again = SpooledProducer(servers, directory=place / "spool", sync="os", max_bytes=_LIMIT, **SETTINGS)
    began = time.perf_counter()
    await again.start()
    seconds_again = time.perf_counter() - began
    await again.close(0)
    return {
        "seconds": seconds,
        "seconds_again": seconds_again,
        "rss": rss,
        "peak": peak,
        "forwarded": forwarded,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="one start, for `measure`")
    parser.add_argument("servers")
    parser.add_argument("place", type=Path)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(start(given.servers, given.place))))
