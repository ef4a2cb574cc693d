"""The job `audit`: whether the lake has every acknowledged record, and each only once.

    python -m aioproduce.spark audit LAKE [--json] [--fail-on-duplicates] ...

Reads the lake's tables `data` and `quarantine` (a record in either is not lost) and the marks, from the table
`marks` or from Kafka. It makes two passes (`audit_passes`), run where the files can be read (`audit_lake`), and
a verdict (`audit_judge`, `audit_report`).

1. Marks are read before the data files are listed: files that land meanwhile only add to what a mark promised.
2. Both passes see the same files: if a compaction removes some of them, both start again (`store`).
3. A clean lake costs one Spark job, without a shuffle.
4. An incomplete audit is never reported as clean: a missing lake or topic, unreadable marks, and a bug end with
   exit code 2.

    marks ─────────────────────────▶ expectations ─┐
    files ──▶ workers: partials of blocks ─────▶ judge ──▶ suspects ──▶ workers, by block ──▶ findings ──▶ report
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from aioproduce.audit import DEFAULT_AUDIT_TOPIC
from aioproduce.spark.connector import check_connector
from aioproduce.spark.errors import LayoutError, OptionError
from aioproduce.spark.files import files_of, is_local, local_path
from aioproduce.spark.jobs.audit_judge import Judge, Scope
from aioproduce.spark.jobs.audit_lake import DataFile, FramePasses, LocalPasses, Passes, SparkPasses
from aioproduce.spark.jobs.audit_report import AuditReport, ExitCode
from aioproduce.spark.jobs.marks import MarkFold
from aioproduce.spark.jobs.running import add_repeated, pairs_of
from aioproduce.spark.jobs.selection import instant_of, names_of
from aioproduce.spark.jobs.session import is_submitted
from aioproduce.spark.jobs.task_progress import task_progress
from aioproduce.spark.layout import Table, table_path
from aioproduce.spark.store import Snapshot, Store, read_consistently
from aioproduce.spark.tables import read_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

HELP = """Report which records are lost, duplicated or in conflict, by producer id and number.

Exit codes: 0 clean; 1 records are lost, or ids are in conflict; 2 wrong usage, or the audit failed;
3 duplicates, with --fail-on-duplicates."""

SETTINGS: dict[str, str] = {"spark.sql.shuffle.partitions": "16"}
NEEDS_CONNECTOR = False
FAILED_EXIT_CODE = ExitCode.FAILED

READERS = ("auto", "driver", "files", "spark")
DRIVER_BYTES = 512 << 20
"""With `auto`, the driver reads lakes up to this size. For 1 million rows (100 MB) it took 0.6 s, while two workers
took 2.0 to 3.5 s, and 29 s with their start, on a machine under load.
"""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What to audit, and how strictly.

    Attributes:
        lake: The lake's directory.
        topics: The topics to audit; if empty, all topics of the lake.
        bootstrap_servers: The cluster to read the marks from; None: read them from the lake.
        audit_topic: Their topic there.
        kafka: Further settings of Spark's Kafka source, as `kafka.*`.
        until: Later marks are ignored, in milliseconds since the epoch; None for no limit.
        is_from_first_seen: Whether to ignore numbers below the lowest one of a producer in the lake.
        is_strict: Whether undecided numbers count as lost.
        fails_on_duplicates: Whether duplicates alone have an exit code of their own.
        limit: The maximum number of producers in the report.
        reader: `files` (workers read Parquet themselves), `driver` (the driver reads), `spark` (Spark reads);
            `auto`: spark if the lake is not on a local path, driver if it is small, else files.
    """

    lake: str
    topics: tuple[str, ...] = ()
    bootstrap_servers: str | None = None
    audit_topic: str = DEFAULT_AUDIT_TOPIC
    kafka: Mapping[str, str] = field(default_factory=dict)
    until: int | None = None
    is_from_first_seen: bool = False
    is_strict: bool = False
    fails_on_duplicates: bool = False
    limit: int = 100
    reader: str = "auto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    what = parser.add_argument_group("input")
    place = what.add_mutually_exclusive_group(required=True)
    place.add_argument("--lake", metavar="DIR", help="the lake of `land`")
    place.add_argument("place", nargs="?", metavar="DIR", help="the same")
    what.add_argument(
        "--topics",
        metavar="T,...",
        help="audit only these; required if the lake does not have all topics of its producers",
    )
    what.add_argument(
        "--from-first-seen",
        action="store_true",
        help="ignore numbers below a producer's lowest one: for a lake whose old days were deleted",
    )
    marks = parser.add_argument_group("marks of producers")
    marks.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="read the marks from Kafka (default: from the lake)",
    )
    marks.add_argument(
        "--audit-topic",
        default=DEFAULT_AUDIT_TOPIC,
        metavar="T",
        help="their topic there (default: %(default)s)",
    )
    setting = "a setting of Kafka's consumer, e.g. security.protocol=SSL"
    add_repeated(marks, "--kafka", "KEY=VALUE", setting)
    marks.add_argument(
        "--as-of",
        metavar="TIME",
        help="ignore later marks, e.g. 2026-01-31T12:00Z: if landing is behind",
    )
    verdict = parser.add_argument_group("verdict")
    verdict.add_argument(
        "--strict",
        action="store_true",
        help="count undecided numbers (in flight at a producer's last mark) as lost",
    )
    verdict.add_argument(
        "--fail-on-duplicates", action="store_true", help="exit code 3 if there are duplicates"
    )
    verdict.add_argument(
        "--limit",
        type=int,
        default=100,
        metavar="N",
        help="maximum of listed producers (default: %(default)s)",
    )
    verdict.add_argument(
        "--reader",
        choices=READERS,
        default="auto",
        help="who reads Parquet: the driver, Python workers (files), or Spark; auto: Spark if the lake is not on a "
        "local path, the driver if it is small, else workers",
    )


