"""The writer of a queue, turn by turn, without its thread."""

from __future__ import annotations

import threading
import weakref
from math import inf
from pathlib import Path

import pytest

from aioproduce.spool.disk import FileSystem
from aioproduce.spool.topic_log import TopicLog
from aioproduce.spool.writer import SpoolWriter
from aioproduce.spool.writer_messages import Append, QueueIsFullError
from aioproduce.spool.writer_settings import FullPolicy, WriterSettings
from tests.spool.batches import make_batch


class _Sender:
    """Who has submitted something, and keeps its bytes, too."""

    def is_told(self, append: Append) -> None:
        raise AssertionError(f"{append} was cancelled")


def test_cancelled_writes_keep_no_bytes_behind_one_that_waits(tmp_path: Path) -> None:
    writer = SpoolWriter(FileSystem(), str(tmp_path), WriterSettings(max_bytes=100), lambda call: call())
    batch = make_batch([b"x" * 60])

    def append(topic: str) -> Append:
        return Append(topic, [batch], len(batch), inf, lambda _: None)

    writer.submit([append("one")])
    writer._turn()  # it is stored, and the queue is full
    waiting, sender = append("one"), _Sender()
    behind = Append("t", [batch], len(batch), inf, sender.is_told)
    writer.submit([waiting, behind])
    writer.cancel(behind)
    kept = weakref.ref(sender)
    del sender
    assert list(writer._appends) == [waiting, behind]
    assert (behind.buffers, kept()) == ((), None)


def test_the_loop_does_not_wait_while_the_writer_frees_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look for settled files makes system calls, and a disk may be slow."""
    writer = SpoolWriter(
        FileSystem(),
        str(tmp_path),
        WriterSettings(max_bytes=200, when_full=FullPolicy.REJECT),
        lambda call: call(),
    )
    real = TopicLog.drop_active
    looks: list[bool] = []

    def try_lock() -> None:
        looks.append(writer._condition.acquire(timeout=0))
        if looks[-1]:
            writer._condition.release()

    def look(log: TopicLog) -> None:
        other = threading.Thread(target=try_lock)
        other.start()
        other.join()
        real(log)

    monkeypatch.setattr(TopicLog, "drop_active", look)
    batch = make_batch([b"x" * 60])
    answered: list[Append] = []
    for _ in range(2):
        writer.submit([Append("one", [batch], len(batch), inf, answered.append)])
    while len(answered) < 2:
        writer._turn()
    assert [type(append.error) for append in answered] == [type(None), QueueIsFullError]
    assert looks == [True]
