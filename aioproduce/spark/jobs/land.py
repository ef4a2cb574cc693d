"""`python -m aioproduce.spark land`: topics of Kafka into a lake of Parquet files.

The layout of the files: `aioproduce.spark.layout`; how a batch is written: `landing`; where it begins: `starting`.

Invariants:

1. Everything that can be refused is refused before the query starts: topics, checkpoint, lake, offsets.
2. It may be killed at any moment and run again: every offset is in the lake exactly once. Spark plans a batch
   before it runs and commits it afterwards. In between the batch is repeated, and replaces itself.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import pyarrow.parquet as pq
from pyspark.sql import functions as F

from aioproduce.audit import DEFAULT_AUDIT_TOPIC
from aioproduce.spark.checkpoint import read_checkpoint
from aioproduce.spark.errors import OptionError, TopicError
from aioproduce.spark.files import files_of, is_local, join, local_path
from aioproduce.spark.jobs.progress import follow
from aioproduce.spark.jobs.running import Summary, add_repeated, pairs_of
from aioproduce.spark.jobs.selection import names_of
from aioproduce.spark.lake import (
    LOCK_NAME,
    CheckpointNote,
    lake_id,
    landers_of,
    read_note,
    remove_incomplete,
    remove_staging,
    write_note,
)
from aioproduce.spark.lake_files import land_lock
from aioproduce.spark.landing import SETTINGS as LANDING_SETTINGS
from aioproduce.spark.landing import Landing
from aioproduce.spark.layout import STATE_DIRECTORY, LandedBatch, Table
from aioproduce.spark.starting import Found, Start, check_checkpoint, starting_offsets
from aioproduce.spark.store import Snapshot, Store, read_consistently
from aioproduce.spark.tables import read_table
from aioproduce.spark.topic_partitions import TopicPartitions

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from aioproduce.spark.files import Files

HELP: Final = """Land topics of Kafka in a lake: Parquet files by topic, date and hour (UTC).

Records keep their headers and ids. Bad records go to the quarantine with the reason, and the marks of the audit
topic
to a table of their own. The next run continues where this one ended, whatever ended it."""

SETTINGS: Final[dict[str, str]] = dict(LANDING_SETTINGS)
NEEDS_CONNECTOR: Final = True

_CODECS: Final = ("zstd", "snappy", "lz4_raw", "gzip", "none")

_FETCH: Final = {
    # Records of an aborted transaction do not count, and its retry would be in addition to them. Without
    # transactions it changes nothing.
    "kafka.isolation.level": "read_committed",
    # Ten thousand records at a time, not 500, and from each broker as much as a batch of that size needs.
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
"""The default settings of Spark's Kafka source."""


