"""The effects of compact on the file system, one method each, and the locks that allow only one process.

Used by `compaction`. Tests replace it with one that dies before or after an effect. The lock of `land` is also
here.

Invariants:

1. Each effect is atomic (a rename), or may be repeated after an interruption (removing a tree).
2. Data is on the disk before anything relies on it: files and directories are synced, so that a power cut is no
   worse than a kill.
3. Locks are the kernel's (`flock`): a lock ends with its process, however that ends. The file stays and means
   nothing.
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
        """Create a directory and its parents; no error if it exists."""
        path.mkdir(parents=True, exist_ok=True)

    def replace_file(self, path: Path, content: bytes) -> None:
        """Replace a small file as a whole."""
        replacement = path.with_name(path.name + ".new")
        with replacement.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        replacement.replace(path)
        self.sync_directory(path.parent)

    def move_directory(self, path: Path, to: Path) -> None:
        """Move a directory to a free name within one file system, without syncing."""
        path.rename(to)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with its content; no error if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_file(self, path: Path) -> None:
        """Sync a file's content to the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Sync a directory's entries to the disk."""
        self.sync_file(path)


def compact_lock(path: Path) -> AbstractContextManager[None]:
    """Return the lock of a compact on a table; the file's directory must exist.

    Raises:
        CompactRunningError: If another process holds it on entry.
        LayoutError: If the file system does not support locks.
    """
    return _held(path, "compact", "on", CompactRunningError)


def land_lock(path: Path) -> AbstractContextManager[None]:
    """Return the lock of a land that continues from a checkpoint; the file's directory must exist.

    If two ran at once, the slower one could write a batch again that the other has committed and that was compacted
    meanwhile. It would then be there twice.

    Raises:
        LandRunningError: If another process holds it on entry.
        LayoutError: If the file system does not support locks.
    """
    return _held(path, "land", "with the checkpoint", LandRunningError)


@contextlib.contextmanager
def _held(path: Path, job: str, works_on: str, running: type[RunningError]) -> Iterator[None]:
    """Provide a lock whose file describes the process that holds it."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            raise running(
                f"another {job} works {works_on} {path.parent} ({owner or 'its owner is unknown'}): wait "
                "for it to end. Its lock ends with its process, even if that is killed; there is nothing "
                "to remove by hand",
                path=str(path),
                owner=owner,
            ) from None
        except OSError as error:
            raise LayoutError(
                f"{path} cannot be locked ({error.strerror}): {job} needs flock", path=str(path)
            ) from error
        file.truncate(0)
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": int(time.time())}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
