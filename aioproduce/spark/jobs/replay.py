"""The job `replay`: sends rows of a lake back to Kafka, through the sink.

    python -m aioproduce.spark replay --lake LAKE --bootstrap-servers HOST:PORT --to TOPIC [--dry-run] ...

Key, value, headers and timestamp are those of the lake, and by default the stamp, too: a replayed record has the id
of its original, so that readers, `land` and the audit recognize it as a duplicate.

1. The target is always explicit: one topic, a map, or the topics that the records came from.
2. Rows of one of Kafka's partitions are sent in the order of their offsets, by one task, unless `--unordered`.
3. `--rate` bounds all tasks together: each concurrent task has its share.
4. With `--ids original` the headers are sent unchanged, including the stamp, and the sink adds none (`stamp=off`).
   Otherwise stamps are first removed from the headers: a record has at most one id.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from aioproduce.audit.stamp import STAMP_HEADER
from aioproduce.spark.duplicates import drop_duplicates
from aioproduce.spark.errors import LayoutError, OptionError
from aioproduce.spark.files import is_local
from aioproduce.spark.jobs.running import Summary, add_repeated, pairs_of
from aioproduce.spark.jobs.selection import Selection, add_selection_arguments, names_of, select, selection_of
from aioproduce.spark.jobs.task_progress import task_progress
from aioproduce.spark.layout import Table, table_path
from aioproduce.spark.store import Store, read_consistently
from aioproduce.spark.tables import read_files, read_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

HELP = """Send rows of a lake to Kafka again, with their keys, values, headers and timestamps, and with their
original
ids, so that they are recognized as duplicates. --dry-run reports what would be sent."""

SETTINGS: dict[str, str] = {}
NEEDS_CONNECTOR = False

IDS = ("original", "new", "none")


@dataclass(frozen=True, slots=True)
class Replay:
    """What to send again, and where to.

    Attributes:
        selection: The rows.
        to: One topic for all; None if `targets` or `is_same` is set.
        targets: Topic in the lake -> topic in Kafka; rows of other topics are not sent.
        is_same: Whether to send to the topics that the records came from.
        ids: `original`, `new` (from `write_id`, or random ones) or `none`.
        write_id: Names the write, so that the same replay run again has the same new ids.
        keeps_partitions: Whether to send to the partitions that the records came from.
        is_ordered: Whether to send the rows of a partition in the order of their offsets.
        is_distinct: Whether to skip duplicates in the lake.
        rate: Maximum records per second; 0 for no limit.
    """

    selection: Selection
    to: str | None = None
    targets: Mapping[str, str] = field(default_factory=dict)
    is_same: bool = False
    ids: str = "original"
    write_id: str | None = None
    keeps_partitions: bool = False
    is_ordered: bool = True
    is_distinct: bool = False
    rate: int = 0


@dataclass
class ReplaySummary(Summary):
    """What was sent, or would be.

    Attributes:
        lake: The lake.
        is_dry: Whether nothing was sent.
        rows: The selected rows; acknowledged, unless dry.
        routes: For each topic of the lake: the target, the number of records, the bytes of keys and values, and the
            first and last timestamp; only for a dry run.
        sink: The sink's report on the write.
    """

    job = "replay"
    lake: str
    is_dry: bool
    rows: int = 0
    routes: tuple[dict[str, Any], ...] = ()
    sink: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the summary for people."""
        if not self.is_dry:
            rate = self.rows / self.seconds if self.seconds else 0.0
            return [
                f"replayed {self.rows:,} rows of {self.lake} in {self.seconds:.1f} s ({rate:,.0f} rows/s)"
            ]
        out = [f"{self.rows:,} rows of {self.lake} would be sent; nothing was"]
        out += [
            f"  {route['topic']} -> {route['to']}: {route['rows']:,} rows, {route['bytes'] / 1e6:,.1f} MB, "
            f"{route['first']} to {route['last']}"
            for route in self.routes
        ]
        return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    what = parser.add_argument_group("input and output")
    what.add_argument("--lake", required=True, metavar="DIR", help="the lake of `land`")
    what.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT,...", help="the cluster; not needed with --dry-run"
    )
    target = what.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="TOPIC", help="everything into this topic")
    target.add_argument("--map", metavar="OLD=NEW,...", help="by topic; rows of other topics are not sent")
    target.add_argument(
        "--same-topics", action="store_true", help="into the topics that the records came from"
    )
    add_repeated(what, "--kafka", "KEY=VALUE", "a setting of the producer, e.g. compression.type=zstd")
    add_selection_arguments(parser)
    how = parser.add_argument_group("how")
    how.add_argument("--dry-run", action="store_true", help="report what would be sent, and send nothing")
    how.add_argument(
        "--ids", choices=IDS, default="original",
        help="the stamps: original, new ones, or none (default: %(default)s)",
    )  # fmt: skip
    how.add_argument(
        "--write-id", metavar="TEXT", help="with --ids new: the same text gives the same ids again"
    )
    how.add_argument(
        "--keep-partitions", action="store_true", help="to the partitions that the records came from"
    )
    how.add_argument("--unordered", action="store_true", help="do not sort by offset first; faster")
    how.add_argument(
        "--distinct",
        action="store_true",
        help="skip rows that the lake has twice (same id and checksum)",
    )
    how.add_argument(
        "--rate", type=int, default=0, metavar="N", help="maximum records per second, all tasks together"
    )


