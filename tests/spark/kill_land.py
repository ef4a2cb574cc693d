"""land, and compact, killed -9 in the midst of it: what is in the lake afterwards is what was sent, each once.

    python -m tests.spark.kill_land [--rows 2000000] [--kills 4] [--compact] [--seed 1]

A real broker, N records with stamps (sent by librdkafka, packed by this file), `land` as a process that is killed
with all that it started, at random moments with a batch under way, while more records come in. With ``--compact``
compact runs in between and at the same time, and is killed at each of its steps. At the end both run without kills,
and pyarrow alone says which ids are in the files: lost 0, duplicated 0, every file readable.

Exit code: 0 if that is so, 1 if not; the report is printed as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer

from aioproduce.spark.compaction import Compactor, Policy
from aioproduce.spark.safety import safe_batches
from aioproduce.spark.store import Store
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import find_or_install, find_or_install_connector
from tests.kafka_tools import KafkaTools
from tests.spark.conftest import JVM_FLAGS, spark_environment
from tests.spark.dying_compact import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
PRODUCERS = tuple(bytes([number + 1]) * 16 for number in range(4))
START_MS = 1_769_842_800_000  # 2026-01-31 07:00:00 UTC
SPREAD_MS = 2 * 3_600_000
POLL = 0.02
# A session on two busy cores takes half a minute to start.
MOMENT_TIMEOUT = 240.0
END_TIMEOUT = 1800.0


@dataclass(slots=True)
class Report:
    """What happened, and what is in the lake.

    Attributes:
        sent: Records that librdkafka delivered.
        rows: Rows in the lake's files.
        lost: Ids that were sent and are in no file.
        duplicated: Rows that are there once more than they should.
        foreign: Rows whose id nobody sent.
        mixed: Rows with another key or value than was sent under their id.
        unreadable: Files that pyarrow cannot read.
        files: Files that were read.
        kills: Of land: what the checkpoint said when it was killed.
        compact_kills: At which step compact was killed, and how often.
        torn: Looks at the lake in between, by the manifest, that saw an id twice.
        looks: How many there were.
        compactions: Results of the compact that was not killed.
        seconds: All of it.
    """

    sent: int = 0
    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    foreign: int = 0
    mixed: int = 0
    unreadable: list[str] = field(default_factory=list)
    files: int = 0
    kills: list[str] = field(default_factory=list)
    compact_kills: dict[str, int] = field(default_factory=dict)
    torn: int = 0
    looks: int = 0
    compactions: int = 0
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether everything that was sent is there, once."""
        wrong = (self.lost, self.duplicated, self.foreign, self.mixed, len(self.unreadable), self.torn)
        return not any(wrong) and self.rows == self.sent > 0