@final
@dataclass
class LandSummary(Summary):
    """The result of a run.

    Attributes:
        query_id: The query's id.
        rows: Rows read from Kafka, for all tables.
        batches: Micro-batches with rows.
        quarantined: Rows that went to the quarantine.
        marks: Rows that went to the table of marks.
        lake: The lake.
        removed: Incomplete directories of killed runs that were removed.
    """

    job = "land"
    query_id: str
    rows: int
    batches: int
    quarantined: int
    marks: int
    lake: str
    removed: int = 0

    def lines(self) -> list[str]:
        """Return the summary for people."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        lines = [
            f"landed {self.rows:,} rows in {self.batches} batches and {self.seconds:.1f} s ({rate:,.0f} rows/s)"
            f" in {self.lake}"
        ]
        if self.quarantined:
            lines.append(f"of these in quarantine: {self.quarantined:,} (see the column `reason`)")
        if self.marks:
            lines.append(f"marks of producers: {self.marks:,}")
        if self.removed:
            lines.append(f"incomplete directories of killed runs, removed: {self.removed}")
        return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    what = parser.add_argument_group("input and output")
    what.add_argument(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers of the cluster"
    )
    what.add_argument(
        "--lake", required=True, metavar="DIR", help="the lake: a local directory, hdfs://, s3a://, ..."
    )
    topics = what.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", metavar="T,...", help="topics to land")
    topics.add_argument(
        "--topic-pattern", metavar="REGEX", help="topics to land, including those that are created later"
    )
    what.add_argument(
        "--audit-topic",
        metavar="T",
        help=f"the topic of the producers' marks; `none` for none (default: {DEFAULT_AUDIT_TOPIC}, if it exists)",
    )
    what.add_argument(
        "--checkpoint", metavar="DIR", help="the query's progress (default: <lake>/_land/checkpoint)"
    )
    what.add_argument(
        "--starting-offsets",
        default=Start.LAKE.value,
        metavar="WHERE",
        help="where a new checkpoint begins: lake (the default: after the lake's records), earliest, latest, JSON",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--continuous", action="store_true", help="run for ever; else end when all records are landed"
    )
    how.add_argument(
        "--trigger", default="10 seconds", help="the interval, with --continuous (default: 10 seconds)"
    )
    how.add_argument(
        "--max-offsets",
        type=int,
        default=5_000_000,
        help="maximum offsets in a micro-batch (default: 5,000,000)",
    )
    how.add_argument("--min-partitions", type=int, help="minimum tasks of a batch (default: Spark's cores)")
    how.add_argument(
        "--compression", default="zstd", help="zstd, snappy, lz4_raw, gzip or none (default: zstd)"
    )
    how.add_argument(
        "--zstd-level", type=int, default=1, help="1 to 22 (default: 1; compaction can compress better)"
    )
    how.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="continue if Kafka deleted offsets before they were landed, instead of failing",
    )
    setting = "a setting of Kafka's consumer, e.g. security.protocol=SSL"
    add_repeated(how, "--kafka", "KEY=VALUE", setting)


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """A landing that is ready to begin.

    Attributes:
        lake: Its directory, as a complete path.
        checkpoint: The query's checkpoint, as a complete path.
        plan: What is landed, as recorded in the checkpoint.
        source: The options of Spark's Kafka source.
        first_batch: The first batch that this run commits.
        removed: Incomplete directories of killed runs that were removed.
    """

    lake: str
    checkpoint: str
    plan: CheckpointNote
    source: dict[str, str]
    first_batch: int
    removed: int


def run(args: argparse.Namespace, spark: SparkSession) -> LandSummary:
    """Land until all records are landed, or for ever.

    Raises:
        LandRunningError: If another land works with this checkpoint.
    """
    with contextlib.ExitStack() as held:
        return _land(args, spark, prepare(args, spark, held))


def _land(args: argparse.Namespace, spark: SparkSession, prepared: Prepared) -> LandSummary:
    records = spark.readStream.format("kafka").options(**prepared.source).load()
    parquet = {"parquet.compression.codec.zstd.level": str(args.zstd_level)}
    landing = Landing(
        prepared.lake, prepared.checkpoint, prepared.plan.audit_topic, args.compression, parquet
    )
    writer = records.writeStream.foreachBatch(landing.write).option("checkpointLocation", prepared.checkpoint)
    writer = (
        writer.trigger(processingTime=args.trigger) if args.continuous else writer.trigger(availableNow=True)
    )
    started_at = time.monotonic()
    totals = follow(writer.start(), "land", is_quiet=args.quiet or args.json)
    seconds = time.monotonic() - started_at
    state = read_checkpoint(prepared.checkpoint, spark)
    assert state is not None
    written = (spark, prepared.lake, state.query_id, prepared.first_batch)
    return LandSummary(
        query_id=state.query_id,
        rows=totals.rows,
        batches=totals.batches,
        quarantined=_count(Table.QUARANTINE, *written),
        marks=_count(Table.MARKS, *written),
        seconds=seconds,
        lake=prepared.lake,
        removed=prepared.removed,
    )


def prepare(args: argparse.Namespace, spark: SparkSession, held: contextlib.ExitStack) -> Prepared:
    """Check everything, and record in lake and checkpoint what is about to begin.

    Args:
        args: The job's arguments.
        spark: A session with the connector.
        held: Holds the checkpoint's lock from here on.

    Raises:
        LandRunningError: If another land works with this checkpoint.
        OptionError: If an argument is out of range.
        TopicError: If a topic is missing, or if the cluster does not answer.
        CheckpointError: If the checkpoint is for something else, or if offsets would be landed twice.
        LayoutError: If the lake is not valid.
    """
    _check(args)
    kafka = {f"kafka.{key}": value for key, value in pairs_of(args.kafka, "--kafka").items()}
    kafka = {**_FETCH, **kafka, "kafka.bootstrap.servers": args.bootstrap_servers}
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    lake = complete(args.lake, default)
    checkpoint = complete(args.checkpoint or join(lake, STATE_DIRECTORY, "checkpoint"), default)
    cluster = _ask(args, spark, kafka)
    audit_topic = cluster.marks_topic(args.audit_topic)
    _lock(checkpoint, held)
    files = files_of(lake, spark)
    plan = CheckpointNote(
        lake=lake_id(lake, files),
        topics=(args.topic_pattern,) if args.topic_pattern else _topics(args),
        is_pattern=bool(args.topic_pattern),
        audit_topic=audit_topic,
    )
    found = _find(lake, checkpoint, spark)
    check_checkpoint(found, plan, checkpoint, cluster.partitions)
    starting = starting_offsets(found, args.starting_offsets, cluster.partitions, checkpoint)
    if found.checkpoint is not None and not found.is_begun and starting != Start.LATEST:
        # The start offsets of a first run that ended before it had planned a batch; Spark would use them.
        files_of(checkpoint, spark).delete(join(checkpoint, "sources"))
    removed = remove_leftovers(lake, found, files)
    write_note(checkpoint, plan, files_of(checkpoint, spark))
    source = {
        **kafka,
        "includeHeaders": "true",
        "startingOffsets": starting,
        "maxOffsetsPerTrigger": str(args.max_offsets),
        "minPartitions": str(args.min_partitions or spark.sparkContext.defaultParallelism),
        "failOnDataLoss": str(not args.allow_data_loss).lower(),
    }
    if plan.is_pattern:
        audit = "" if audit_topic is None else f"|{re.escape(audit_topic)}"
        source["subscribePattern"] = f"(?:{args.topic_pattern}){audit}"
    else:
        source["subscribe"] = ",".join(cluster.partitions)
    first = 0 if found.checkpoint is None else found.checkpoint.committed + 1
    return Prepared(lake, checkpoint, plan, source, first, removed)


def _lock(checkpoint: str, held: contextlib.ExitStack) -> None:
    """Take the lock of a local checkpoint; others have none."""
    if is_local(checkpoint):
        folder = local_path(checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        held.enter_context(land_lock(folder / LOCK_NAME))


def complete(path: str, default: str = "file:///") -> str:
    """Return a local path as an absolute one, because others look for the checkpoint; return other paths unchanged.

    Args:
        path: The user's path.
        default: Spark's default file system (`fs.defaultFS`), which applies to paths without a scheme.

    Raises:
        OptionError: If the path has no scheme, and the default is not the local file system.
    """
    if not is_local(path):
        return path.rstrip("/")
    complete_path = str(local_path(path).absolute())
    if is_local(default):
        return complete_path
    if not path.startswith("file:"):
        raise OptionError(
            f"{path} could be on this machine or on {default}, which is Spark's own for paths without a scheme:"
            f" write {default.rstrip('/')}{complete_path} or file://{complete_path}"
        )
    return f"file://{complete_path}"


def _check(args: argparse.Namespace) -> None:
    bounds = {
        "--max-offsets": (args.max_offsets, 1, None),
        "--min-partitions": (args.min_partitions, 1, None),
        "--zstd-level": (args.zstd_level, 1, 22),
    }
    for option, (value, least, most) in bounds.items():
        if value is not None and (value < least or (most is not None and value > most)):
            reach = f"from {least}" + (f" to {most}" if most is not None else " on")
            raise OptionError(f"{option} is {value}, but must be {reach}", option=option)
    if args.compression not in _CODECS:
        raise OptionError(
            f"--compression is {args.compression!r}, but must be {', '.join(_CODECS)}", option="--compression"
        )


def _topics(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the given names in order; none if there is a pattern."""
    return tuple(sorted(set(names_of(args.topics, "--topics"))))