def run(args: argparse.Namespace, spark: SparkSession) -> ReplaySummary:
    """Replay.

    Raises:
        OptionError: If an argument is refused.
        LayoutError: If there is no lake.
        TopicError: If a topic is missing.
    """
    replay = replay_of(args)
    if not args.dry_run and args.bootstrap_servers is None:
        raise OptionError(
            "--bootstrap-servers is missing; set it, or use --dry-run", option="--bootstrap-servers"
        )
    kafka = pairs_of(args.kafka, "--kafka")
    began = time.monotonic()
    summary = ReplaySummary(args.lake, args.dry_run)

    def send(rows: DataFrame) -> None:
        if args.dry_run:
            summary.routes = routes_of(rows, replay)
            summary.rows = sum(route["rows"] for route in summary.routes)
        else:
            summary.sink = write(rows, replay, {**kafka, "bootstrap.servers": args.bootstrap_servers})
            summary.rows = int(summary.sink.get("rows", 0))

    with task_progress("replay", spark, is_quiet=args.quiet or args.json):
        read_lake(spark, args.lake, send)
    summary.seconds = time.monotonic() - began
    return summary


def replay_of(args: argparse.Namespace) -> Replay:
    """Return the replay for the arguments.

    Raises:
        OptionError: If one is refused, or if two contradict each other.
    """
    if args.rate < 0:
        raise OptionError("--rate must be a number of records per second, or 0 for no limit", option="--rate")
    if args.write_id is not None and args.ids != "new":
        raise OptionError("--write-id names new ids: it goes with --ids new", option="--write-id")
    targets = _targets_of(names_of(args.map, "--map"))
    selection = selection_of(args)
    if targets and not selection.topics:
        selection = replace(selection, topics=tuple(targets))
    elif targets and (missing := set(selection.topics).difference(targets)):
        raise OptionError(f"--map has no target for {', '.join(sorted(missing))}", option="--map")
    return Replay(
        selection=selection,
        to=args.to,
        targets=targets,
        is_same=args.same_topics,
        ids=args.ids,
        write_id=args.write_id,
        keeps_partitions=args.keep_partitions,
        is_ordered=not args.unordered,
        is_distinct=args.distinct,
        rate=args.rate,
    )


