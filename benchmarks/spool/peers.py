"""Other queues on disk: persist-queue (SQLite, from PyPI), and rsyslog's disk queue in front of omkafka (Debian).

They promise other things. persist-queue has no forwarder and no event loop: one thread puts, SQLite commits each
record, with a sync of its log; it has no way to put many. rsyslog reads a file into a disk queue and sends from
there; a process of ours does the same with `send_many`, but does not remember its place in the file.

rsyslog need not be installed; its packages can be unpacked, and named by `RSYSLOG_ROOT`:

    apt-get download rsyslog rsyslog-kafka librdkafka1 libfastjson4 libestr0
    for package in *.deb; do dpkg -x $package root; done

1. Both sides of a comparison take turns, with the same records and the same durability: a commit of SQLite next to
   `always`, rsyslog's queue, which is not synced, next to `os`.
2. Lines from a file are counted by the null broker, between a tenth and all of them: no start is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from benchmarks.null_broker import NullBroker
from benchmarks.process import cpu_seconds, cpu_seconds_of
from benchmarks.spool.workload import (
    CHUNK,
    IN_TASKS,
    ONE_TASK,
    TOPIC,
    VALUES,
    Cost,
    nobody,
    paired,
    queue,
    queues_turn,
    run,
    scratch,
)

ALONE: Final = 300
GROUPED: Final = 20_000
LINES: Final = 500_000
ROOT: Final = "RSYSLOG_ROOT"
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_POLL: Final = 0.005
_PATIENCE: Final = 300.0
_CONFIGURATION: Final = """
global(workDirectory="{folder}")
module(load="imfile")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{lines}" tag="bench" ruleset="out")
ruleset(name="out") {{
  action(type="omkafka" topic="{topic}" broker=["{servers}"] template="line" dynatopic="off"
    resubmitOnFailure="on" confParam=["queue.buffering.max.ms=5", "acks=all"]
    queue.type="Disk" queue.filename="spool" queue.spoolDirectory="{folder}" queue.maxDiskSpace="4g"
    queue.saveOnShutdown="on")
}}
"""


def measure(
    broker: NullBroker, folder: Path, rounds: int, scale: float, show: Callable[[str], object]
) -> dict[str, Any]:
    """Compare with what is there; the rest is named with the reason."""
    told: dict[str, Any] = {}
    try:
        told["persist-queue"] = {
            "version": version("persist-queue"),
            "rows": _sqlite(folder, rounds, scale, show),
        }
    except PackageNotFoundError:
        told["persist-queue"] = {"left_out": "it is not installed: pip install 'aioproduce[bench]'"}
    program = rsyslogd()
    if program is None:
        told["rsyslog"] = {"left_out": f"no rsyslogd on PATH, and {ROOT} names no folder with its packages"}
    else:
        told["rsyslog"] = {
            "version": _version_of(program),
            "rows": _rsyslog(program, broker, folder, rounds, scale, show),
        }
    return told


# -- persist-queue ---


def _sqlite(folder: Path, rounds: int, scale: float, show: Callable[[str], object]) -> list[dict[str, Any]]:
    counts = {ONE_TASK: max(50, int(ALONE * scale)), IN_TASKS: max(2_000, int(GROUPED * scale))}
    ours: dict[str, list[Cost]] = {way: [] for way in counts}
    theirs: list[Cost] = []
    for number in range(rounds):
        show(f"persist-queue, round {number + 1}")
        theirs.append(_put(folder, counts[ONE_TASK]))
        with nobody() as away:
            for way, count in counts.items():
                turn = partial(queues_turn, away, folder, "always", way, count, drains=False)
                ours[way].append(run(turn))
    return [_row(f"always, {way}", found, "persist-queue, put()", theirs) for way, found in ours.items()]


def _put(folder: Path, count: int) -> Cost:
    from persistqueue import SQLiteQueue

    with scratch(folder) as place:
        records = SQLiteQueue(str(place))
        began, cpu = time.perf_counter(), cpu_seconds()
        for number in range(count):
            records.put(VALUES[number % len(VALUES)])
        cost = Cost(count, time.perf_counter() - began, cpu_seconds() - cpu)
        records.close()
    return cost


# -- rsyslog ---


def rsyslogd() -> Path | None:
    """Return the program, installed or unpacked."""
    unpacked = Path(os.environ.get(ROOT, "/nowhere")) / "usr/sbin/rsyslogd"
    if unpacked.exists():
        return unpacked.resolve()
    found = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin")
    return None if found is None else Path(found)


def _environment(program: Path) -> dict[str, str]:
    return os.environ | {"LD_LIBRARY_PATH": str(program.parents[2] / _LIBRARIES)}


def _version_of(program: Path) -> str:
    printed = subprocess.run(
        [program, "-v"], capture_output=True, text=True, check=True, env=_environment(program)
    ).stdout
    return " ".join(printed.split()[:2])


def _rsyslog(
    program: Path, broker: NullBroker, folder: Path, rounds: int, scale: float, show: Callable[[str], object]
) -> list[dict[str, Any]]:
    count = max(20_000, int(LINES * scale))
    theirs: list[Cost] = []
    ours: list[Cost] = []
    for number in range(rounds):
        with scratch(folder) as place:
            lines = place / "lines"
            lines.write_bytes(b"".join(VALUES[each % len(VALUES)] + b"\n" for each in range(count)))
            show(f"rsyslog, round {number + 1}")
            theirs.append(_counted(broker, count, _their_words(program, broker, place, lines), program))
            show(f"rsyslog, round {number + 1}: ours")
            words = [
                sys.executable,
                "-m",
                "benchmarks.spool.peers",
                broker.bootstrap_servers,
                str(place),
                str(lines),
            ]
            ours.append(_counted(broker, count, words, program))
    return [_row("a file by send_many, os", ours, "rsyslog: imfile, disk queue, omkafka", theirs)]


def _their_words(program: Path, broker: NullBroker, place: Path, lines: Path) -> list[str]:
    queued = place / "rsyslog"
    queued.mkdir()
    configuration = place / "rsyslog.conf"
    configuration.write_text(
        _CONFIGURATION.format(folder=queued, lines=lines, topic=TOPIC, servers=broker.bootstrap_servers)
    )
    modules = program.parents[2] / _LIBRARIES / "rsyslog"
    pid = str(place / "rsyslog.pid")
    return [str(program), "-n", "-f", str(configuration), "-i", pid, "-M", str(modules)]


def _counted(broker: NullBroker, count: int, words: list[str], program: Path) -> Cost:
    """Run a program until the broker has all lines."""
    broker.reset()
    environment = _environment(program) if words[0] == str(program) else None
    with _running(words, environment) as process:
        began = _reached(broker, process, count // 10)
        ended = _reached(broker, process, count)
    return Cost(int(ended[2] - began[2]), ended[0] - began[0], ended[1] - began[1])


@contextmanager
def _running(words: list[str], environment: dict[str, str] | None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _reached(broker: NullBroker, process: subprocess.Popen[bytes], count: int) -> tuple[float, float, float]:
    """Wait for a number of records; return the time, the program's processor time, and the number."""
    until = time.monotonic() + _PATIENCE
    while (records := broker.records()) < count:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(
                f"the broker has {records:,} of {count:,} records, and the program ended or hangs"
            )
        time.sleep(_POLL)
    return time.perf_counter(), cpu_seconds_of(process.pid), float(records)


def _row(name: str, ours: list[Cost], other: str, theirs: list[Cost]) -> dict[str, Any]:
    ratios = paired([each.rate for each in ours], [each.rate for each in theirs])
    return {
        "ours": name,
        "theirs": other,
        "records_per_second": round(median(each.rate for each in ours)),
        "their_records_per_second": round(median(each.rate for each in theirs)),
        "ratio": [median(ratios), min(ratios), max(ratios)],
        "cpu_us": median(each.cpu_us for each in ours),
        "their_cpu_us": median(each.cpu_us for each in theirs),
        "rounds": [[mine._asdict(), other._asdict()] for mine, other in zip(ours, theirs, strict=True)],
    }


async def _send_lines(servers: str, folder: Path, lines: Path) -> None:
    """Put the lines of a file into a queue, and wait to be ended."""
    async with queue(servers, folder, "os") as producer:
        with lines.open("rb") as file:
            while chunk := [line.rstrip(b"\n") for line in islice(file, CHUNK)]:
                await producer.send_many(TOPIC, chunk)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="our side of the comparison with rsyslog, for `measure`")
    parser.add_argument("servers")
    parser.add_argument("folder", type=Path)
    parser.add_argument("lines", type=Path)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send_lines(given.servers, given.folder, given.lines))
