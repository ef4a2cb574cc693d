"""What is done elsewhere for a login: each end told once, and none after it was forgotten."""

from __future__ import annotations

from threading import Thread
from typing import Any
from unittest.mock import patch

from aioproduce.core.cluster.offloads import Offloads
from aioproduce.drivers.offloading import outcome_of, run_in_thread
from aioproduce.security.mechanism import Work

WORK = Work(lambda: b"done")


def test_each_end_is_told_once_to_who_asked_for_it() -> None:
    offloads, told = Offloads(), []
    one = offloads.begin(WORK, lambda outcome, now: told.append(("one", outcome, now)))
    two = offloads.begin(WORK, lambda outcome, now: told.append(("two", outcome, now)))
    assert [effect.ticket for effect in offloads.effects] == [one, two]
    offloads.ended(two, b"2", 5.0)
    offloads.ended(one, b"1", 6.0)
    offloads.ended(one, b"again", 7.0)
    offloads.ended(99, b"unknown", 7.0)
    assert told == [("two", b"2", 5.0), ("one", b"1", 6.0)]


def test_what_is_forgotten_is_not_done_and_its_end_changes_nothing() -> None:
    offloads, told = Offloads(), []
    handed_out, waiting = (offloads.begin(WORK, lambda *end: told.append(end)) for _ in range(2))
    offloads.effects.popleft()
    offloads.forget(handed_out)
    offloads.forget(waiting)
    offloads.forget(waiting)
    assert not offloads.effects
    offloads.ended(handed_out, b"late", 1.0)

    offloads.begin(WORK, lambda *end: told.append(end))
    offloads.forget_all()
    offloads.ended(3, b"late", 1.0)
    assert not offloads.effects
    assert told == []


def test_an_error_comes_without_the_frames_that_may_hold_a_secret() -> None:
    def fail() -> bytes:
        secret = "alice-secret"
        raise ValueError(len(secret))

    outcome = outcome_of(Work(fail))
    assert isinstance(outcome, ValueError)
    assert outcome.__traceback__ is None


def test_a_system_without_threads_fails_the_work_and_nothing_else() -> None:
    called: list[Any] = []
    with patch.object(Thread, "start", side_effect=RuntimeError("can't start new thread")):
        run_in_thread(WORK, called.append, lambda callback: callback())
    assert [str(outcome) for outcome in called] == ["can't start new thread"]


def test_nobody_is_told_once_the_loop_is_closed() -> None:
    class AtOnce:
        def submit(self, job: Any) -> None:
            job()

    def closed(_: Any) -> None:
        raise RuntimeError("Event loop is closed")

    run_in_thread(WORK, lambda _: None, closed, AtOnce())  # type: ignore[arg-type]