def read_lake(spark: SparkSession, lake: str, use: Any) -> None:
    """Call a function with the lake's rows, safely against concurrent compactions.

    If files are removed while they are read, the function is called again from the start. Records that it had sent
    are then sent twice, with the same ids unless these are new ones.

    Raises:
        LayoutError: If there is no lake.
    """
    if not is_local(lake):
        use(read_table(spark, lake, Table.DATA))
        return
    store = Store(lake, Table.DATA)
    if not store.root.is_dir():
        raise LayoutError(
            f"{lake} is not a lake: it does not have {table_path(lake, Table.DATA)}. Name the directory of `land`",
            path=lake,
        )
    read_consistently(store, lambda snapshot: use(read_files(spark, str(snapshot.root), snapshot.files)))


def target_of(replay: Replay) -> Column:
    """Return the target of a row, as a column."""
    if replay.to is not None:
        return F.lit(replay.to)
    if not replay.targets:
        return F.col("topic")
    pairs = [F.lit(name) for pair in replay.targets.items() for name in pair]
    return F.create_map(*pairs)[F.col("topic")]


def selected(rows: DataFrame, replay: Replay) -> DataFrame:
    """Return the selected rows, as they are in the lake."""
    found = select(rows, replay.selection)
    return drop_duplicates(found) if replay.is_distinct else found


def records_of(rows: DataFrame, replay: Replay) -> DataFrame:
    """Return the sink's input: key, value, headers, topic, timestamp, and the partition if it is kept."""
    found = selected(rows, replay)
    if replay.is_ordered:
        found = found.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    headers = F.col("headers")
    if replay.ids != "original":
        headers = F.filter(headers, lambda header: header["key"] != STAMP_HEADER)
    columns = [F.col("key"), F.col("value"), headers.alias("headers"), target_of(replay).alias("topic")]
    if replay.keeps_partitions:
        columns.append(F.col("partition"))
    return found.select(*columns, F.col("timestamp"))


def routes_of(rows: DataFrame, replay: Replay) -> tuple[dict[str, Any], ...]:
    """Return what would be sent, by topic."""
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    found = (
        selected(rows, replay)
        .groupBy("topic", target_of(replay).alias("to"))
        .agg(
            F.count("*").alias("rows"),
            F.sum(size).alias("bytes"),
            F.min("timestamp").cast("string").alias("first"),
            F.max("timestamp").cast("string").alias("last"),
        )
        .orderBy("topic")
    )
    return tuple(row.asDict() for row in found.collect())


def sink_options(replay: Replay, kafka: Mapping[str, str], slots: int) -> dict[str, str]:
    """Return the sink's options for this number of concurrent tasks; `kafka` has Kafka's keys."""
    options = {f"kafka.{key}": value for key, value in kafka.items()}
    options["stamp"] = "on" if replay.ids == "new" else "off"
    if replay.write_id is not None:
        options["write.id"] = replay.write_id
    if replay.rate:
        options["rate.limit.records"] = str(max(1, replay.rate // slots))
    return options


def write(rows: DataFrame, replay: Replay, kafka: Mapping[str, str]) -> dict[str, Any]:
    """Send the selected rows, and return the sink's report.

    Raises:
        TopicError: If a topic is missing.
    """
    slots = rows.sparkSession.sparkContext.defaultParallelism
    with tempfile.TemporaryDirectory(prefix="aioproduce-replay-") as folder:
        told = Path(folder) / "metrics.jsonl"
        options = {**sink_options(replay, kafka, slots), "metrics.path": str(told)}
        records_of(rows, replay).write.format("aioproduce").mode("append").options(**options).save()
        lines = told.read_text().splitlines() if told.exists() else []
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


def _targets_of(texts: tuple[str, ...]) -> dict[str, str]:
    targets: dict[str, str] = {}
    for old, new in map(_route, texts):
        if targets.setdefault(old, new) != new:
            raise OptionError(
                f"--map sends {old!r} to {targets[old]!r} and to {new!r}: replay it once for each",
                option="--map",
            )
    return targets


def _route(text: str) -> tuple[str, str]:
    old, separator, new = (part.strip() for part in text.partition("="))
    if not separator or not old or not new:
        raise OptionError(f"--map must be OLD=NEW, or several with commas, not {text!r}", option="--map")
    return old, new
