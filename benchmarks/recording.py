"""The cost of recording metrics: `python -m benchmarks.recording`, a producer with sensors against one without.

With `--instructions`: the same in processor instructions, by callgrind, in the world of `tests/budget`. They repeat
to a fraction of a percent, while the noise of time is as large as the difference to measure.

With `--of auditor`: the cost of an Auditor (a number in each record, and marks), against a producer without one.

Two processes take turns of about a tenth of a second, on one processor, against one null broker, so other work on
the machine affects both. A ratio is of two consecutive turns. The median of the sets' medians is shown, and the
least and the largest of them: each set has new processes, with another layout of memory.

1. The producer without sensors differs in nothing else: clocks are read, and sensors are called.
2. Records count when they are acknowledged.
3. An Auditor's records are 31 bytes larger, so that fewer fit a batch. `--of auditor-roomy` gives it a `batch.size`
   for as many records: the rest is the cost of the number itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, final

from rich.console import Console
from rich.table import Table

from aioproduce import Producer
from aioproduce.audit import DEFAULT_AUDIT_TOPIC, Auditor
from benchmarks.null_broker import null_broker
from benchmarks.process import pin
from benchmarks.silent_metrics import silent
from tests.budget import measure
from tests.budget.program import REFERENCE, SILENT

TOPIC: Final = "bench"
METRICS: Final = "metrics"
ROOMY: Final = "auditor-roomy"
WHAT: Final = {
    METRICS: "recording",
    "auditor": "an Auditor",
    ROOMY: "an Auditor, with as many records in a batch,",
}
_BATCH: Final = 65536
# Bytes of a record of `VALUES` in a batch, and of the same with its number.
_PLAIN: Final = 108
_NUMBERED: Final = 139
_MOST_MARKS: Final = 1000
VALUES: Final = [b"%0100d" % number for number in range(1000)]
ROWS: Final = [VALUES[number % 1000] for number in range(10_000)]


@dataclass(frozen=True)
class Load:
    """The load of a turn.

    Attributes:
        title: Its name in the table.
        records: The records of a turn.
        linger: `linger.ms`.
        send: Sends the records, and waits until all are acknowledged.
    """

    title: str
    records: int
    linger: int
    send: Callable[[Producer, int], Coroutine[Any, Any, None]]


async def _one_by_one(producer: Producer, records: int) -> None:
    for number in range(records):
        await producer.send(TOPIC, VALUES[number % 1000])
    await producer.flush()


async def _many(producer: Producer, records: int) -> None:
    handles = [await producer.send_many(TOPIC, ROWS) for _ in range(records // len(ROWS))]
    for handle in handles:
        await handle.wait()


async def _ten_tasks(producer: Producer, records: int) -> None:
    async def task() -> None:
        for number in range(records // 10):
            await producer.send_and_wait(TOPIC, VALUES[number % 1000])

    await asyncio.gather(*(task() for _ in range(10)))


LOADS: Final = {
    "send": Load("send(), full batches", 60_000, 5, _one_by_one),
    "send-many": Load("send_many(), full batches", 200_000, 5, _many),
    "alone": Load("ten tasks, a record or so in each request", 3_000, 0, _ten_tasks),
}


# -- the worker ---


def work(load: Load, servers: str, of: str, *, is_silent: bool) -> None:
    """Send a turn for each line on standard input, and print its seconds, and those of the processor."""
    import uvloop

    pin((min(os.sched_getaffinity(0)),))
    settings: dict[str, Any] = {"batch_size": _BATCH}
    has_silent_metrics = of == METRICS and is_silent
    if of != METRICS and not is_silent:
        settings["interceptors"] = [Auditor()]
        if of == ROOMY:
            settings["batch_size"] = _BATCH * _NUMBERED // _PLAIN
    with silent() if has_silent_metrics else nullcontext():
        uvloop.run(_work(load, servers, settings))


async def _work(load: Load, servers: str, settings: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    async with Producer(servers, linger_ms=load.linger, **settings) as producer:
        await load.send(producer, load.records)
        gc.collect()
        gc.freeze()
        counted = producer.metrics().value("record-send-total")
        print(json.dumps({"counted": counted}), flush=True)
        while (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            began, cpu = time.perf_counter(), time.process_time()
            await load.send(producer, load.records)
            print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]), flush=True)


@final
class Worker:
    """A producer in a separate process."""

    def __init__(self, name: str, servers: str, of: str, *, is_silent: bool) -> None:
        kind = ["--silent"] if is_silent else []
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.recording",
                "--worker",
                servers,
                "--only",
                name,
                "--of",
                of,
                *kind,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.counted: float = self._read()["counted"]

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {self._process.wait()}")
        return json.loads(line)

    def turn(self) -> list[float]:
        """Let it send; return seconds, and processor seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        found: list[float] = self._read()
        return found

    def end(self) -> None:
        """Let it close its producer."""
        self._process.communicate("\n")


