"""How far a batch job is: the tasks of the stages that run now, asked of Spark twice a second.

Called by the jobs `audit` and `replay`; streams tell by themselves (`progress.StreamTotals`).

1. Asking changes nothing, and an answer that does not come ends the showing, not the job.
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
        title: What the line begins with.
        spark: The session whose stages are shown; None shows nothing.
        is_quiet: Show nothing.
        every: Seconds between two looks.
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
            return  # the session ends
        if total:
            line.show(f"{done:,} of {total:,} tasks done")


def tasks_of(tracker: Any) -> tuple[int, int]:
    """Tasks of the stages that run now, as Spark's `StatusTracker` has them: those that are done, and all."""
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)
