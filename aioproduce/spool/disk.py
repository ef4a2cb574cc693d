"""The disk as an interface: everything that a spool does to files.

`FileSystem` is the real one. The tests have one that keeps every write until it is synced, and loses power.

Invariants:

1. A method does one thing that a file system can lose. What was written is durable after `File.sync()`, and a name
   after `sync_directory()`: a file that was synced under a name that was not is gone after a power cut.
2. A method that fails raises OSError. After a failed `sync()` nothing is known about what that file holds, also if
   the next one succeeds: Linux marks the pages clean. So the caller gives the file up.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, final

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A piece of what is written."""

_IOV_MAX: Final = 1024
_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_CANNOT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV})


class File(Protocol):
    """An open file."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; fewer at the end of the file."""

    def read_cached(self, offset: int, size: int) -> Buffer:
        """Return those of the bytes that are in memory, from `offset` on; none if that cannot be told.

        It waits for no disk, and raises nothing: `read()` tells what is wrong.
        """

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, one after the other. After an error any part of them may be in the file."""

    def truncate(self, size: int) -> None:
        """Set the size; bytes beyond the old one read as zeros."""

    def allocate(self, size: int) -> None:
        """Reserve room up to this size, which becomes the file's size; new bytes read as zeros."""

    def sync(self) -> None:
        """Make the content and the size durable."""

    def close(self) -> None:
        """Close it; this makes nothing durable."""


class Disk(Protocol):
    """A file system. Paths are absolute, or relative to the process's working directory."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, in ascending order.

        Raises:
            FileNotFoundError: if there is no such directory.
        """

    def make_directory(self, path: str) -> None:
        """Make a directory, unless it exists. Its name is durable after a sync of its parent."""

    def create(self, path: str) -> File:
        """Create an empty file, or empty the file that has this name, and open it."""

    def open(self, path: str) -> File:
        """Open a file to read and to write it.

        Raises:
            FileNotFoundError: if there is no such file.
        """

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""

    def written_at(self, path: str) -> float:
        """Return when a file was last written, in seconds since the epoch."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; a file that has this name is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a name."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Return at most `size` bytes of an open file from `offset` on; fewer at its end."""
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(descriptor, size, offset)):
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return b"".join(pieces)


def read_cached_at(descriptor: int, offset: int, size: int) -> Buffer:
    """Return those bytes of an open file that are in the page cache; none where a system cannot tell that."""
    content = bytearray(size)
    try:
        # preadv2(2): EAGAIN instead of a wait for the disk, and a part if the rest is not in memory.
        count = os.preadv(descriptor, [content], offset, os.RWF_NOWAIT)
    except (AttributeError, NotImplementedError, OSError):
        return b""
    return memoryview(content)[:count]


@final
class _OsFile:
    """A file of the operating system."""

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
        for start in range(0, len(buffers), _IOV_MAX):
            part = buffers[start : start + _IOV_MAX]
            size = sum(map(len, part))
            written = os.pwritev(self._descriptor, part, offset)
            if written < size:  # a signal, or the last room of a disk: the next call tells
                self._write_rest(offset, memoryview(b"".join(part)), written)
            offset += size

    def _write_rest(self, offset: int, content: memoryview, done: int) -> None:
        while done < len(content):
            done += os.pwrite(self._descriptor, content[done:], offset + done)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
            os.ftruncate(self._descriptor, max(size, self.size))

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class FileSystem:
    """The operating system's files. Only their owner can read them."""

    __slots__ = ()

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory."""
        return sorted(os.listdir(directory))

    def make_directory(self, path: str) -> None:
        """Make a directory that only its owner can enter."""
        try:
            os.mkdir(path, _DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def create(self, path: str) -> File:
        """Create or empty a file."""
        return _OsFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE))

    def open(self, path: str) -> File:
        """Open a file that exists."""
        return _OsFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def size(self, path: str) -> int:
        """Return a file's size."""
        return os.stat(path).st_size

    def written_at(self, path: str) -> float:
        """Return when a file was last written."""
        return os.stat(path).st_mtime

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        """Make a directory's names durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
