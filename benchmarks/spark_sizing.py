"""The number of executors, partitions and brokers, from the processor time of a million records in each job.

    python -m benchmarks.spark_sizing [--rows 2000000] [--json FILE]

One real broker, one Spark session with two cores, all on this machine. The sink writes cached rows of 100 bytes,
`land` reads them into a lake, `audit` audits it. Each runs once to warm up and then a number of times; the median
is shown. Processor time is the kernel's for the JVM and its Python workers, with those that have ended; that of the
broker is counted separately.

1. A round counts only if no row is missing: all are acknowledged, landed, audited.
2. The sizes are extrapolated from processor time, which a busy machine lengthens less than wall time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from aioproduce.audit import DEFAULT_AUDIT_TOPIC
from aioproduce.spark.jobs import audit, land
from aioproduce.spark.jobs.running import Job, add_common_arguments
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import find_or_install, find_or_install_connector
from tests.kafka_tools import KafkaTools
from tests.processes import family

PARTITIONS: Final = 4
RATES: Final = (1_000_000, 10_000_000)
UTILISATION: Final = 0.6
CORES: Final = 4
"""The cores of an executor, and of a broker."""

REPLICATION: Final = 3
WIRE_MBYTES: Final = 1_000.0
"""Megabytes a second of a broker's network, in and out together: a share of 10 Gbit/s."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Round:
    """One run of a job.

    Attributes:
        job: `sink`, `land`, `audit`.
        rows: Records.
        seconds: Wall time.
        spark_seconds: Processor time of the JVM and its workers.
        broker_seconds: Processor time of the broker.
    """

    job: str
    rows: int
    seconds: float
    spark_seconds: float
    broker_seconds: float

    @property
    def spark_cost(self) -> float:
        """Processor seconds of Spark for a million records."""
        return self.spark_seconds / self.rows * 1e6

    @property
    def broker_cost(self) -> float:
        """Processor seconds of the broker for a million records."""
        return self.broker_seconds / self.rows * 1e6


@dataclass(frozen=True, slots=True)
class Need:
    """The size of a cluster for a rate.

    Attributes:
        cores: The cores for each job.
        executors: The executors of `CORES` cores for each job.
        partitions: One for each core of the landing.
        brokers_by_processor: The brokers of `CORES` cores: leaders and, at half of their cost, followers.
        brokers_by_wire: The brokers for the bytes that go in and out.
    """

    cores: dict[str, int]
    executors: dict[str, int]
    partitions: int
    brokers_by_processor: int
    brokers_by_wire: int


def need(rate: int, spark: dict[str, float], broker: dict[str, float], wire_bytes: float) -> Need:
    """Return the size for a rate.

    Args:
        rate: Records a second.
        spark: Processor seconds of Spark for a million records, by job.
        broker: Processor seconds of the broker for a million records, by job.
        wire_bytes: Bytes of a record in the broker's log.
    """
    millions = rate / 1e6
    cores = {job: math.ceil(millions * cost / UTILISATION) for job, cost in spark.items()}
    # A follower fetches and appends a leader's records without checking them: half the cost is a safe estimate.
    processor = millions * (broker["sink"] * (1 + (REPLICATION - 1) / 2) + broker["land"])
    # In at the leader, in and out for each follower, out to the landing.
    wire = rate * wire_bytes * (1 + 2 * (REPLICATION - 1) + 1) / 1e6
    return Need(
        cores=cores,
        executors={job: math.ceil(count / CORES) for job, count in cores.items()},
        partitions=cores["land"],
        brokers_by_processor=max(REPLICATION, math.ceil(processor / UTILISATION / CORES)),
        brokers_by_wire=max(REPLICATION, math.ceil(wire / UTILISATION / WIRE_MBYTES)),
    )


def processor_seconds(pids: list[int]) -> float:
    """Of these processes and of what they started and has ended."""
    total = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        total += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return total / _TICKS


