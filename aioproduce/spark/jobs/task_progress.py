"""The progress of a batch job: the tasks of the running stages, requested from Spark twice a second.

Used by the jobs `audit` and `replay`; streams report their own progress (`progress.StreamTotals`).

1. A request changes nothing, and a missing answer ends the progress line, not the job.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioproduce.spark.jobs.progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@contextmanager
def task_progress(
    title: str, spark: SparkSession | None, *, is_quiet: bool = False, every: float = 0.5
) -> Iterator[None]:
    """Show a line on standard error while Spark works.

    Args:
        title: The beginning of the line.
        spark: The session whose stages are shown; None shows nothing.
        is_quiet: Whether to show nothing.
        every: Seconds between two requests.
    """
    if is_quiet or spark is None:
        yield
        return
    ended = threading.Event()
    with ProgressLine(title) as line:
        looking = (spark.sparkContext.statusTracker(), line, ended, every)
        thread = threading.Thread(target=_look, args=looking, name="task-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _look(tracker: Any, line: ProgressLine, ended: threading.Event, every: float) -> None:
    from py4j.protocol import Py4JError

    while not ended.wait(every):
        try:
            done, total = tasks_of(tracker)
        except (Py4JError, OSError):
            return  # the session is ending
        if total:
            line.show(f"{done:,} of {total:,} tasks done")


def tasks_of(tracker: Any) -> tuple[int, int]:
    """Return the finished tasks and all tasks of the running stages, from Spark's `StatusTracker`."""
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)
