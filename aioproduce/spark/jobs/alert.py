"""The job `alert`: gaps and duplicates by producer id, reported while the records arrive.

    python -m aioproduce.spark alert --bootstrap-servers HOST:PORT --topics T,... --checkpoint DIR
    [--alert-topic A] ...

A stream over the topics and the audit topic, with a state for each producer (`watch`) in RocksDB, by
transformWithState.

1. Rows are reduced to ranges of numbers before they are shuffled, so that a state is called once for some thousand
   rows and not for each.
2. An alert may be repeated after a crash, but is never omitted: alerts are sent before a batch is committed.
3. It proves nothing: it does not look for lost states. The `audit` of the lake does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, MarkError
from aioproduce.audit.mark import Mark
from aioproduce.spark.errors import OptionError
from aioproduce.spark.jobs.audit_passes import codes_of
from aioproduce.spark.jobs.progress import follow
from aioproduce.spark.jobs.running import ExitCode, Summary, add_repeated, pairs_of
from aioproduce.spark.jobs.selection import names_of
from aioproduce.spark.jobs.watch import Alert, Kind, Patience, Watch
from aioproduce.spark.ranges import Ranges
from aioproduce.spark.records import with_ids
from aioproduce.spark.topic_partitions import TopicPartitions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

HELP = """Report gaps and duplicates by producer while records arrive, as lines and into a topic.

A gap is reported if its numbers have not arrived within the grace period; a number that arrives later is reported
as
late. For proof, audit the lake: this job only watches."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS: dict[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.shuffle.partitions": "4",
}
NEEDS_CONNECTOR = True

SEEN = "producer_id string, first bigint, last bigint, mark string"
"""Numbers that arrived, as a range; or a mark as JSON, if `mark` is not null."""
ALERTS = "kind string, producer_id string, first bigint, last bigint, numbers bigint, at bigint"
_STATE = "watch string"
_LINES_OF_A_BATCH = 1000


@dataclass
class AlertSummary(Summary):
    """The alerts of a run.

    Attributes:
        rows: Records that were checked.
        gap: Numbers that did not arrive within the grace period.
        late: Those of them that arrived after all.
        duplicate: Numbers that arrived again.
        silent: Producers that fell silent without a closing mark.
    """

    job = "alert"
    rows: int = 0
    gap: int = 0
    late: int = 0
    duplicate: int = 0
    silent: int = 0

    @property
    def exit_code(self) -> int:
        """3 after any alert but silence, which is how many producers end."""
        return ExitCode.FINDINGS if self.gap or self.duplicate else ExitCode.DONE

    def lines(self) -> list[str]:
        """Return the summary for people."""
        return [
            f"checked {self.rows:,} records in {self.seconds:.1f} s: {self.gap:,} numbers missing, of which "
            f"{self.late:,} arrived late; {self.duplicate:,} arrived again; {self.silent:,} producers fell silent"
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    what = parser.add_argument_group("input")
    what.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="the cluster")
    what.add_argument("--topics", required=True, metavar="T,...", help="the topics of the records")
    what.add_argument(
        "--audit-topic",
        metavar="T",
        help=f"the topic of the marks; `none` for none (default: {DEFAULT_AUDIT_TOPIC} if it exists)",
    )
    what.add_argument("--checkpoint", required=True, metavar="DIR", help="the query's progress and states")
    what.add_argument(
        "--starting-offsets",
        choices=("latest", "earliest"),
        default="latest",
        help="where a new checkpoint begins; with earliest, the first number of each producer is 0; with latest, "
        "gaps of producers that were already sending are reported after the first grace period (%(default)s)",
    )
    add_repeated(what, "--kafka", "KEY=VALUE", "a setting of Kafka's clients")
    how = parser.add_argument_group("alerts")
    how.add_argument("--alert-topic", metavar="T", help="also send alerts to this topic, as JSON")
    how.add_argument(
        "--grace",
        type=float,
        default=150.0,
        metavar="S",
        help="seconds to wait for a missing number (%(default)s)",
    )
    how.add_argument(
        "--silence",
        type=float,
        default=3600.0,
        metavar="S",
        help="seconds without records or marks (%(default)s)",
    )
    how.add_argument("--once", action="store_true", help="end after all existing records were checked")
    how.add_argument("--trigger", default="5 seconds", help="how often, without --once (%(default)s)")
    how.add_argument(
        "--max-offsets",
        type=int,
        default=2_000_000,
        metavar="N",
        help="maximum offsets of a batch (%(default)s)",
    )