# -- the comparison ---


def compare(name: str, sets: int, turns: int, of: str = METRICS) -> dict[str, Any]:
    """Compare a load's time with sensors, or an Auditor, with its time without."""
    load = LOADS[name]
    ratios: list[list[float]] = []
    rates: list[float] = []
    for number in range(sets):
        with null_broker(topics={TOPIC: 6, DEFAULT_AUDIT_TOPIC: 1}) as broker:
            servers = broker.bootstrap_servers
            pair = {is_silent: Worker(name, servers, of, is_silent=is_silent) for is_silent in (True, False)}
            if not pair[False].counted or bool(pair[True].counted) is (of == METRICS):
                raise RuntimeError("the sensors are not what they should be")
            taken: list[tuple[list[float], list[float]]] = []
            for turn in range(turns):
                order = (True, False) if (turn + number) % 2 else (False, True)
                found = {is_silent: pair[is_silent].turn() for is_silent in order}
                taken.append((found[False], found[True]))
            for worker in pair.values():
                worker.end()
            sent = 2 * load.records * (turns + 1)
            # An audited producer also sends some marks.
            if not sent <= broker.records() <= sent + (0 if of == METRICS else _MOST_MARKS):
                raise RuntimeError(f"{sent} records were acknowledged, and the broker has {broker.records()}")
        ratios.append([median(ours[kind] / silent[kind] for ours, silent in taken) for kind in (0, 1)])
        rates.append(load.records / median(ours[0] for ours, _ in taken))
    wall, cpu = ([ratio[kind] for ratio in ratios] for kind in (0, 1))
    return {
        "load": name,
        "records_per_second": round(median(rates)),
        "time": [median(wall), min(wall), max(wall)],
        "cpu": [median(cpu), min(cpu), max(cpu)],
        "sets": {"time": wall, "cpu": cpu},
    }


def in_instructions() -> dict[str, dict[str, float]]:
    """Return the instructions of a record in each mode of `tests/budget`, with and without sensors.

    Raises:
        CannotMeasureError: if valgrind or its header is not installed.
    """
    recorded, not_recorded = measure.instructions(), measure.instructions(None, SILENT)
    found = {}
    for mode, figures in recorded.items():
        if mode != REFERENCE:
            each, without = figures["instructions"], not_recorded[mode]["instructions"]
            found[mode] = {"with": each, "without": without, "added": each / without - 1}
    return found


def table_of_instructions(found: dict[str, dict[str, float]]) -> Table:
    """Return the table for people."""
    table = Table(title="What recording adds to the instructions of a record", title_justify="left")
    for heading in ("mode", "with sensors", "without", "added"):
        table.add_column(heading, justify="left" if heading == "mode" else "right")
    for mode, each in found.items():
        table.add_row(mode, f"{each['with']:,.0f}", f"{each['without']:,.0f}", f"{each['added']:+.1%}")
    return table


def table_of(rows: list[dict[str, Any]], of: str = METRICS) -> Table:
    """Return the table for people."""
    table = Table(
        title=f"What {WHAT[of]} adds, % (of the sets: median; least, largest)", title_justify="left"
    )
    for heading in ("load", "records/s", "time", "processor time"):
        table.add_column(heading, justify="left" if heading == "load" else "right")
    for row in rows:
        shown = ["{:+.1f} ({:+.1f}, {:+.1f})".format(*(100 * each - 100 for each in row[kind]))
                 for kind in ("time", "cpu")]  # fmt: skip
        table.add_row(LOADS[row["load"]].title, f"{row['records_per_second']:,}", *shown)
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording", description=__doc__)
    parser.add_argument("--only", choices=LOADS, action="append", help="measure only this load")
    parser.add_argument("--of", choices=WHAT, default=METRICS, help=f"the part to measure ({METRICS})")
    parser.add_argument("--sets", type=int, default=8, help="pairs of processes for each load (8)")
    parser.add_argument("--turns", type=int, default=20, help="turns of each process (20)")
    parser.add_argument("--instructions", action="store_true", help="count instructions, and measure no time")
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument("--worker", metavar="SERVERS", help=argparse.SUPPRESS)
    parser.add_argument("--silent", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        work(LOADS[given.only[0]], given.worker, given.of, is_silent=given.silent)
        return 0
    if given.sets < 1 or given.turns < 1:
        parser.error("--sets and --turns: at least 1")
    if given.instructions:
        with Console(stderr=True).status("Counting instructions, twice"):
            found = in_instructions()
        if given.json:
            print(json.dumps(found))
        else:
            Console().print(table_of_instructions(found))
        return 0
    rows = []
    for name in given.only or LOADS:
        with Console(stderr=True).status(LOADS[name].title):
            rows.append(compare(name, given.sets, given.turns, given.of))
    if given.json:
        print(json.dumps(rows))
    else:
        Console().print(table_of(rows, given.of))
    return 0


if __name__ == "__main__":
    sys.exit(main())
