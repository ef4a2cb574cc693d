"""What compact does to the file system, one method for each effect, and the locks that let one process do it.

`compaction` calls it. Tests put another one in its place that dies before or after an effect. The lock of `land` is
here, too.

Invariants:

1. Each effect is atomic (a rename) or may be repeated after it was cut short (removing a tree).
2. What was written is on the disk before anything relies on it: files and directories are synced, so that a power
   cut is no worse than a kill.
3. A lock is the kernel's (`flock`): it ends with the process, however that ends. The file stays, meaning nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aioproduce.spark.errors import CompactRunningError, LandRunningError, LayoutError, RunningError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class LakeFiles:
    """The effects of a compaction on a local file system."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents; no error where it is."""
        path.mkdir(parents=True, exist_ok=True)

    def replace_file(self, path: Path, content: bytes) -> None:
        """Replace a small file as a whole."""
        beside = path.with_name(path.name + ".new")
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        self.sync_directory(path.parent)

    def move_directory(self, path: Path, to: Path) -> None:
        """Move a directory to where there is none, within one file system; not yet synced."""
        path.rename(to)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it; no error where there is none."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_file(self, path: Path) -> None:
        """Have a file's content on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Have a directory's entries on the disk."""
        self.sync_file(path)


def compact_lock(path: Path) -> AbstractContextManager[None]:
    """Held while a compact works on a table; the file's directory is there.

    Raises:
        CompactRunningError: On entry, where another process has it.
        LayoutError: On entry, where the file system knows no locks.
    """
    return _held(path, "compact", "on", CompactRunningError)


def land_lock(path: Path) -> AbstractContextManager[None]:
    """Held while a land goes on from a checkpoint; the file's directory is there.

    Of two at once the slower could put a batch in place again that the other has committed, and that was compacted
    meanwhile: it would be there twice.

    Raises:
        LandRunningError: On entry, where another process has it.
        LayoutError: On entry, where the file system knows no locks.
    """
    return _held(path, "land", "with the checkpoint", LandRunningError)


@contextlib.contextmanager
def _held(path: Path, job: str, works_on: str, running: type[RunningError]) -> Iterator[None]:
    """A lock in whose file the process that has it says who it is."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            raise running(
                f"another {job} works {works_on} {path.parent} ({owner or 'it has not said which'}): let it end. "
                "Its lock ends with its process, also when that is killed; there is nothing to remove by hand",
                path=str(path),
                owner=owner,
            ) from None
        except OSError as error:
            raise LayoutError(
                f"{path}: no lock can be had there ({error.strerror}): {job} needs flock", path=str(path)
            ) from error
        file.truncate(0)
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": int(time.time())}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
