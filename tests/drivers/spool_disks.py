"""Disks for tests of a queue: one whose calls fail, one whose writes wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from aioproduce.spool.disk import Buffer, File, FileSystem


class BrokenDisk(FileSystem):
    """A file system of which calls of some kinds fail, as often as `failures` says."""

    failures: ClassVar[dict[str, list[int]]] = {}

    def create(self, path: str) -> File:
        _fail("create")
        return BrokenFile(super().create(path))

    def open(self, path: str) -> File:
        return BrokenFile(super().open(path))


class BrokenFile:
    """A file of it."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        _fail("write")
        self._file.write(offset, buffers)

    def sync(self) -> None:
        _fail("sync")
        self._file.sync()


def _fail(kind: str) -> None:
    numbers = BrokenDisk.failures.get(kind)
    if numbers:
        number = numbers.pop(0)
        raise OSError(number, os.strerror(number))


class HeldDisk(FileSystem):
    """A file system whose files write when `may_write` is set."""

    may_write: ClassVar[threading.Event]
    is_waited_for: ClassVar[threading.Event]

    @classmethod
    @contextmanager
    def holding(cls) -> Iterator[None]:
        """Let writes wait until the context ends."""
        cls.may_write.clear()
        try:
            yield
        finally:
            cls.may_write.set()

    def create(self, path: str) -> File:
        return HeldFile(super().create(path))


class HeldFile(BrokenFile):
    """A file of it."""

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        if not HeldDisk.may_write.is_set():
            HeldDisk.is_waited_for.set()
            HeldDisk.may_write.wait()
        self._file.write(offset, buffers)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The errors of the next calls, by kind of call."""
    failures: dict[str, list[int]] = {}
    monkeypatch.setattr(BrokenDisk, "failures", failures)
    monkeypatch.setattr("aioproduce.spool.spool_queue.FileSystem", BrokenDisk)
    return failures


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> type[HeldDisk]:
    """A disk that may write at first."""
    monkeypatch.setattr("aioproduce.spool.spool_queue.FileSystem", HeldDisk)
    monkeypatch.setattr(HeldDisk, "may_write", threading.Event(), raising=False)
    monkeypatch.setattr(HeldDisk, "is_waited_for", threading.Event(), raising=False)
    HeldDisk.may_write.set()
    return HeldDisk
