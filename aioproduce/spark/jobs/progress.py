"""The progress line of a stream, on standard error, rewritten if that is a terminal.

Invariants:

1. If standard error is not a terminal, there is a line every half minute, and nothing is rewritten.
2. It shows Spark's own progress and does not contact Kafka.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_EVERY: Final = 30.0
_POLL: Final = 1  # second; Spark's own call accepts only whole ones


@final
class ProgressLine:
    """A line that is overwritten; use it as a context manager.

    Args:
        title: The beginning of the line.
        is_quiet: Whether to write nothing at all.
        stream: Standard error by default.
    """

    def __init__(self, title: str, *, is_quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._title = title
        self._is_quiet = is_quiet
        self._is_terminal = self._stream.isatty()
        self._next_at = time.monotonic() + _EVERY
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("\n")

    def show(self, text: str) -> None:
        """Show the current progress."""
        if self._is_quiet:
            return
        line = f"{self._title}: {text}"
        if self._is_terminal:
            self._write("\r" + line.ljust(self._width))
            self._width = len(line)
        elif time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _EVERY
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def news_of(query: StreamingQuery, batch: int) -> list[StreamingQueryProgress]:
    """Return the progress of the batches after this one; may be called every second.

    It does not use `recentProgress`, which has a hundred entries with dozens of calls into the JVM for each.
    """
    last = query.lastProgress
    if last is None or last.batchId <= batch:
        return []
    return [last] if last.batchId == batch + 1 else list(query.recentProgress)


@final
@dataclass(slots=True)
class StreamTotals:
    """The totals of the progress of a query's batches.

    Attributes:
        rows: Rows read from the sources.
        batches: Batches with rows.
        behind: Offsets that the last batch had left, as far as Spark knew; `None` if no source reported them.
        batch: The last batch's number; -1 before the first.
    """

    rows: int = 0
    batches: int = 0
    behind: int | None = None
    batch: int = -1
    _rate: float = 0.0

    def take(self, progress: Mapping[str, Any]) -> None:
        """Add a batch's progress from `StreamingQueryProgress.json`; a known batch adds nothing."""
        if progress["batchId"] <= self.batch:
            return
        self.batch = int(progress["batchId"])
        rows = int(progress.get("numInputRows", 0))
        self.rows += rows
        self.batches += rows > 0
        self._rate = float(progress.get("processedRowsPerSecond", 0.0) or 0.0)
        told = [
            source.get("metrics", {}).get("maxOffsetsBehindLatest") for source in progress.get("sources", ())
        ]
        left = [int(float(each)) for each in told if each is not None]
        self.behind = sum(left) if left else None

    def line(self) -> str:
        """Return the text for `ProgressLine`."""
        left = "" if self.behind is None else f", at most {self.behind:,} behind in a partition"
        return f"batch {self.batch}, {self.rows:,} rows, {self._rate:,.0f} rows/s{left}"


def follow(query: StreamingQuery, title: str, *, is_quiet: bool) -> StreamTotals:
    """Wait for the end of a query and show its progress; stop it if the wait is interrupted."""
    totals = StreamTotals()
    try:
        with ProgressLine(title, is_quiet=is_quiet) as line:
            has_ended = False
            while not has_ended:
                has_ended = bool(query.awaitTermination(_POLL))
                for progress in news_of(query, totals.batch):
                    totals.take(json.loads(progress.json))
                if totals.batch >= 0:
                    line.show(totals.line())
    finally:
        query.stop()
    return totals