class Job:
    """`land` as a process, with all that it starts in a session of its own."""

    def __init__(self, lake: Path, brokers: str, topic: str, jars: Sequence[Path], max_offsets: int) -> None:
        command = [sys.executable, "-m", "aioproduce.spark", "land", "--bootstrap-servers", brokers]
        command += ["--lake", str(lake), "--topics", topic, "--audit-topic", "none", "--master", "local[2]"]
        command += ["--max-offsets", str(max_offsets), "--json", "--conf", "spark.sql.shuffle.partitions=2"]
        command += [
            "--conf",
            f"spark.driver.extraJavaOptions={JVM_FLAGS}",
            "--conf",
            "spark.driver.memory=1g",
        ]
        for jar in jars:
            command += ["--jars", str(jar)]
        self._log = lake.with_name("land.log")
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={**os.environ, **spark_environment()},
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to every process of the session: those that made a group of their own, too."""
        for pid in session_members(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        wait_for(lambda: not session_members(self.process.pid), "all of land to be gone")

    def end(self) -> None:
        """Wait for its own end; anything but success raises, with the log's end."""
        if self.process.wait(END_TIMEOUT) != 0:
            raise RuntimeError(f"land ended with {self.process.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-4000:]


def session_members(session: int) -> list[int]:
    """The processes of a session that are not zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def wait_for(is_so: Callable[[], bool], awaited: str, timeout: float = MOMENT_TIMEOUT) -> None:
    """Wait for something that other processes do."""
    until = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {timeout:.0f} s for {awaited}")
        time.sleep(POLL)


def send(brokers: str, topic: str, first: int, last: int, rows: int) -> None:
    """Send the records with these numbers; record n is number n // 4 of producer n % 4."""
    failed: list[str] = []

    def told(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    for n in range(first, last):
        stamp = PRODUCERS[n % 4] + struct.pack(">Q", n // 4)
        while True:
            try:
                producer.produce(
                    topic,
                    b"%0100d" % n,
                    key=b"%d" % n,
                    partition=n // 4 % PARTITIONS,
                    timestamp=START_MS + n * SPREAD_MS // rows,
                    headers=[("ap.id", stamp)],
                    on_delivery=told,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if n % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left or failed:
        raise RuntimeError(f"{left} records were not delivered, {len(failed)} failed: {failed[:3]}")


def ids_in(
    files: Sequence[str],
) -> tuple[Counter[bytes], dict[bytes, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    """The numbers in some files by producer, sorted; and how many rows each producer has."""
    parts = []
    for file in files:
        with pq.ParquetFile(file) as opened:
            parts.append(opened.read(["producer_id", "sequence"]))
    if not parts:
        return Counter(), {}
    rows = pa.concat_tables(parts)
    by_producer = {}
    counts: Counter[bytes] = Counter()
    for producer in pc.unique(rows["producer_id"]).to_pylist():
        numbers = rows.filter(pc.equal(rows["producer_id"], producer))["sequence"].to_numpy()
        by_producer[producer] = np.sort(numbers)
        counts[producer] = len(numbers)
    return counts, by_producer


def mixed_in(rows: pa.Table) -> int:
    """Rows with another key or value than `send` gives to the record with their id."""
    producers = pc.index_in(rows["producer_id"], value_set=pa.array(PRODUCERS, pa.binary()))
    numbers = pc.add(pc.multiply(rows["sequence"], 4), pc.cast(producers, pa.int64()))
    keys = pc.cast(numbers, pa.string())
    values = pc.utf8_lpad(keys, 100, "0")
    is_right = pc.and_(
        pc.equal(pc.cast(rows["key"], pa.string()), keys),
        pc.equal(pc.cast(rows["value"], pa.string()), values),
    )
    return int(rows.num_rows - (pc.sum(is_right).as_py() or 0))


def judge(lake: Path, report: Report) -> None:
    """Count what is in the files that anybody finds, with pyarrow and numpy alone."""
    root = Path(lake) / "table=data"
    files = []
    for path in sorted(root.rglob("*.parquet")):
        if any(part.startswith((".", "_")) for part in path.relative_to(root).parts):
            continue
        try:
            with pq.ParquetFile(path) as opened:
                rows = opened.read()
        except (pa.ArrowException, OSError) as error:
            report.unreadable.append(f"{path.name}: {error}")
        else:
            files.append(str(path))
            report.mixed += mixed_in(rows)
    report.files = len(files)
    counts, found = ids_in(files)
    report.rows = sum(counts.values())
    for number, producer in enumerate(PRODUCERS):
        expected = np.arange((report.sent - number + 3) // 4)
        numbers = found.pop(producer, np.array([], dtype=np.int64))
        unique = np.unique(numbers)
        report.duplicated += len(numbers) - len(unique)
        report.lost += len(np.setdiff1d(expected, unique))
        report.foreign += len(np.setdiff1d(unique, expected))
    report.foreign += sum(len(numbers) for numbers in found.values())


def look(lake: Path, report: Report) -> None:
    """Read the lake as the jobs do, by the manifest; what is committed may only be there once."""
    store = Store(str(lake))
    for _ in range(5):
        snapshot = store.snapshot()
        try:
            _, found = ids_in(snapshot.files)
        except FileNotFoundError:
            # land may just write a batch again, compact is not running: a new look.
            continue
        report.looks += 1
        report.torn += any(len(numbers) != len(np.unique(numbers)) for numbers in found.values())
        return


def compact_killed(lake: Path, steps: Iterator[str], report: Report) -> None:
    """One compact, killed at the next step; where there was too little to do it ends by itself."""
    step = next(steps)
    command = [sys.executable, "-m", "tests.spark.dying_compact", str(lake), step]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **spark_environment()}, check=False)
    if done.returncode == -signal.SIGKILL:
        report.compact_kills[step] = report.compact_kills.get(step, 0) + 1
    elif done.returncode != 0:
        raise RuntimeError(f"compact ended with {done.returncode}")


class Progress:
    """How far the landing query is, by its checkpoint."""

    def __init__(self, lake: Path) -> None:
        self._checkpoint = lake / "_land" / "checkpoint"

    def last(self, log: str) -> int:
        """The highest batch in `offsets` or `commits`; -1 without one."""
        try:
            names = os.listdir(self._checkpoint / log)
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def is_under_way(self) -> bool:
        """Whether a batch is planned and not committed."""
        return self.last("offsets") > self.last("commits")

    def __str__(self) -> str:
        return f"offsets {self.last('offsets')}, commits {self.last('commits')}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    Attributes:
        rows: Records to send.
        kills: Of land.
        has_compact: Whether compact runs at the same time, and is killed.
        seed: Of the moments.
        batches: About how many micro-batches the rows make.
        topic: What to send to; made here.
    """

    rows: int
    kills: int
    has_compact: bool
    seed: int = 1
    batches: int = 20
    topic: str = "orders"


def run(plan: Plan, cluster: KafkaCluster, jars: Sequence[Path], directory: Path) -> Report:
    """Do it all; the broker is there, the topic is not."""
    report, moments = Report(), random.Random(plan.seed)
    steps, lake = itertools.cycle(STEPS), directory / "lake"
    progress, started_at = Progress(lake), time.monotonic()
    brokers = cluster.bootstrap_servers
    cluster.create_topic(plan.topic, partitions=PARTITIONS)
    max_offsets = max(plan.rows // plan.batches, PARTITIONS)
    parts = [plan.rows * number // (plan.kills + 1) for number in range(plan.kills + 2)]
    send(brokers, plan.topic, parts[0], parts[1], plan.rows)
    report.sent = parts[1]
    for number in range(1, plan.kills + 1):
        job = Job(lake, brokers, plan.topic, jars, max_offsets)
        # More comes in while it runs.
        more = (brokers, plan.topic, parts[number], parts[number + 1], plan.rows)
        sender = threading.Thread(target=send, args=more)
        sender.start()
        try:
            before = progress.last("commits")
            # Not before some batches are done: that is when there is something to compact, too.
            wanted = before + moments.randint(1, max(plan.batches // (plan.kills + 1) - 1, 1))
            _watch(job, progress, wanted, lambda: _compact(plan, lake, steps, report))
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(moments.uniform(0.0, 0.4))
            is_running = job.process.poll() is None
            report.kills.append(f"{progress}" if is_running else f"{progress}, it had ended")
        finally:
            job.kill()
            sender.join()
        report.sent = parts[number + 1]
        look(lake, report)
        if plan.has_compact:
            # Here it finishes what the one before had begun, and dies on.
            compact_killed(lake, steps, report)
            look(lake, report)
    job = Job(lake, brokers, plan.topic, jars, max_offsets)
    try:
        _watch(job, progress, sys.maxsize, lambda: _compact(plan, lake, steps, report))
        job.end()
    finally:
        job.kill()
    if plan.has_compact:
        _end_compact(lake, steps, report)
    judge(lake, report)
    report.seconds = round(time.monotonic() - started_at, 1)
    return report


def _watch(job: Job, progress: Progress, wanted: int, meanwhile: Callable[[], None]) -> None:
    """Until a batch after the wanted one is under way, or land has ended."""
    until = time.monotonic() + MOMENT_TIMEOUT
    seen = progress.last("commits")
    while job.process.poll() is None and not (progress.last("commits") >= wanted and progress.is_under_way()):
        if progress.last("commits") > seen + 1:
            meanwhile()
            seen = progress.last("commits")
            until = time.monotonic() + MOMENT_TIMEOUT
        if time.monotonic() > until:
            raise TimeoutError(f"land does not go on ({progress}):\n{job.log_tail()}")
        time.sleep(POLL)


def _compact(plan: Plan, lake: Path, steps: Iterator[str], report: Report) -> None:
    if plan.has_compact:
        compact_killed(lake, steps, report)
        look(lake, report)


def _end_compact(lake: Path, steps: Iterator[str], report: Report) -> None:
    """Kill it at each step that is left, as long as there is something to do; then let it run to its end."""
    for _ in STEPS:
        if len(report.compact_kills) == len(STEPS):
            break
        compact_killed(lake, steps, report)
        look(lake, report)
    outcome = Compactor(Store(str(lake)), lambda: safe_batches(str(lake)), Policy()).run()
    report.compactions = outcome.compactions + outcome.resumed
    if outcome.failed:
        raise RuntimeError(f"compact failed: {outcome.failed}")


def main(arguments: Sequence[str]) -> int:
    """The program; the exit code says whether nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_land", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    plan = Plan(given.rows, given.kills, given.compact, given.seed)
    tools, jars = KafkaTools(find_or_install()), find_or_install_connector()
    with tempfile.TemporaryDirectory(prefix="kill-land-") as directory:
        with KafkaCluster(tools, Path(directory) / "kafka") as cluster:
            report = run(plan, cluster, jars, Path(directory))
        print(json.dumps({"plan": asdict(plan), "is_right": report.is_right, **asdict(report)}, indent=2))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
