"""The sink compared with Spark's own Kafka sink: `python -m benchmarks.spark_sink` prints the table.

One session (`local[2]`), one real broker on the same cores, one cached DataFrame of 100 bytes a row; every
contender writes all of it in each round, forwards and backwards in turn. Spark's sink runs with its defaults, and
tuned: with batches 64 times larger and `linger.ms=20`. "Its own work" is ours with `stamp=off`, the same work as
Spark's sink.

1. Only acknowledged records count: after each write the topic's end offsets must equal the number written, or the
   program ends with an error. Each write has a separate topic, which is deleted after it.
2. CPU is of all of Spark's processes: the JVM, its daemon, its workers, and those of them that have ended.
3. Requests are as the clients report them: ours Produce requests; Java's all requests, about ten of them others.
4. The time of a batch is that of a small write, from its call to its end, as for a micro-batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyspark
from rich.console import Console
from rich.table import Table

from aioproduce.audit.mark import DEFAULT_AUDIT_TOPIC
from benchmarks.process import TICKS
from benchmarks.targets import KAFKA_JVM_FLAGS
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import find_or_install, find_or_install_connector
from tests.kafka_tools import KafkaTools
from tests.processes import family

OURS: Final = "aioproduce"
KAFKA: Final = "kafka"
TUNED: Final = {"kafka.batch.size": str(64 * 16_384), "kafka.linger.ms": "20"}
NONE: Final = {"kafka.compression.type": "none"}
LZ4: Final = {"kafka.compression.type": "lz4"}
TOPIC_PARTITIONS: Final = 6
_MBEAN_SERVER: Final = "javax.management.MBeanServer"
_PRODUCERS: Final = "kafka.producer:type=producer-metrics,*"
ROW_BYTES: Final = 100
PROPERTIES: Final = {"log.segment.delete.delay.ms": "1000", "log.segment.bytes": str(256 * 2**20)}


@dataclass(frozen=True, slots=True)
class Contender:
    """A sink and its settings."""

    name: str
    source: str
    options: tuple[tuple[str, str], ...]


def _contender(name: str, source: str, *options: dict[str, str]) -> Contender:
    merged: dict[str, str] = {}
    for each in options:
        merged |= each
    return Contender(name, source, tuple(merged.items()))


DEFAULT: Final = "Spark, default"
TUNED_NONE: Final = "Spark, tuned"
TUNED_LZ4: Final = "Spark, tuned, lz4"
OWN_WORK: Final = "ours, stamp=off"
OWN_WORK_LZ4: Final = "ours, stamp=off, lz4"
STAMPED: Final = "ours"
STAMPED_LZ4: Final = "ours, lz4"
CONTENDERS: Final = (
    _contender(DEFAULT, KAFKA, NONE),
    _contender("Spark, default, lz4", KAFKA, LZ4),
    _contender(TUNED_NONE, KAFKA, TUNED, NONE),
    _contender(TUNED_LZ4, KAFKA, TUNED, LZ4),
    _contender(OWN_WORK, OURS, NONE, {"stamp": "off"}),
    _contender(OWN_WORK_LZ4, OURS, LZ4, {"stamp": "off"}),
    _contender(STAMPED, OURS, NONE),
    _contender(STAMPED_LZ4, OURS, LZ4),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One write of all rows, or of a small batch.

    Attributes:
        contender: The name of the contender.
        rows: Records, all acknowledged.
        seconds: Wall time.
        cpu: Processor seconds of Spark and its workers.
        requests: As in rule 3 of the module.
        is_small: Whether it is one of the small writes.
    """

    contender: str
    rows: int
    seconds: float
    cpu: float
    requests: int
    is_small: bool


def family_cpu(pid: int) -> float:
    """Return the processor seconds of a process and its descendants, ended ones included."""
    seconds = 0.0
    for each in family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended, and its parent's sum has it from now on
        seconds += sum(int(fields[place]) for place in (11, 12, 13, 14)) / TICKS
    return seconds


