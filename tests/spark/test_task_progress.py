"""The line that tells how far a batch job is, with a tracker that only says what it is told to."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from aioproduce.spark.jobs.task_progress import task_progress, tasks_of


class Tracker:
    def __init__(self) -> None:
        self.asked = threading.Event()

    def getActiveStageIds(self) -> list[int]:
        return [3, 4, 5]

    def getStageInfo(self, stage: int) -> Any:
        if stage == 5:
            self.asked.set()
            return None  # it ended just now
        return SimpleNamespace(numCompletedTasks=stage, numTasks=10)


def session(tracker: Tracker) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_tasks_are_those_of_all_stages_that_run() -> None:
    assert tasks_of(Tracker()) == (7, 20)


def test_spark_is_asked_until_the_job_ends() -> None:
    tracker = Tracker()
    before = threading.active_count()
    with task_progress("audit", session(tracker), every=0.001):
        assert tracker.asked.wait(60)
    assert threading.active_count() == before


def test_quiet_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with task_progress("audit", session(Tracker()), is_quiet=True, every=0.0):
        pass
    assert capsys.readouterr().err == ""