def run(args: argparse.Namespace, spark: SparkSession) -> AlertSummary:
    """Watch, once or for ever.

    Raises:
        OptionError: If an argument is refused.
        TopicError: If a topic is missing, or if the cluster does not answer.
    """
    if not 0 <= args.grace < args.silence:
        raise OptionError("--grace must be 0 seconds or more, and less than --silence", option="--grace")
    topics = names_of(args.topics, "--topics")
    kafka = {**pairs_of(args.kafka, "--kafka"), "bootstrap.servers": args.bootstrap_servers}
    source = {f"kafka.{key}": value for key, value in kafka.items()}
    others = [name for name in (args.audit_topic, args.alert_topic) if name not in (None, "none")]
    cluster = TopicPartitions.ask(spark, source, [*topics, *others, DEFAULT_AUDIT_TOPIC])
    cluster.check(topics, "correct --topics; nothing was watched")
    if args.alert_topic is not None:
        cluster.check([args.alert_topic], "correct --alert-topic; nothing was watched")
    marks = cluster.marks_topic(args.audit_topic)
    source["subscribe"] = ",".join([*topics, *([] if marks is None else [marks])])
    source["startingOffsets"] = args.starting_offsets
    source["includeHeaders"] = "true"
    source["maxOffsetsPerTrigger"] = str(args.max_offsets)
    records = spark.readStream.format("kafka").options(**source).load()
    patience = Patience(int(args.grace * 1000), int(args.silence * 1000))
    alerts = alerts_of(
        seen_in(records, marks, topics), patience, is_from_zero=args.starting_offsets == "earliest"
    )
    summary = AlertSummary()
    told = Telling(summary, is_json=args.json, topic=args.alert_topic, kafka=kafka)
    began = time.monotonic()
    query = started(alerts, told, args.checkpoint, None if args.once else args.trigger)
    totals = follow(query, "alert", is_quiet=args.quiet or args.json)
    summary.rows, summary.seconds = totals.rows, time.monotonic() - began
    return summary


def started(alerts: DataFrame, told: Telling, checkpoint: str, trigger: str | None) -> StreamingQuery:
    """Start the query.

    Args:
        alerts: The result of `alerts_of()`.
        told: Receives the alerts.
        checkpoint: Its directory.
        trigger: The interval; None: end after all existing records were checked.
    """
    spark = alerts.sparkSession
    # Otherwise a stream with timers would run batches without rows for ever.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(trigger is not None).lower())
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    writer = alerts.writeStream.outputMode("append").foreachBatch(told.tell)
    writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
    return writer.start()


def seen_in(records: DataFrame, audit_topic: str | None, topics: Sequence[str] | None = None) -> DataFrame:
    """Return rows of Spark's Kafka source, with headers, as ranges of numbers and as marks (`SEEN`).

    Args:
        records: The rows.
        audit_topic: The topic of the marks; None for none.
        topics: The watched topics; None: all that marks name.
    """
    is_mark = F.lit(False) if audit_topic is None else F.col("topic") == audit_topic
    found = with_ids(records).select(
        F.when(~is_mark, F.col("producer_id")).alias("producer_id"),
        F.col("sequence"),
        F.when(is_mark, F.col("value")).alias("mark"),
    )
    found = found.where("(producer_id IS NOT NULL AND sequence IS NOT NULL) OR mark IS NOT NULL")

    def in_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from ranges_of(pa.Table.from_batches([batch]), topics).to_batches()

    return found.mapInArrow(in_ranges, SEEN)


