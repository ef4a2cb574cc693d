"""The report of a task to the driver about what it wrote, and the driver's log line and line of JSON.

A `TaskReport` is created by `task` in a worker process and sent as Spark's commit message; `datasource` adds them
up when Spark calls `commit()` or `abort()`.

Invariants:

1. Only acknowledged records are counted as rows.
2. Percentiles cannot be added: the summary has the median of the tasks' medians, weighted by their rows, and the
   worst task's 99th percentile.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final, final

from pyspark.sql.datasource import WriterCommitMessage

LOG: Final = logging.getLogger("aioproduce.spark")
_IDS_MAX: Final = 1000  # of 60 bytes each in a line of JSON
_SUMS: Final = ("rows", "bytes", "batches", "requests", "retries", "dead_letters", "dropped")
_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(kw_only=True)
class _Written:
    """The common fields of a task's and a whole write's report.

    Attributes:
        query_id: The id of the streaming query or of the batch write; empty if no task reported it.
        batch_id: The micro-batch's number; -1 for a batch write.
        rows: Acknowledged records, without those in the dead-letter topic.
        bytes: The bytes of their keys and values.
        batches: Arrow batches read from Spark.
        requests: Produce requests that were sent.
        retries: Records that were sent again.
        ack_p50_ms: The time within which half of the batches were acknowledged after they were passed on; 0: none.
        ack_p99_ms: The time within which 99 of 100 batches were acknowledged; 0: none.
        dead_letters: Rows that went to the dead-letter topic.
        dropped: Rows that were dropped under `on.error=drop`.
        seconds: From the first row to the last acknowledgement.
        topics: Acknowledged records by topic.
    """

    query_id: str = ""
    batch_id: int = -1
    rows: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0
    ack_p50_ms: float = 0.0
    ack_p99_ms: float = 0.0
    dead_letters: int = 0
    dropped: int = 0
    seconds: float = 0.0
    topics: dict[str, int] = field(default_factory=dict)


@final
@dataclass(kw_only=True)
class TaskReport(_Written, WriterCommitMessage):
    """The report of one attempt of a task.

    Attributes:
        partition: Spark's partition of the rows.
        attempt: The attempt's number, from 0.
        producer_id: The stamps' first half, as 32 hex digits; empty without stamps.
        next_row: The number after the highest one that was assigned; 0 without stamps.
    """

    partition: int
    attempt: int = 0
    producer_id: str = ""
    next_row: int = 0


@final
@dataclass(kw_only=True)
class WriteSummary(_Written):
    """The tasks of one write, or of one micro-batch, together: the sums, and the slowest task's seconds.

    Attributes:
        outcome: `"committed"` or `"aborted"`; acknowledged records of an aborted write are in the topic, too.
        tasks: How many tasks reported.
        failed_tasks: How many did not.
        ids: Producer id of a task -> the number after the highest one that it assigned; at most 1,000.
        ids_more: How many more there are.
    """

    outcome: str
    tasks: int = 0
    failed_tasks: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    ids_more: int = 0

    def to_json(self, at_ms: int) -> str:
        """Return one line of `metrics.path`.

        Args:
            at_ms: The time of the report, in milliseconds since the epoch.
        """
        told = {"version": 1, "at": at_ms, "outcome": self.outcome, **asdict(self)}
        return json.dumps(told, separators=(",", ":"))

    def __str__(self) -> str:
        failed = f", {self.failed_tasks} failed" if self.failed_tasks else ""
        batch = f" batch {self.batch_id}" if self.batch_id >= 0 else ""
        head = (
            f"{self.outcome} {self.query_id or 'a write'}{batch}: {self.rows:,} rows acknowledged, "
            f"{self.bytes / 1e6:,.1f} MB in {self.seconds:.1f} s; {self.tasks} tasks{failed}"
        )
        counts = f"requests {self.requests:,}, retries {self.retries:,}"
        unsent = f"dead letters {self.dead_letters:,}, dropped {self.dropped:,}"
        times = f"acknowledged in {self.ack_p50_ms:.0f}/{self.ack_p99_ms:.0f} ms (p50/p99)"
        return f"{head}; {counts}, {times}; {unsent}"


def summarize(
    messages: Sequence[WriterCommitMessage | None], *, is_aborted: bool, batch_id: int = -1
) -> WriteSummary:
    """Add up the tasks' reports.

    Args:
        messages: The messages that Spark passes; `None` for a task that failed.
        is_aborted: Whether Spark aborted the write.
        batch_id: Spark's number of the micro-batch.
    """
    reports = [message for message in messages if isinstance(message, TaskReport)]
    topics: Counter[str] = Counter()
    for report in reports:
        topics.update(report.topics)
    ids = {report.producer_id: report.next_row for report in reports if report.producer_id}
    return WriteSummary(
        outcome="aborted" if is_aborted else "committed",
        query_id=next((report.query_id for report in reports), ""),
        batch_id=batch_id,
        tasks=len(reports),
        failed_tasks=len(messages) - len(reports),
        ack_p50_ms=_median(reports),
        ack_p99_ms=max((report.ack_p99_ms for report in reports), default=0.0),
        seconds=max((report.seconds for report in reports), default=0.0),
        topics=dict(sorted(topics.items())),
        **{name: sum(getattr(report, name) for report in reports) for name in _SUMS},
        ids=dict(list(ids.items())[:_IDS_MAX]),
        ids_more=max(0, len(ids) - _IDS_MAX),
    )


def _median(reports: Sequence[TaskReport]) -> float:
    """Return the median of the reports' medians: half of all rows are at or below it."""
    half = sum(report.rows for report in reports) / 2
    if not half:
        return 0.0
    passed = 0
    for report in sorted(reports, key=lambda report: report.ack_p50_ms):
        passed += report.rows
        if passed >= half:
            return report.ack_p50_ms
    raise AssertionError("half of the rows are among all of them")


def tell(summary: WriteSummary, metrics_path: str | None) -> None:
    """Write the log line, and the line of JSON if there is a file for it.

    The records are already acknowledged. So a file that cannot be written is only logged and fails nothing: Spark
    would write all of them again.
    """
    with _visible():
        LOG.log(logging.WARNING if summary.outcome == "aborted" else logging.INFO, "%s", summary)
        if metrics_path is None:
            return
        line = (summary.to_json(time.time_ns() // 1_000_000) + "\n").encode()
        try:
            # One call that appends to the file, because queries may share it.
            descriptor = os.open(metrics_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            LOG.warning("metrics.path=%s cannot be written, the line is lost: %s", metrics_path, error)


@contextmanager
def _visible() -> Iterator[None]:
    """Ensure that the line is visible somewhere.

    Spark calls `commit()` in a separate process without logging configuration, whose stderr appears at the
    driver's. Existing handlers, and a level of this logger, stay unchanged.
    """
    level = LOG.level
    handler = None if LOG.hasHandlers() else logging.StreamHandler(sys.stderr)
    if handler is not None:
        handler.setFormatter(logging.Formatter(_LINE))
        LOG.addHandler(handler)
    if level == logging.NOTSET:
        LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.setLevel(level)
        if handler is not None:
            LOG.removeHandler(handler)