def _ask(args: argparse.Namespace, spark: SparkSession, kafka: dict[str, str]) -> TopicPartitions:
    """Return those of the requested topics that exist.

    Raises:
        TopicError: If one is missing, or if a pattern matches none.
    """
    names = _topics(args)
    wanted = [*names] if args.audit_topic == "none" else [*names, args.audit_topic or DEFAULT_AUDIT_TOPIC]
    cluster = TopicPartitions.ask(spark, kafka, wanted, args.topic_pattern)
    cluster.check(names, "correct --topics; nothing was landed")
    if args.topic_pattern and not set(cluster.partitions) - set(wanted):
        raise TopicError(
            f"no topic matches --topic-pattern {args.topic_pattern}: correct it, or create one; nothing was landed",
            is_missing=True,
        )
    return cluster


def _find(lake: str, checkpoint: str, spark: SparkSession) -> Found:
    landers = landers_of(lake, files_of(lake, spark))
    own = read_checkpoint(checkpoint, spark)
    found = {} if own is None else {own.query_id: own}
    alive = set()
    for lander in landers:
        state = read_checkpoint(lander.checkpoint, spark)
        if state is not None and state.query_id == lander.query_id:
            alive.add(lander.query_id)
            found.setdefault(state.query_id, state)
    return Found(
        checkpoint=own,
        note=read_note(checkpoint, files_of(checkpoint, spark)),
        landers=landers,
        alive=alive,
        planned={
            query_id: state.end_offsets(state.planned)
            for query_id, state in found.items()
            if state.planned >= 0
        },
    )