def ranges_of(rows: pa.Table, topics: Sequence[str] | None = None) -> pa.Table:
    """Return ids with their numbers, and marks, as `SEEN`: one range for consecutive numbers.

    Args:
        rows: `producer_id`, `sequence` and `mark`.
        topics: The watched topics; None: all that marks name.
    """
    ids: list[str] = []
    firsts: list[int] = []
    lasts: list[int] = []
    marks: list[str | None] = []
    stamped = rows.filter(rows["producer_id"].is_valid())
    if stamped.num_rows:
        codes, names = codes_of(stamped["producer_id"])
        numbers = np.asarray(stamped["sequence"])
        order = np.lexsort((numbers, codes))
        codes, numbers = codes[order], numbers[order]
        is_new = (np.diff(codes, prepend=-1) != 0) | (np.diff(numbers, prepend=-2) != 1)
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(numbers)) - 1
        texts = [(name or b"").hex() for name in names]
        ids = [texts[code] for code in codes[starts].tolist()]
        firsts, lasts = numbers[starts].tolist(), numbers[ends].tolist()
        marks = [None] * len(ids)
    for value in rows["mark"].drop_null().to_pylist():
        try:
            mark = Mark.from_json(value)
        except MarkError:
            continue  # the audit topic may contain anything; the audit counts invalid marks
        ids.append(mark.producer_id.hex())
        firsts.append(mark.next)
        lasts.append(mark.next)
        told = {
            "closing": mark.kind == "closing",
            "failed": _failed_of(mark),
            "elsewhere": topics is not None
            and any(many for name, many in mark.topics.items() if name not in topics),
        }
        marks.append(json.dumps(told))
    return pa.table(
        {
            "producer_id": pa.array(ids, pa.string()),
            "first": pa.array(firsts, pa.int64()),
            "last": pa.array(lasts, pa.int64()),
            "mark": pa.array(marks, pa.string()),
        }
    )


def _failed_of(mark: Mark) -> list[tuple[int, int]]:
    """Return the numbers that need not arrive; if a mark lists only the lowest, all above these are included."""
    if not mark.failed_more:
        return list(mark.failed)
    first = mark.failed[-1][1] + 1 if mark.failed else 0
    return [*mark.failed, *([(first, mark.next - 1)] if first < mark.next else [])]


def alerts_of(seen: DataFrame, patience: Patience, *, is_from_zero: bool) -> DataFrame:
    """Return the alerts, as `ALERTS`, for a stream of `SEEN`."""
    return seen.groupBy("producer_id").transformWithState(
        statefulProcessor=Watcher(patience, is_from_zero=is_from_zero),
        outputStructType=ALERTS,
        outputMode="Append",
        timeMode="ProcessingTime",
    )


