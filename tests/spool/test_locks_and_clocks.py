"""A queue's lock and a fork; records that are not old and a clock that jumps."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aioproduce.errors import SpoolInUseError
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.writer import SpoolWriter
from aioproduce.spool.writer_messages import Append, Dropped
from aioproduce.spool.writer_settings import WriterSettings
from tests.spool.batches import make_batch

_DAY = 86_400.0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_parents_queue(tmp_path: Path) -> None:
    directory = SpoolDirectory(tmp_path / "queue-0")
    told, tells = os.pipe()
    seen, shows = os.pipe()
    child = os.fork()
    if not child:
        os.write(shows, b".")  # its hooks have run
        os.read(told, 1)  # lives until the parent has looked
        os._exit(0)
    os.read(seen, 1)
    try:
        with pytest.raises(SpoolInUseError):  # the fork has not unlocked it either
            SpoolDirectory(tmp_path / "queue-0")
        directory.close()
        SpoolDirectory(tmp_path / "queue-0").close()
    finally:
        os.write(tells, b".")
        os.waitpid(child, 0)
        for end in (told, tells, seen, shows):
            os.close(end)


class _Clocks:
    """The clocks of a machine, which a test moves."""

    def __init__(self) -> None:
        self.wall = time.time()
        self.monotonic = time.monotonic()

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> _Clocks:
    moved = _Clocks()
    monkeypatch.setattr("aioproduce.spool.writer.time.time", lambda: moved.wall)
    monkeypatch.setattr("aioproduce.spool.writer.time.monotonic", lambda: moved.monotonic)
    return moved


class _Queue:
    """The writer of a queue, step by step; its files have the times of the clock at their last record."""

    def __init__(self, directory: Path, clocks: _Clocks) -> None:
        self.dropped: list[Dropped] = []
        self._directory = directory
        self._clocks = clocks
        self._written: dict[Path, float] = {}
        self._writer = SpoolWriter(
            FileSystem(), str(directory), WriterSettings(max_age=_DAY), lambda call: call()
        )
        self._writer.on_dropped = self.dropped.append

    def append(self, value: bytes) -> None:
        batch = make_batch([value])
        self._writer._append([Append("one", [batch], len(batch), self._clocks.monotonic, lambda _: None)])
        self._written[max((self._directory / "one-0").glob("*.log"))] = self._clocks.wall

    def expire(self) -> None:
        for path, at in self._written.items():
            if path.exists():
                os.utime(path, (at, at))  # the real clock of the files stood still
        self._writer._expire()


def test_a_clock_that_jumps_drops_nothing_that_is_not_old(tmp_path: Path, clocks: _Clocks) -> None:
    queue = _Queue(tmp_path, clocks)
    queue.append(b"first")
    clocks.wall += 365 * _DAY
    queue.expire()
    assert queue.dropped == []
    clocks.pass_by(_DAY / 2)
    queue.append(b"in a wrong year")
    clocks.wall -= 365 * _DAY
    queue.expire()
    queue.append(b"in the right year")
    queue.expire()
    assert queue.dropped == []
    clocks.pass_by(_DAY / 2 + 1)
    queue.expire()
    assert [(each.first_offset, each.end_offset, each.record_count) for each in queue.dropped] == [(0, 1, 1)]
    assert "older than 86400 s" in queue.dropped[0].reason


def test_records_get_too_old_although_the_clock_was_behind_at_the_start(
    tmp_path: Path, clocks: _Clocks
) -> None:
    """A machine whose clock begins in 1970, and is set later."""
    queue = _Queue(tmp_path, clocks)
    queue.expire()
    clocks.wall += 365 * _DAY
    queue.append(b"first")
    queue.expire()
    clocks.pass_by(_DAY - 1)
    queue.append(b"second")
    queue.expire()
    assert queue.dropped == []
    clocks.pass_by(2)
    queue.expire()
    assert [(each.first_offset, each.end_offset) for each in queue.dropped] == [(0, 1)]


def test_a_file_that_seems_to_be_of_next_year_keeps_nothing_for_a_year(
    tmp_path: Path, clocks: _Clocks
) -> None:
    clocks.wall += 365 * _DAY
    queue = _Queue(tmp_path, clocks)
    queue.append(b"in a wrong year")
    clocks.wall -= 365 * _DAY
    queue.expire()
    clocks.pass_by(_DAY - 1)
    queue.expire()
    assert queue.dropped == []
    clocks.pass_by(2)
    queue.expire()
    assert [(each.first_offset, each.end_offset) for each in queue.dropped] == [(0, 1)]


def test_an_idle_topic_costs_no_memory_while_time_passes(tmp_path: Path, clocks: _Clocks) -> None:
    queue = _Queue(tmp_path, clocks)
    queue.append(b"first")
    for _ in range(100):
        clocks.pass_by(_DAY / 8)
        queue.expire()
    assert len(queue.dropped) == 1
    assert len(queue._writer._ages["one"]) == 1
