"""The job `audit`: whether the lake has every record that producers had acknowledged, and each once.

    python -m aioproduce.spark audit LAKE [--json] [--fail-on-duplicates] ...

Reads the lake's tables `data` and `quarantine` (a record that is there is not lost) and the marks, from its
table `marks` or from Kafka. Two passes (`audit_passes`), run where the files can be read (`audit_lake`), and
a verdict (`audit_judge`, `audit_report`).

1. Marks are read before the list of data files is made: what lands meanwhile can only be more than a mark promised.
2. Both passes see the same files: where a compaction takes some of them away, both start anew (`store`).
3. A clean lake costs one Spark job, without a shuffle.
4. What was not looked at is never clean: a lake or a topic that is not there, marks that cannot be read, and a bug
   end with exit code 2.

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

HELP = """Tell which records are lost, duplicated or in conflict, by producer id and number.

Exit codes: 0 clean; 1 records are lost, or ids are in conflict; 2 wrong usage, or no audit was made;
3 duplicates, with --fail-on-duplicates."""

SETTINGS: dict[str, str] = {"spark.sql.shuffle.partitions": "16"}
NEEDS_CONNECTOR = False
FAILED_EXIT_CODE = ExitCode.FAILED

READERS = ("auto", "driver", "files", "spark")
DRIVER_BYTES = 512 << 20
"""With `auto` a lake up to here is read by the driver. Of 1 million rows (100 MB) it took 0.6 s where two
workers took 2.0 to 3.5 s, and 29 s with their start, on a machine under load.
"""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is audited, and how strictly.

    Attributes:
        lake: The lake's directory.
        topics: The topics to audit; none for all that the lake has.
        bootstrap_servers: Where to read the marks from Kafka; None: from the lake.
        audit_topic: Their topic there.
        kafka: More settings of Spark's Kafka source, as `kafka.*`.
        until: Marks made later than this, in milliseconds since the epoch, are passed over; None for none.
        is_from_first_seen: Numbers below the lowest one of a producer in the lake are not looked for.
        is_strict: Whether what is undecided counts as lost.
        fails_on_duplicates: Whether duplicates alone end with an exit code of their own.
        limit: How many producers the report lists.
        reader: `files` (workers read Parquet themselves), `driver` (it does), `spark` (Spark reads); `auto`: spark
            where the lake is on no local path, driver where it is small, else files.
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
    """Say what the job takes."""
    what = parser.add_argument_group("what is audited")
    place = what.add_mutually_exclusive_group(required=True)
    place.add_argument("--lake", metavar="DIR", help="the lake that `land` was given")
    place.add_argument("place", nargs="?", metavar="DIR", help="the same")
    what.add_argument(
        "--topics",
        metavar="T,...",
        help="audit these alone; name them where the lake does not hold all topics of its producers",
    )
    what.add_argument(
        "--from-first-seen",
        action="store_true",
        help="do not miss numbers below a producer's lowest one: for a lake whose old days are deleted",
    )
    marks = parser.add_argument_group("what producers say")
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
        help="pass over marks made later, e.g. 2026-01-31T12:00Z: where landing is behind",
    )
    verdict = parser.add_argument_group("the verdict")
    verdict.add_argument(
        "--strict",
        action="store_true",
        help="count what is undecided (in flight when a producer was last heard of) as lost",
    )
    verdict.add_argument(
        "--fail-on-duplicates", action="store_true", help="exit code 3 where there are duplicates"
    )
    verdict.add_argument(
        "--limit", type=int, default=100, metavar="N", help="list so many producers (default: %(default)s)"
    )
    verdict.add_argument(
        "--reader",
        choices=READERS,
        default="auto",
        help="who reads Parquet: the driver, Python workers (files), or Spark; auto: Spark where the lake is on no "
        "local path, the driver where it is small, else workers",
    )


def needs_spark(args: argparse.Namespace) -> bool:
    """Whether a session is of use: not where this process reads the files itself, and the marks with them.

    Raises:
        OptionError: an argument is refused.
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
    """Make the audit.

    Raises:
        OptionError: an argument is refused, or neither the lake nor a mark knows a topic.
        LayoutError: there is no lake, or a file of it cannot be read.
        ConnectorMissingError: marks are to be read from Kafka without the connector.
    """
    options = options_of(args)
    with task_progress("audit", spark, is_quiet=args.quiet or args.json):
        return audit(options, spark)


def options_of(args: argparse.Namespace) -> AuditOptions:
    """What the arguments ask for.

    Raises:
        OptionError: one is refused.
    """
    if args.limit < 0:
        raise OptionError("--limit is 0 or more producers", option="--limit")
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
        options: What, and how.
        spark: The session; None reads the files in this process, which needs a local lake.

    Raises:
        LayoutError: there is no lake, or a file of it cannot be read.
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
    """What the marks say, from the lake or from Kafka."""
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
            f"{path} cannot be read as a file of marks ({error}): what it promised cannot be missed. Restore it, "
            "or read the marks from Kafka (--bootstrap-servers)",
            path=path,
        ) from error
    return values


def _check_is_lake(lake: str, spark: SparkSession | None, marks: MarkFold) -> None:
    """Nothing is lost of a lake that is not there: that is no audit."""
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
            f"{lake} is no lake: there is neither {tables[0]} nor any mark. Name the directory that "
            "`land` was given",
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
            f"--topics: {options.lake} has nothing of {', '.join(unknown)}, and no mark tells of it: is that its "
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
        # What a worker raised comes back as text below Spark's own error.
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