class Watcher(StatefulProcessor):
    """Keeps a `Watch` for each producer id.

    Args:
        patience: How long to wait.
        is_from_zero: Whether a producer's first number is 0, and not the lowest of the first ones to arrive. If so,
            the progress of a silent producer is kept; otherwise all its earlier numbers would become a gap.
    """

    def __init__(self, patience: Patience, *, is_from_zero: bool) -> None:
        self._patience = patience
        self._is_from_zero = is_from_zero

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Initialize the processor; called by Spark before anything else."""
        self._handle = handle
        self._state = handle.getValueState("watch", _STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Handle the rows of one producer in this batch; called by Spark."""
        now = int(timerValues.getCurrentProcessingTimeInMs())
        came: list[tuple[int, int]] = []
        promises: list[tuple[int, Ranges, bool, bool]] = []
        for row in rows:
            if row.mark is None:
                came.append((row.first, row.last))
            else:
                mark = json.loads(row.mark)
                failed = tuple((first, last) for first, last in mark["failed"])
                promises.append((row.first, failed, mark["closing"], mark["elsewhere"]))
        state = self._state.get()
        if state is None and not came and all(is_elsewhere for *_, is_elsewhere in promises):
            return  # the audit topic also has marks of unrelated producers
        if state is None:
            lowest = min([first for first, _ in came] or [end for end, *_ in promises])
            first = 0 if self._is_from_zero else lowest
            found = Watch.begin(first, now, self._patience.grace_ms)
        else:
            found = Watch.from_json(state[0])
        alerts = found.take(came, now) if came else []
        for end, failed, is_closing, is_elsewhere in promises:
            alerts += found.promise(end, failed, now, is_closing=is_closing, is_elsewhere=is_elsewhere)
        alerts += found.look(now, self._patience)
        self._keep(found, now)
        yield from _rows(key[0], alerts, now)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002
    ) -> Iterator[Row]:
        """Handle an expired timer; called by Spark."""
        now = int(timerValues.getCurrentProcessingTimeInMs())
        state = self._state.get()
        if state is not None:
            found = Watch.from_json(state[0])
            alerts = found.look(now, self._patience)
            self._keep(found, now)
            yield from _rows(key[0], alerts, now)

    def _keep(self, found: Watch, now: int) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if found.is_over(now, self._patience) and (found.is_closed or not self._is_from_zero):
            self._state.clear()
        elif found.is_over(now, self._patience):
            found.rest()
            self._state.update((found.to_json(),))
        else:
            self._state.update((found.to_json(),))
            self._handle.registerTimer(max(found.wakes_at(self._patience), now + 1))

    def close(self) -> None:
        """Do nothing; called by Spark at the end."""


def _rows(producer_id: str, alerts: list[Alert], now: int) -> Iterator[Row]:
    for alert in alerts:
        yield Row(
            kind=alert.kind.value,
            producer_id=producer_id,
            first=alert.first,
            last=alert.last,
            numbers=alert.numbers,
            at=now,
        )


class Telling:
    """Prints alerts, counts them, and sends them to a topic.

    Args:
        summary: The summary that counts them.
        is_json: Whether to print a line of JSON for each.
        topic: The additional topic; None: none.
        kafka: The producer's settings, with Kafka's keys.
    """

    def __init__(
        self,
        summary: AlertSummary,
        *,
        is_json: bool,
        topic: str | None = None,
        kafka: dict[str, str] | None = None,
    ) -> None:
        self._summary = summary
        self._is_json = is_json
        self._topic = topic
        self._kafka = kafka or {}

    def tell(self, alerts: DataFrame, _batch: int) -> None:
        """Process the alerts of a micro-batch; called by `foreachBatch`."""
        # Computed once: a second computation would update the states again.
        alerts.persist()
        try:
            if self._topic is not None:
                options = {f"kafka.{key}": value for key, value in self._kafka.items()}
                found = alerts.select(
                    F.col("producer_id").alias("key"), F.to_json(F.struct("*")).alias("value")
                )
                writer = found.write.format("aioproduce").mode("append").options(**options)
                writer.option("topic", self._topic).option("stamp", "off").save()
            lines = 0
            for row in alerts.toLocalIterator():
                self._count(row)
                if lines < _LINES_OF_A_BATCH:
                    print(self._line(row), flush=True)
                lines += 1
            if lines > _LINES_OF_A_BATCH:
                print(
                    f"and {lines - _LINES_OF_A_BATCH:,} more alerts in this batch",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            alerts.unpersist()

    def _count(self, row: Row) -> None:
        name = Kind(row.kind).value
        many = 1 if row.kind == Kind.SILENT else row.numbers
        setattr(self._summary, name, getattr(self._summary, name) + many)

    def _line(self, row: Row) -> str:
        if self._is_json:
            return json.dumps(row.asDict(), separators=(",", ":"))
        numbers = str(row.first) if row.first == row.last else f"{row.first} to {row.last}"
        if row.kind == Kind.GAP and row.numbers <= row.last - row.first:
            numbers = f"{row.numbers} of {numbers}"
        return f"{row.kind}: producer {row.producer_id}, {numbers}"