def needs_spark(args: argparse.Namespace) -> bool:
    """Return whether a session is needed: not if this process reads the files and the marks itself.

    Raises:
        OptionError: If an argument is refused.
    """
    options = options_of(args)
    if is_submitted() or options.bootstrap_servers is not None or not is_local(options.lake):
        return True
    if options.reader != "auto":
        return options.reader != "driver"
    snapshots = (Store(options.lake, table).snapshot() for table in (Table.DATA, Table.QUARANTINE))
    files = [file for snapshot in snapshots for file in _files_of(snapshot, options.topics)]
    return sum(file.size for file in files) > DRIVER_BYTES


def run(args: argparse.Namespace, spark: SparkSession | None) -> AuditReport:
    """Run the audit.

    Raises:
        OptionError: If an argument is refused, or if neither the lake nor a mark has a topic.
        LayoutError: If there is no lake, or if one of its files cannot be read.
        ConnectorMissingError: If marks are to be read from Kafka and the connector is missing.
    """
    options = options_of(args)
    with task_progress("audit", spark, is_quiet=args.quiet or args.json):
        return audit(options, spark)


def options_of(args: argparse.Namespace) -> AuditOptions:
    """Return the options from the arguments.

    Raises:
        OptionError: If an argument is refused.
    """
    if args.limit < 0:
        raise OptionError("--limit must be 0 or more producers", option="--limit")
    as_of = instant_of(args.as_of, "--as-of")
    return AuditOptions(
        lake=args.lake or args.place,
        topics=names_of(args.topics, "--topics"),
        bootstrap_servers=args.bootstrap_servers,
        audit_topic=args.audit_topic,
        kafka=pairs_of(args.kafka, "--kafka"),
        until=None if as_of is None else int(as_of.timestamp() * 1000),
        is_from_first_seen=args.from_first_seen,
        is_strict=args.strict,
        fails_on_duplicates=args.fail_on_duplicates,
        limit=args.limit,
        reader=args.reader,
    )


def audit(options: AuditOptions, spark: SparkSession | None) -> AuditReport:
    """Audit a lake.

    Args:
        options: What to audit, and how.
        spark: The session; None reads the files in this process, which needs a local lake.

    Raises:
        LayoutError: If there is no lake, or if one of its files cannot be read.
    """
    began = time.monotonic()
    marks = read_marks(options, spark)
    _check_is_lake(options.lake, spark, marks)
    if not is_local(options.lake) or (options.reader == "spark" and spark is not None):
        report = _audit_by_spark(options, _needed(spark, options.lake), marks)
    else:
        report = _audit_files(options, spark, marks)
    report.marks, report.unreadable_marks = marks.marks, marks.unreadable
    report.is_strict, report.fails_on_duplicates = options.is_strict, options.fails_on_duplicates
    report.seconds = time.monotonic() - began
    return report


def read_marks(options: AuditOptions, spark: SparkSession | None) -> MarkFold:
    """Read the marks from the lake or from Kafka."""
    fold = MarkFold(until=options.until)
    if options.bootstrap_servers is not None:
        session = _needed(spark, options.lake)
        check_connector(session)
        reader = session.read.format("kafka").options(
            **{
                **{f"kafka.{name}": value for name, value in options.kafka.items()},
                "kafka.bootstrap.servers": options.bootstrap_servers,
                "subscribe": options.audit_topic,
                "startingOffsets": "earliest",
            }
        )
        fold.add_all(row[0] for row in reader.load().select("value").toLocalIterator())
    elif is_local(options.lake):
        store = Store(options.lake, Table.MARKS)

        def read(snapshot: Snapshot) -> MarkFold:
            found = MarkFold(until=options.until)
            for path in snapshot.files:
                found.add_all(_values_of(path))
            return found

        fold = read_consistently(store, read)
    else:
        table = read_table(_needed(spark, options.lake), options.lake, Table.MARKS)
        fold.add_all(row[0] for row in table.select("value").toLocalIterator())
    return fold