def remove_leftovers(lake: str, found: Found, files: Files) -> int:
    """Remove incomplete directories of killed runs: the query's own, and at its beginning those of gone queries."""
    removed: list[str] = []
    queries = set() if found.checkpoint is None else {found.checkpoint.query_id}
    if not found.is_begun:
        # Its own, too, if a power cut lost its plan: none of its batches is done.
        gone = {
            each.query_id: each.batch
            for each in found.landers
            if each.query_id in queries or each.query_id not in found.alive
        }
        queries |= set(gone)
        removed += remove_incomplete(lake, gone, files) if gone else []
    removed += remove_staging(lake, queries, files) if queries else []
    return len(removed)


def _count(table: Table, spark: SparkSession, lake: str, query_id: str, first: int) -> int:
    """Return the rows of a table that this run wrote, from the files' footers; a compact may be running."""
    if is_local(lake):
        return read_consistently(Store(lake, table), lambda snapshot: rows_since(snapshot, query_id, first))
    batch = F.col("batch")
    number = F.substring_index(batch, "-", -1).try_cast("int")
    rows = read_table(spark, lake, table)
    return rows.where(batch.startswith(f"{query_id}-")).where(number >= first).count()


def rows_since(snapshot: Snapshot, query_id: str, first: int) -> int:
    """Return the rows of a query's batches from a number on, without those that are already compacted."""
    rows = 0
    for batch in snapshot.batches:
        landed = LandedBatch.parse(batch.name.removeprefix("batch="))
        if landed is not None and landed.query_id == query_id and landed.number >= first:
            folder = snapshot.root / batch.hour / batch.name
            rows += sum(pq.read_metadata(folder / name).num_rows for name, _ in batch.files.files)
    return rows
