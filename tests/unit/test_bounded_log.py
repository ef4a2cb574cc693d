"""An outage is one line per cause and interval, with the count of what was left out; memory is bounded."""

from __future__ import annotations

import logging

import pytest

from aioproduce.core.bounded_log import BoundedLog

LOGGER = logging.getLogger("aioproduce.test_bounded_log")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [line.getMessage() for line in caplog.records]
    caplog.clear()
    return found


def test_one_line_per_cause_and_interval(caplog: pytest.LogCaptureFixture) -> None:
    log = BoundedLog(LOGGER, interval=10.0)
    for now in (100.0, 100.0, 105.0, 109.999):
        log.warning("broker 1", now, "lost %s", now)
    log.warning("broker 2", 105.0, "lost another")
    assert [(line.levelno, line.getMessage()) for line in caplog.records] == [
        (logging.WARNING, "lost 100.0"),
        (logging.WARNING, "lost another"),
    ]
    caplog.clear()
    log.warning("broker 1", 110.0, "lost %s", 110.0)
    log.warning("broker 2", 115.0, "lost another")
    assert lines(caplog) == ["lost 110.0 (3 more like this since the last line)", "lost another"]
    log.warning("broker 1", 120.0, "lost %s", 120.0)
    assert lines(caplog) == ["lost 120.0"], "the count starts again"


def test_what_is_no_reason_to_worry_is_bounded_likewise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = BoundedLog(LOGGER, interval=10.0)
    for now in (0.0, 1.0, 10.0):
        log.info("cause", now, "at %s", now)
    assert [(line.levelno, line.getMessage()) for line in caplog.records] == [
        (logging.INFO, "at 0.0"),
        (logging.INFO, "at 10.0 (1 more like this since the last line)"),
    ]


def test_a_line_that_was_left_out_does_not_prolong_the_silence(caplog: pytest.LogCaptureFixture) -> None:
    log = BoundedLog(LOGGER, interval=10.0)
    for tenth in range(1000):
        log.warning("cause", tenth / 10, "again")
    assert len(lines(caplog)) == 10


def test_causes_without_end_do_not_fill_memory(caplog: pytest.LogCaptureFixture) -> None:
    log = BoundedLog(LOGGER, interval=1e9)
    for number in range(1000):
        log.warning(number, 0.0, "new")
    for number in range(1000):
        log.warning(number, 1.0, "known")
    assert set(lines(caplog)) == {"new"}
    log.warning(1000, 2.0, "one too many: the oldest goes")
    assert len(lines(caplog)) == 1
    log.warning(999, 3.0, "still known")
    assert lines(caplog) == []
    log.warning(0, 4.0, "known no more")
    assert lines(caplog) == ["known no more"]


def test_a_percent_sign_in_an_argument_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    log = BoundedLog(LOGGER, interval=1.0)
    for now in (0.0, 0.5, 2.0):
        log.warning("cause", now, "failed: %s", "100 %s")
    assert lines(caplog) == ["failed: 100 %s", "failed: 100 %s (1 more like this since the last line)"]