def _values_of(path: str) -> list[bytes | None]:
    try:
        with pq.ParquetFile(path) as file:
            values: list[bytes | None] = file.read(columns=["value"])["value"].to_pylist()
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise LayoutError(
            f"{path} cannot be read as a file of marks ({error}), so the records that it promised cannot be "
            "checked. Restore it, or read the marks from Kafka (--bootstrap-servers)",
            path=path,
        ) from error
    return values


def _check_is_lake(lake: str, spark: SparkSession | None, marks: MarkFold) -> None:
    """Check that there is a lake; without one, the audit would find nothing lost."""
    tables = [table_path(lake, table) for table in (Table.DATA, Table.QUARANTINE)]
    if marks.expectations:
        return
    if is_local(lake):
        is_there = any(local_path(path).is_dir() for path in tables)
    else:
        session = _needed(spark, lake)
        is_there = any(files_of(path, session).exists(path) for path in tables)
    if not is_there:
        raise LayoutError(
            f"{lake} is not a lake: it has neither {tables[0]} nor any mark. Name the directory of `land`",
            path=lake,
        )


def _audit_files(options: AuditOptions, spark: SparkSession | None, marks: MarkFold) -> AuditReport:
    data, quarantine = Store(options.lake, Table.DATA), Store(options.lake, Table.QUARANTINE)

    def read(good: Snapshot) -> AuditReport:
        def read_all(bad: Snapshot) -> AuditReport:
            aside = _files_of(bad, options.topics)
            files = [*_files_of(good, options.topics), *aside]
            size = sum(file.size for file in files)
            is_small = options.reader == "auto" and size <= DRIVER_BYTES
            is_alone = spark is None or is_small or options.reader == "driver"
            passes: Passes = LocalPasses() if spark is None or is_alone else SparkPasses(spark)
            report = _judged(passes, files, {file.topic for file in files}, options, marks)
            report.files, report.size = len(files), size
            report.quarantined = sum(pq.read_metadata(file.path).num_rows for file in aside)
            return report

        return read_consistently(quarantine, read_all)

    return read_consistently(data, read)


def _audit_by_spark(options: AuditOptions, spark: SparkSession, marks: MarkFold) -> AuditReport:
    good = read_table(spark, options.lake, Table.DATA)
    bad = read_table(spark, options.lake, Table.QUARANTINE)
    rows = good.unionByName(bad)
    if options.topics:
        rows, bad = (frame.where(frame["topic"].isin(*options.topics)) for frame in (rows, bad))
    topics = {row[0] for row in rows.select("topic").distinct().collect()}
    report = _judged(FramePasses(rows), [], topics, options, marks)
    report.quarantined = bad.count()
    return report


def _judged(
    passes: Passes, files: list[DataFile], topics: set[str], options: AuditOptions, marks: MarkFold
) -> AuditReport:
    told = {topic for found in marks.expectations.values() for topic in found.topics}
    if unknown := sorted(set(options.topics).difference(topics, told)):
        raise OptionError(
            f"--topics: {options.lake} has no records of {', '.join(unknown)}, and no mark names it: is that its "
            "name?",
            option="--topics",
        )
    scope = Scope(
        topics=frozenset(options.topics or topics),
        is_limited=bool(options.topics),
        is_from_first_seen=options.is_from_first_seen,
        limit=options.limit,
    )
    try:
        judge = Judge(passes.first(files), marks.expectations, scope)
        return judge.report(passes.exact(files, judge.spans()))
    except Exception as error:
        # A worker's exception arrives as text below Spark's own error.
        found = re.search(r"aioproduce\.spark\.errors\.LayoutError: (.+)", str(error))
        if found is None or isinstance(error, LayoutError):
            raise
        raise LayoutError(found[1].strip()) from error


def _files_of(snapshot: Snapshot, topics: tuple[str, ...]) -> list[DataFile]:
    out = []
    for batch in snapshot.batches:
        topic = batch.hour.split("/", 1)[0].removeprefix("topic=")
        if not topics or topic in topics:
            place = snapshot.root / batch.hour / batch.name
            out += [DataFile(str(place / name), topic, size) for name, size in batch.files.files]
    return out


def _needed(spark: SparkSession | None, lake: str) -> SparkSession:
    if spark is None:
        raise LayoutError(
            f"{lake}: without Spark only a lake on a local path can be audited, with its own marks", path=lake
        )
    return spark
