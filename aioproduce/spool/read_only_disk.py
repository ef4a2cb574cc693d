"""A disk that is only read: what the tools look at a queue with, also while a producer uses it.

Invariants:

1. Nothing on the disk changes. What the reader of a log writes (a copy of damaged bytes) goes nowhere.
2. Files are opened to be read alone, so the right to read is enough.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from aioproduce.spool.disk import read_at, read_cached_at

if TYPE_CHECKING:
    from aioproduce.spool.disk import Buffer, File


@final
class ReadOnlyDisk:
    """The operating system's files, to be read."""

    __slots__ = ()

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory."""
        return sorted(os.listdir(directory))

    def open(self, path: str) -> File:
        """Open a file to read it."""
        return _DiscardingFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def size(self, path: str) -> int:
        """Return a file's size."""
        return os.stat(path).st_size

    def written_at(self, path: str) -> float:
        """Return when a file was last written."""
        return os.stat(path).st_mtime

    def create(self, path: str) -> File:  # noqa: ARG002
        """Return a file that nobody sees."""
        return _DiscardingFile(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def make_directory(self, path: str) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing."""

    def rename(self, old: str, new: str) -> None:
        """Refuse."""
        raise _refusal(f"{old} -> {new}")

    def unlink(self, path: str) -> None:
        """Refuse."""
        raise _refusal(path)


@final
class _DiscardingFile:
    """A file whose changes go nowhere."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        return read_at(self._descriptor, offset, size)

    def read_cached(self, offset: int, size: int) -> Buffer:
        return read_cached_at(self._descriptor, offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Discard."""

    def truncate(self, size: int) -> None:
        """Discard."""

    def allocate(self, size: int) -> None:
        """Discard."""

    def sync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        os.close(self._descriptor)


def _refusal(what: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), what)