class Bench:
    """Spark, a broker, and the rows.

    Args:
        spark: The session.
        cluster: The broker.
        rows: The number of rows of a write.
        small_rows: The number of rows of a small write.
        folder: The folder for the sinks' metrics.
    """

    def __init__(self, spark: Any, cluster: KafkaCluster, rows: int, small_rows: int, folder: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._metrics = folder / "metrics.jsonl"
        self._pid = spark.sparkContext._gateway.proc.pid
        self._frames = {count: self._cached(count) for count in {rows, small_rows}}
        self.runs: list[Run] = []
        self._topics = 0

    def _cached(self, rows: int) -> Any:
        """Return lines of JSON, which lz4 makes about half as long."""
        line = (
            """concat('{"order": ', id, ', "customer": ', pmod(hash(id), 99991), ', "cents": ',"""
            """ pmod(hash(id, 7), 999983), ', "state": "', elt(1 + pmod(id, 3), 'paid', 'open', 'sent'),"""
            """ '", "note": "', md5(string(id)), '"}')"""
        )
        value = f"cast(rpad({line}, {ROW_BYTES}, ' ') as binary) as value"
        frame = self._spark.range(0, rows, 1, 2).selectExpr(value)
        frame = frame.cache()
        if frame.count() != rows:
            raise RuntimeError("the cache has not the rows that it should have")
        return frame

    def write(self, contender: Contender, rows: int, *, is_small: bool, is_kept: bool) -> None:
        """Write once, and check that the topic has exactly these records."""
        self._topics += 1
        topic = self._cluster.create_topic(f"bench-{self._topics}", partitions=TOPIC_PARTITIONS)
        options = {"kafka.bootstrap.servers": self._cluster.bootstrap_servers, "topic": topic}
        options |= dict(contender.options)
        if contender.source == OURS:
            options["metrics.path"] = str(self._metrics)
            self._metrics.write_text("")
        requests, cpu, began_at = self._java_requests(), family_cpu(self._pid), time.perf_counter()
        self._frames[rows].write.format(contender.source).mode("append").options(**options).save()
        seconds = time.perf_counter() - began_at
        cpu = family_cpu(self._pid) - cpu
        if contender.source == OURS:
            requests = sum(json.loads(line)["requests"] for line in self._metrics.read_text().splitlines())
        else:
            requests = self._java_requests() - requests
        found = sum(end - first for first, end in self._cluster.offsets(topic).values())
        self._cluster.delete_topic(topic)
        if found != rows:
            raise RuntimeError(f"{contender.name} wrote {rows} rows, and the topic has {found}")
        if is_kept:
            self.runs.append(Run(contender.name, rows, seconds, cpu, requests, is_small))

    def _java_requests(self) -> int:
        """Return the number of requests that the producers within the JVM have sent so far."""
        context = self._spark.sparkContext
        jvm, gateway = context._jvm, context._gateway
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        # The server's class is not public: call its methods as those of the interface.
        methods = {each.getName(): each for each in jvm.java.lang.Class.forName(_MBEAN_SERVER).getMethods()}

        def call(method: str, *values: object) -> Any:
            arguments = gateway.new_array(jvm.java.lang.Object, len(values))
            for place, value in enumerate(values):
                arguments[place] = value
            return methods[method].invoke(server, arguments)

        found = call("queryNames", jvm.javax.management.ObjectName(_PRODUCERS), None)
        return sum(int(call("getAttribute", name, "request-total")) for name in found)


# -- the table ---


def figures(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Return the medians of each contender's writes, and the 99th percentile of its small ones."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(run.contender for run in runs):
        large = [run for run in runs if run.contender == name and not run.is_small]
        small = sorted(run.seconds for run in runs if run.contender == name and run.is_small)
        rates = [run.rows / run.seconds for run in large]
        found[name] = {
            "rows_per_s": statistics.median(rates),
            "rows_per_s_min": min(rates),
            "rows_per_s_max": max(rates),
            "cpu_s_per_million": statistics.median(run.cpu / run.rows * 1e6 for run in large),
            "requests_per_million": statistics.median(run.requests / run.rows * 1e6 for run in large),
        }
        if small:
            found[name] |= {
                "batch_p50_s": statistics.median(small),
                "batch_p99_s": small[max(-(-len(small) * 99 // 100) - 1, 0)],
            }
    return found


def targets(runs: list[Run]) -> list[tuple[str, float, str, bool]]:
    """Return the targets of the sink: name, result, target, and whether it is met.

    A ratio is the median of the rounds' ratios: two writes of a round follow each other, and disturbances of the
    machine last longer than that.
    """
    seconds, cpu = _by_round(runs, "seconds"), _by_round(runs, "cpu")
    least = [
        ("rows/s of the tuned sink at its own work", OWN_WORK, TUNED_NONE, 1.0),
        ("goal: rows/s of the tuned sink with lz4", OWN_WORK_LZ4, TUNED_LZ4, 1.0),
        ("goal: rows/s of the default sink", OWN_WORK, DEFAULT, 2.0),
    ]
    most = [("stamping", STAMPED, OWN_WORK), ("stamping, lz4", STAMPED_LZ4, OWN_WORK_LZ4)]
    told = []
    for what, ours, theirs, asked in least:
        if ours in seconds and theirs in seconds:
            value = _ratio(seconds, theirs, ours)
            told.append((what, value, f"at least {asked:.1f}", value >= asked))
    for what, stamped, plain in most:
        if stamped in seconds and plain in seconds:
            for how, value in (
                ("fewer rows/s", 1 - _ratio(seconds, plain, stamped)),
                ("more CPU", _ratio(cpu, stamped, plain) - 1),
            ):
                told.append((f"{what}: {how}", value, "below 0.15", value < 0.15))
    return told


def _by_round(runs: list[Run], figure: str) -> dict[str, list[float]]:
    """Return a figure of each contender's large writes, in the order of rounds."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if not run.is_small:
            found.setdefault(run.contender, []).append(getattr(run, figure))
    return found


def _ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    return statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))


def show(runs: list[Run], console: Console, title: str) -> None:
    """Print both tables."""
    found = figures(runs)
    table = Table(title=title)
    heads = (
        "sink",
        "rows/s",
        "least .. most",
        "CPU s / M rows",
        "requests / M rows",
        "batch p50 s",
        "batch p99 s",
    )
    for head in heads:
        table.add_column(head, justify="left" if head == "sink" else "right")
    for name, each in found.items():
        table.add_row(
            name,
            f"{each['rows_per_s']:,.0f}",
            f"{each['rows_per_s_min']:,.0f} .. {each['rows_per_s_max']:,.0f}",
            f"{each['cpu_s_per_million']:.2f}",
            f"{each['requests_per_million']:,.0f}",
            f"{each['batch_p50_s']:.2f}" if "batch_p50_s" in each else "",
            f"{each['batch_p99_s']:.2f}" if "batch_p99_s" in each else "",
        )
    console.print(table)
    asked = Table("", "found", "asked", "")
    for what, value, wanted, is_met in targets(runs):
        asked.add_row(what, f"{value:.2f}", wanted, "met" if is_met else "MISSED")
    console.print(asked)


def session(jars: tuple[Path, ...], folder: Path) -> Any:
    """Start Spark with two cores, as for the figures that it is compared with."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = pyspark.sql.SparkSession.builder.appName("spark-sink").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_sink",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="of each write (2,000,000)")
    parser.add_argument("--rounds", type=int, default=5, help="after one to warm up (5)")
    parser.add_argument("--batches", type=int, default=30, help="small writes of each contender (30)")
    parser.add_argument("--batch-rows", type=int, default=20_000, help="rows of a small write (20,000)")
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", action="append", choices=names, help="this sink; may be repeated")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    options = parser.parse_args(arguments)
    contenders = [each for each in CONTENDERS if each.name in (options.only or names)]
    tools, jars = KafkaTools(find_or_install()), find_or_install_connector()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(
            KafkaCluster(tools, folder / "kafka", properties=PROPERTIES, jvm_flags=KAFKA_JVM_FLAGS)
        )
        cluster.create_topic(DEFAULT_AUDIT_TOPIC)
        spark = session(jars, folder)
        stack.callback(spark.stop)
        bench = Bench(spark, cluster, options.rows, options.batch_rows, folder)
        for number in range(options.rounds + 1):
            for contender in contenders if number % 2 else reversed(contenders):
                bench.write(contender, options.rows, is_small=False, is_kept=number > 0)
        for number in range(options.batches):
            for contender in contenders if number % 2 else reversed(contenders):
                bench.write(contender, options.batch_rows, is_small=True, is_kept=True)
    bench.runs.sort(key=lambda run: names.index(run.contender))
    title = f"{options.rows:,} rows of {ROW_BYTES} bytes, median of {options.rounds}; PySpark {pyspark.__version__}"
    show(bench.runs, Console(width=160), title)
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in bench.runs], indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
