"""How far a batch job is: the tasks of the stages that run now, asked of Spark twice a second.

Called by the jobs `audit` and `replay`; streams tell by themselves (`progress.StreamTotals`).

1. Asking changes nothing, and an answer that does not come ends the showing, not the job.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, final

from aioproduce.spark.jobs.progress import ProgressLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY = 0.5


@final
class TaskProgress:
    """A line on standard error while Spark works; use as a context manager.

    Args:
        title: What the line begins with.
        spark: The session whose stages are shown; None shows nothing.
        is_quiet: Show nothing.
        every: Seconds between two looks.
    """

    __slots__ = ("_ended", "_every", "_is_quiet", "_line", "_thread", "_tracker")

    def __init__(
        self, title: str, spark: SparkSession | None, *, is_quiet: bool = False, every: float = _EVERY
    ) -> None:
        self._is_quiet = is_quiet or spark is None
        self._line = ProgressLine(title, is_quiet=self._is_quiet)
        self._every = every
        self._tracker: Any = None if is_quiet or spark is None else spark.sparkContext.statusTracker()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="task-progress", daemon=True)

    def __enter__(self) -> Self:
        self._line.__enter__()
        if not self._is_quiet:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if not self._is_quiet:
            self._thread.join()
        self._line.__exit__(*error)

    def _follow(self) -> None:
        from py4j.protocol import Py4JError

        while not self._ended.wait(self._every):
            try:
                done, total = tasks_of(self._tracker)
            except (Py4JError, OSError):
                return  # the session ends
            if total:
                self._line.show(f"{done:,} of {total:,} tasks done")


def tasks_of(tracker: Any) -> tuple[int, int]:
    """Tasks of the stages that run now: those that are done, and all.

    Args:
        tracker: Spark's `StatusTracker`.
    """
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)
