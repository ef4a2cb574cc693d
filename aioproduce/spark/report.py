"""What a task tells the driver about what it wrote, and what the driver makes of it: a log line and a line of JSON.

A `TaskReport` is made by `task` in a worker process and travels as Spark's commit message; `datasource` sums them
when Spark calls `commit()` or `abort()`.

Invariants:

1. Only acknowledged records are counted as rows.
2. Percentiles cannot be summed: the sum tells the median of the tasks' medians, weighted by their rows, and the
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
    """What a task and a whole write tell alike.

    Attributes:
        query_id: The streaming query's id, or the batch write's; empty where no task told.
        batch_id: The micro-batch's number; -1 of a batch write.
        rows: Records that were acknowledged; those that went to the dead-letter topic are not among them.
        bytes: Of their keys and values.
        batches: Arrow batches taken from Spark.
        requests: Produce requests that were sent.
        retries: Records that were sent again.
        ack_p50_ms: Half of the batches were acknowledged within this time after they were handed over; 0: none.
        ack_p99_ms: Likewise 99 of 100.
        dead_letters: Rows that went to the dead-letter topic.
        dropped: Rows that were left out under `on.error=drop`.
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
    """What one attempt of a task wrote.

    Attributes:
        partition: Spark's partition of the rows.
        attempt: The attempt's number, from 0.
        producer_id: The stamps' first half, as 32 hex digits; empty where nothing is stamped.
        next_row: The number after the highest that was given out; 0 where nothing is stamped.
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
        outcome: `"committed"` or `"aborted"`; what an aborted write has acknowledged is in the topic all the same.
        tasks: How many told what they wrote.
        failed_tasks: How many did not.
        ids: Producer id of a task -> the number after the highest that it gave out; at most 1,000.
        ids_more: How many more there are.
    """

    outcome: str
    tasks: int = 0
    failed_tasks: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    ids_more: int = 0

    def to_json(self, at_ms: int) -> str:
        """One line of `metrics.path`.

        Args:
            at_ms: When it was told, in milliseconds since the epoch.
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
    """Sum what the tasks told.

    Args:
        messages: As Spark hands them over; `None` of a task that failed.
        is_aborted: Whether Spark gave the write up.
        batch_id: The micro-batch, as Spark calls it.
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
    """The reports' medians: the one that half of all rows are at or below."""
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

    The records are acknowledged by now. So a file that cannot be written is told in the log and fails nothing:
    Spark would write all of them again.
    """
    with _visible():
        LOG.log(logging.WARNING if summary.outcome == "aborted" else logging.INFO, "%s", summary)
        if metrics_path is None:
            return
        line = (summary.to_json(time.time_ns() // 1_000_000) + "\n").encode()
        try:
            # In one call, to the end of the file: queries may share it.
            descriptor = os.open(metrics_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            LOG.warning("metrics.path=%s cannot be written, the line is lost: %s", metrics_path, error)


@contextmanager
def _visible() -> Iterator[None]:
    """See that the line comes out somewhere.

    Spark calls `commit()` in a process of its own, where nobody has set logging up. What is written to its stderr
    comes out at the driver's. Handlers, and a level of this logger, stay as they are where there are any.
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