class Bench:
    """A broker, a session, and the three jobs.

    Args:
        spark: The session.
        cluster: The broker.
        rows: The rows of a round.
        folder: The folder for lakes.
    """

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, rows: int, folder: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._rows = rows
        self._folder = folder
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._java: int = gateway.proc.pid
        self._frame = self._cached()
        self.rounds: list[Round] = []
        self.wire_bytes = 0.0

    def _cached(self) -> DataFrame:
        text = "concat(lpad(cast(id as string), 12, '0'), ' ', repeat(sha1(cast(id as string)), 2), ' paid!')"
        frame = self._spark.range(0, self._rows, 1, PARTITIONS)
        frame = frame.selectExpr("cast(id % 1000 as string) as key", f"{text} as value").cache()
        frame.count()
        return frame

    def round(self, *, is_kept: bool) -> None:
        """Run each job once, with a new topic and a new lake."""
        topic = self._cluster.create_topic(f"sizing-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
        lake = self._folder / topic
        servers = self._cluster.bootstrap_servers
        with self._timed("sink", is_kept=is_kept):
            (
                self._frame.write.format("aioproduce")
                .mode("append")
                .option("kafka.bootstrap.servers", servers)
                .option("topic", topic)
                .option("write.id", topic)
                .save()
            )
        written = sum(end for _, end in self._cluster.offsets(topic).values())
        logs = self._cluster.nodes[1].data.glob(f"{topic}-*/*.log")
        self.wire_bytes = sum(log.stat().st_size for log in logs) / written
        with self._timed("land", is_kept=is_kept):
            landed = self._run(
                land, "--bootstrap-servers", servers, "--topics", topic, "--lake", str(lake), "--quiet"
            )
        with self._timed("audit", is_kept=is_kept):
            # By workers: the job would read a lake of this size in the driver, of which a cluster has one.
            audited = self._run(audit, "--lake", str(lake), "--topics", topic, "--reader", "files")
        if not written == audited["rows"] == self._rows or audited["lost"] or audited["duplicates"]:
            raise SystemExit(f"not all rows are there: written {written}, landed {landed}, audited {audited}")

    def _run(self, job: Job, *words: str) -> dict[str, Any]:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        add_common_arguments(parser)
        for key, value in job.SETTINGS.items():
            if self._spark.conf.isModifiable(key):
                self._spark.conf.set(key, value)
        return job.run(parser.parse_args(words), self._spark).to_json()

    @contextmanager
    def _timed(self, job: str, *, is_kept: bool) -> Iterator[None]:
        broker = self._cluster.nodes[1].process
        assert broker is not None
        before = processor_seconds(family(self._java)), processor_seconds([broker.pid]), time.perf_counter()
        yield
        after = processor_seconds(family(self._java)), processor_seconds([broker.pid]), time.perf_counter()
        if is_kept:
            self.rounds.append(
                Round(job, self._rows, after[2] - before[2], after[0] - before[0], after[1] - before[1])
            )


def session(jars: tuple[Path, ...], folder: Path) -> SparkSession:
    """Two cores, and a JVM that is given the time to become fast."""
    # The process in which Spark makes a data source's writer uses the environment, not the setting.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.appName("sizing")
        .master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def page(rounds: list[Round], wire_bytes: float, rows: int) -> str:
    """What is printed: what was measured and where, and the tables."""
    count = sum(each.job == "sink" for each in rounds)
    return (
        f"{time.strftime('%d %B %Y')}, {rows:,} rows of 100 bytes, {count} rounds, medians; "
        f"{os.cpu_count()} processors for Spark `local[2]` and the broker together, PySpark {version('pyspark')}, "
        f"Python {platform.python_version()}; load at the end {os.getloadavg()[0]:.1f}.\n\n"
        f"{tables(rounds, wire_bytes)}"
    )


def tables(rounds: list[Round], wire_bytes: float) -> str:
    """What a job costs, and what a rate asks for, in Markdown."""
    names = tuple(dict.fromkeys(each.job for each in rounds))
    by_job = {job: [each for each in rounds if each.job == job] for job in names}
    spark = {job: statistics.median(each.spark_cost for each in found) for job, found in by_job.items()}
    broker = {job: statistics.median(each.broker_cost for each in found) for job, found in by_job.items()}
    lines = [
        "| job | rows/s, two cores shared with the broker | CPU s per million, Spark | CPU s per million, broker "
        f"| rows/s of an executor of {CORES} cores, {UTILISATION:.0%} used |",
        "|---|---|---|---|---|",
    ]
    for job, found in by_job.items():
        rate = statistics.median(each.rows / each.seconds for each in found)
        lines.append(
            f"| {job} | {rate:,.0f} | {spark[job]:.2f} | {broker[job]:.2f} "
            f"| {CORES * UTILISATION / spark[job] * 1e6:,.0f} |"
        )
    lines += [
        "",
        f"A record takes {wire_bytes:.0f} bytes in the log (lz4). Replication {REPLICATION}; a broker of {CORES} "
        f"cores and {WIRE_MBYTES:,.0f} MB/s, in and out together; {UTILISATION:.0%} of either used.",
        "",
        "| records/s | " + " | ".join(f"executors for {job}" for job in names) + " | partitions, at least "
        "| brokers, by processor | brokers, by network |",
        "|---|" + "---|" * (len(names) + 3),
    ]
    for rate in RATES:
        wanted = need(rate, spark, broker, wire_bytes)
        counts = " | ".join(f"{wanted.executors[job]:,}" for job in names)
        lines.append(
            f"| {rate:,} | {counts} | {wanted.partitions:,} | {wanted.brokers_by_processor:,} "
            f"| {wanted.brokers_by_wire:,} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_sizing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="of a round (2,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up (3)")
    parser.add_argument("--json", type=Path, help="also write every round to this file")
    options = parser.parse_args(arguments)
    tools, jars = KafkaTools(find_or_install()), find_or_install_connector()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(KafkaCluster(tools, folder / "kafka"))
        cluster.create_topic(DEFAULT_AUDIT_TOPIC)
        spark = session(jars, folder)
        stack.callback(spark.stop)
        bench = Bench(spark, cluster, options.rows, folder)
        for number in range(options.rounds + 1):
            bench.round(is_kept=number > 0)
    text = page(bench.rounds, bench.wire_bytes, options.rows)
    Console(width=160).print(text, markup=False, highlight=False)
    if options.json:
        rounds = [asdict(each) for each in bench.rounds]
        told = {"rows": options.rows, "wire_bytes": bench.wire_bytes, "rounds": rounds}
        options.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
