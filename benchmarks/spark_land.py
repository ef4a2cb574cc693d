"""Measure the `land` job: `python -m benchmarks.spark_land [--rows 2000000] [--rounds 4]`.

One session lands rows of 100 random bytes with keys and stamps (sent by librdkafka) from a real broker into a new
lake, again and again: the whole job, from the start of the query to its end, AvailableNow. The first round is cold.
rows/s is by the wall clock; CPU is that of the JVM and of this process, without the broker, on the same cores.
pyarrow counts every lake.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyspark
from confluent_kafka import Producer
from pyspark import SparkContext
from rich.console import Console
from rich.table import Table

from aioproduce.spark.jobs import land
from aioproduce.spark.jobs.running import add_common_arguments
from aioproduce.spark.jobs.session import job_session
from tests.kafka_cluster import KafkaCluster
from tests.kafka_install import find_or_install, find_or_install_connector
from tests.kafka_tools import KafkaTools

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "land"
VALUE = 100
POOL = 1 << 20


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_land", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=4, help="the first is cold")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--stamp", choices=("on", "off"), default="on")
    parser.add_argument("--compression", default="zstd")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def fill(bootstrap_servers: str, rows: int, *, is_stamped: bool) -> None:
    """Send the rows, and check that all of them were delivered."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 19,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    pool, producer_id = os.urandom(POOL + VALUE), os.urandom(16)
    for number in range(rows):
        start = number * 7919 % POOL
        headers: Any = [("ap.id", producer_id + struct.pack(">Q", number))] if is_stamped else None
        while True:
            try:
                producer.produce(TOPIC, pool[start : start + VALUE], key=b"%d" % number, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(300):
        sys.exit(f"{left} rows were not delivered")


def cpu_seconds() -> float:
    """Return the processor seconds of the session's JVM and of this process."""
    gateway: Any = SparkContext._gateway
    fields = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    jvm = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return jvm + time.process_time()


def land_once(
    options: argparse.Namespace, bootstrap: str, spark: SparkSession, lake: Path
) -> tuple[float, float]:
    """Land everything into a lake; return the seconds of the query, and processor seconds."""
    parser = argparse.ArgumentParser()
    land.add_arguments(parser)
    add_common_arguments(parser)
    where = ["--bootstrap-servers", bootstrap, "--lake", str(lake), "--topics", TOPIC]
    args = parser.parse_args([*where, "--quiet", "--compression", options.compression])
    before = cpu_seconds()
    summary = land.run(args, spark)
    used = cpu_seconds() - before
    counted = ds.dataset(lake / "table=data", format="parquet", partitioning="hive").count_rows()
    if (summary.rows, counted) != (options.rows, options.rows):
        sys.exit(f"{summary.rows} rows landed, {counted} in the lake, and {options.rows} were sent")
    return summary.seconds, used


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    taken: list[tuple[float, float]] = []
    jars = [str(jar) for jar in find_or_install_connector()]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "kafka").mkdir()
        with KafkaCluster(KafkaTools(find_or_install()), Path(scratch) / "kafka") as cluster:
            cluster.create_topic(TOPIC, partitions=options.partitions)
            fill(cluster.bootstrap_servers, options.rows, is_stamped=options.stamp == "on")
            master = f"local[{options.cores}]"
            with job_session("land", land.SETTINGS, master=master, jars=jars, needs_connector=True) as spark:
                for number in range(options.rounds):
                    lake = Path(scratch) / f"lake-{number}"
                    taken.append(land_once(options, cluster.bootstrap_servers, spark, lake))
                    load = os.getloadavg()[0]
                    print(
                        f"round {number}: {taken[-1][0]:.2f} s, load {load:.1f}", file=sys.stderr, flush=True
                    )
    warm = taken[1:] or taken
    rates = [options.rows / seconds / 1000 for seconds, _ in warm]
    cost = [used / options.rows * 1e6 for _, used in warm]
    table = Table("rows", "cold k rows/s", "warm k rows/s", "best", "worst", "CPU s per M rows")
    table.add_row(
        f"{options.rows:,}", f"{options.rows / taken[0][0] / 1000:,.0f}", f"{statistics.median(rates):,.0f}",
        f"{max(rates):,.0f}", f"{min(rates):,.0f}", f"{statistics.median(cost):.2f}",
    )  # fmt: skip
    Console(width=110).print(table)
    print(
        f"local[{options.cores}], stamp={options.stamp}, {options.compression}, PySpark {pyspark.__version__},"
        f" Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}"
    )
    if options.json is not None:
        told = [{"seconds": seconds, "cpu_seconds": used} for seconds, used in taken]
        options.json.write_text(json.dumps({"rows": options.rows, "rounds": told}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
