"""`python -m aioproduce.spark land`: topics of Kafka into a lake of Parquet files.

What is written where: `aioproduce.spark.layout`; how a batch is written: `landing`; where it begins: `starting`.

Invariants:

1. Everything that can be refused is, before the query starts: topics, checkpoint, lake, offsets.
2. Killed at any moment and run again: every offset is in the lake once. Spark plans a batch before it runs and
   commits it afterwards; in between it is done again, and replaces itself.
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

Records keep their headers and ids; what is bad goes to the quarantine, with the reason; the marks of the audit
topic go to a table of their own. Run again it goes on where it was, whatever ended it."""

SETTINGS: Final[dict[str, str]] = dict(LANDING_SETTINGS)
NEEDS_CONNECTOR: Final = True

_CODECS: Final = ("zstd", "snappy", "lz4_raw", "gzip", "none")

_FETCH: Final = {
    # What a transaction took back is nobody's record, and its retry would be there beside it. Without transactions
    # it changes nothing.
    "kafka.isolation.level": "read_committed",
    # Records by the ten thousand, not by 500, and as much from each broker as a batch of that takes.
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
"""Spark's Kafka source, where the user says nothing else."""


@final
@dataclass
class LandSummary(Summary):
    """What a run landed.

    Attributes:
        query_id: The query's.
        rows: Rows taken from Kafka, of all tables.
        batches: Micro-batches with rows.
        quarantined: Rows that went to the quarantine.
        marks: Rows that went to the table of marks.
        lake: Where.
        removed: Directories that killed runs had left half done.
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
        """For people."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        lines = [
            f"landed {self.rows:,} rows in {self.batches} batches and {self.seconds:.1f} s ({rate:,.0f} rows/s)"
            f" in {self.lake}"
        ]
        if self.quarantined:
            lines.append(f"of these in quarantine: {self.quarantined:,} (column `reason` tells why)")
        if self.marks:
            lines.append(f"marks of producers: {self.marks:,}")
        if self.removed:
            lines.append(f"removed {self.removed} directories that killed runs had left half done")
        return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the job takes."""
    what = parser.add_argument_group("from where to where")
    what.add_argument(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers of the cluster"
    )
    what.add_argument(
        "--lake", required=True, metavar="DIR", help="the lake: a local directory, hdfs://, s3a://, ..."
    )
    topics = what.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", metavar="T,...", help="topics to land")
    topics.add_argument(
        "--topic-pattern", metavar="REGEX", help="topics to land, also those that are made later"
    )
    what.add_argument(
        "--audit-topic",
        metavar="T",
        help=f"the topic of the producers' marks; `none` for none (default: {DEFAULT_AUDIT_TOPIC}, if it is there)",
    )
    what.add_argument("--checkpoint", metavar="DIR", help="how far it is (default: <lake>/_land/checkpoint)")
    what.add_argument(
        "--starting-offsets",
        default=Start.LAKE.value,
        metavar="WHERE",
        help="where a new checkpoint begins: lake (the default: after what the lake holds), earliest, latest, JSON",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--continuous", action="store_true", help="go on for ever; else end when all is landed")
    how.add_argument(
        "--trigger", default="10 seconds", help="how often, with --continuous (default: 10 seconds)"
    )
    how.add_argument(
        "--max-offsets",
        type=int,
        default=5_000_000,
        help="offsets in a micro-batch at most (default: 5,000,000)",
    )
    how.add_argument(
        "--min-partitions", type=int, help="tasks of a batch at least (default: the cores that Spark has)"
    )
    how.add_argument(
        "--compression", default="zstd", help="zstd, snappy, lz4_raw, gzip or none (default: zstd)"
    )
    how.add_argument(
        "--zstd-level", type=int, default=1, help="1 to 22 (default: 1; compaction can do better)"
    )
    how.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="go on where offsets are gone from Kafka before they were landed, instead of failing",
    )
    setting = "a setting of Kafka's consumer, e.g. security.protocol=SSL"
    add_repeated(how, "--kafka", "KEY=VALUE", setting)


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """A landing that may begin.

    Attributes:
        lake: Its directory, complete.
        checkpoint: The query's, complete.
        plan: What is landed, as the checkpoint will say it.
        source: The options of Spark's Kafka source.
        first_batch: The first that this run commits.
        removed: Directories that killed runs had left half done.
    """

    lake: str
    checkpoint: str
    plan: CheckpointNote
    source: dict[str, str]
    first_batch: int
    removed: int


def run(args: argparse.Namespace, spark: SparkSession) -> LandSummary:
    """Land until all that is there is landed, or for ever.

    Raises:
        LandRunningError: another one does, with this checkpoint.
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
    """Check everything, and say in lake and checkpoint what is about to begin.

    Args:
        args: The job's.
        spark: A session with the connector.
        held: Has the checkpoint's lock from here on.

    Raises:
        LandRunningError: another one lands with this checkpoint.
        OptionError: an argument is out of range.
        TopicError: a topic is missing, or the cluster does not answer.
        CheckpointError: the checkpoint is not for this, or offsets would be landed twice.
        LayoutError: the lake is not one.
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
        # Where Spark was told to begin when it was started first, and ended before it had planned: it heeds that.
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
    """Take the lock of a checkpoint that is local; others have none."""
    if is_local(checkpoint):
        folder = local_path(checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        held.enter_context(land_lock(folder / LOCK_NAME))


def complete(path: str, default: str = "file:///") -> str:
    """A local path from the root on, because a checkpoint is found again from elsewhere; others as they are.

    Args:
        path: As the user gave it.
        default: Spark's default file system (`fs.defaultFS`): on it is what has no scheme.

    Raises:
        OptionError: the path has no scheme, and the default is not the local file system.
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
            raise OptionError(f"{option} is {value}, and goes {reach}", option=option)
    if args.compression not in _CODECS:
        raise OptionError(
            f"--compression is {args.compression!r}, and takes {', '.join(_CODECS)}", option="--compression"
        )


def _topics(args: argparse.Namespace) -> tuple[str, ...]:
    """The names that were given, in order; none where there is a pattern."""
    return tuple(sorted(set(names_of(args.topics, "--topics"))))


def _ask(args: argparse.Namespace, spark: SparkSession, kafka: dict[str, str]) -> TopicPartitions:
    """The topics that are there of those that are wanted.

    Raises:
        TopicError: one is missing, or a pattern matches none.
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
    """Remove what killed runs have left half done: of the own query; at its beginning of those that are gone."""
    removed: list[str] = []
    queries = set() if found.checkpoint is None else {found.checkpoint.query_id}
    if not found.is_begun:
        # The own one, too, where a power cut took what it had planned: none of its batches is done.
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
    """The rows of a table that this run wrote, by the footers of its files; a compact may be at work beside it."""
    if is_local(lake):
        return read_consistently(Store(lake, table), lambda snapshot: rows_since(snapshot, query_id, first))
    batch = F.col("batch")
    number = F.substring_index(batch, "-", -1).try_cast("int")
    rows = read_table(spark, lake, table)
    return rows.where(batch.startswith(f"{query_id}-")).where(number >= first).count()


def rows_since(snapshot: Snapshot, query_id: str, first: int) -> int:
    """The rows of a query's batches from a number on, of those that are not compacted yet."""
    rows = 0
    for batch in snapshot.batches:
        landed = LandedBatch.parse(batch.name.removeprefix("batch="))
        if landed is not None and landed.query_id == query_id and landed.number >= first:
            folder = snapshot.root / batch.hour / batch.name
            rows += sum(pq.read_metadata(folder / name).num_rows for name, _ in batch.files.files)
    return rows
