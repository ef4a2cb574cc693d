"""Measure the `audit` job: `python -m benchmarks.spark_audit [--rows 2000000 6000000] [--rounds 5]`.

The lake is as `land` writes it, made with pyarrow: values of 100 random bytes, sixteen producers with marks, and
records in eight random partitions, as with keys. Everything that can read it audits it in turn: Python workers that
read Parquet (as the job does), Spark's reader with the same passes, the driver alone, and a plain Spark aggregation
by id and number, as a user would write it without this package. The first round is cold: it starts workers. There
are two lakes of each size: a clean one, which needs the first pass only, and one with a hole and a duplicate in
every hundredth block. Every outcome is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from aioproduce.audit.mark import Mark
from aioproduce.spark.jobs.audit import AuditOptions, audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PRODUCERS = 16
PARTITIONS = 8
ROWS_OF_A_BATCH = 400_000
TOPIC = "orders"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_audit", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 6_000_000])
    parser.add_argument("--rounds", type=int, default=5, help="of each reader; the first is cold")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--readers", nargs="+", default=["files", "driver", "spark", "plain"])
    parser.add_argument("--lakes", nargs="+", default=["clean", "damaged"])
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def make_lake(folder: Path, rows: int, *, is_damaged: bool) -> tuple[int, int]:
    """Write the lake; return how many numbers are missing, and how many rows are duplicates."""
    random = np.random.default_rng(7)
    ids = [random.bytes(16) for _ in range(PRODUCERS)]
    each = rows // PRODUCERS
    # Producers take turns, some records at a time, as batches do.
    turn = np.arange(each * PRODUCERS) // 500 % PRODUCERS
    numbers = np.empty(len(turn), dtype=np.int64)
    for producer in range(PRODUCERS):
        numbers[turn == producer] = np.arange(each)
    if is_damaged:
        at = np.flatnonzero(numbers % 6_553_600 == 1234)
        keep = np.sort(np.concatenate([np.delete(np.arange(len(turn)), at), at + 1]))
        turn, numbers, damage = turn[keep], numbers[keep], len(at)
    else:
        damage = 0
    for batch, begin in enumerate(range(0, len(turn), ROWS_OF_A_BATCH)):
        some = slice(begin, begin + ROWS_OF_A_BATCH)
        _write_batch(folder, batch, ids, turn[some], numbers[some])
    marks = [Mark("closing", name, each, each, topics={TOPIC: each}).to_json() for name in ids]
    place = folder / "table=marks" / "topic=aioproduce.audit" / "date=2026-01-31" / "hour=07" / "batch=m-0"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"value": pa.array(marks, pa.binary())}), place / "part-0.parquet")
    return damage, damage


def _write_batch(folder: Path, batch: int, ids: list[bytes], turn: Any, numbers: Any) -> None:
    random = np.random.default_rng(batch)
    place = folder / "table=data" / f"topic={TOPIC}" / "date=2026-01-31" / "hour=07" / f"batch=q-{batch}"
    place.mkdir(parents=True)
    # A key goes to one partition: a record and its duplicate share theirs.
    of = (numbers * 2_654_435_761 + turn >> 7) % PARTITIONS
    for partition in range(PARTITIONS):
        here = np.flatnonzero(of == partition)
        many = len(here)
        content = pa.py_buffer(random.bytes(many * 100))
        values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(100), many, [None, content])
        table = pa.table(
            {
                "key": pa.array([b"key-%d" % number for number in numbers[here].tolist()], pa.binary()),
                "value": values.cast(pa.binary()),
                "partition": pa.array(np.full(many, partition, np.int32)),
                "offset": pa.array(np.arange(many) + batch * ROWS_OF_A_BATCH),
                "producer_id": pa.DictionaryArray.from_arrays(
                    turn[here].astype(np.int32), pa.array(ids, pa.binary())
                ),
                "sequence": pa.array(numbers[here]),
                "checksum": pa.array(numbers[here] * 1_000_003),
                "reason": pa.nulls(many, pa.string()),
            }
        )
        table = table.set_column(4, "producer_id", table["producer_id"].cast(pa.binary()))
        pq.write_table(table, place / f"part-{partition:05d}.zstd.parquet", compression="zstd")


def session(cores: int) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("audit").master(f"local[{cores}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def readers(lake: str, spark: SparkSession) -> dict[str, Callable[[], tuple[int, int]]]:
    """What audits the lake; each returns lost and duplicated."""

    def by(reader: str, session: SparkSession | None) -> Callable[[], tuple[int, int]]:
        def run() -> tuple[int, int]:
            report = audit(AuditOptions(lake, reader=reader), session)
            return report.lost, report.duplicates

        return run

    def plain() -> tuple[int, int]:
        from pyspark.sql import functions as F

        rows = spark.read.parquet(f"{lake}/table=data").select("producer_id", "sequence")
        numbers = rows.groupBy("producer_id", "sequence").count()
        found = numbers.groupBy("producer_id").agg(
            F.sum("count").alias("rows"), F.count("*").alias("numbers"), F.max("sequence").alias("highest")
        )
        out = found.collect()
        return sum(row.highest + 1 - row.numbers for row in out), sum(row.rows - row.numbers for row in out)

    return {
        "files": by("files", spark),
        "spark": by("spark", spark),
        "driver": by("driver", spark),
        "plain": plain,
    }


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    spark = session(options.cores)
    table = Table("lake", "rows", "reader", "cold k rows/s", "warm k rows/s", "best", "worst")
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for rows in options.rows:
            for kind in options.lakes:
                lake = Path(scratch) / f"{kind}-{rows}"
                wanted = make_lake(lake, rows, is_damaged=kind == "damaged")
                ways = readers(str(lake), spark)
                seconds: dict[str, list[float]] = {name: [] for name in options.readers}
                for _ in range(options.rounds):
                    for name, taken in seconds.items():
                        began = time.perf_counter()
                        found = ways[name]()
                        taken.append(time.perf_counter() - began)
                        print(f"{kind} {rows:,} {name}: {taken[-1]:.2f} s", file=sys.stderr, flush=True)
                        if found != wanted:
                            sys.exit(f"{name} found {found} lost and duplicated, and it is {wanted}")
                for name, (cold, *warm) in seconds.items():
                    rates = [rows / each / 1000 for each in warm or [cold]]
                    results.append({"lake": kind, "rows": rows, "reader": name, "seconds": [cold, *warm]})
                    table.add_row(
                        kind, f"{rows:,}", name, f"{rows / cold / 1000:,.0f}", f"{statistics.median(rates):,.0f}",
                        f"{max(rates):,.0f}", f"{min(rates):,.0f}",
                    )  # fmt: skip
    spark.stop()
    Console(width=110).print(table)
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(
        f"local[{options.cores}], PySpark {spark.version}, pyarrow {pa.__version__}; load at the end: {load}"
    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
