"""The directory of a service: one queue for each of its workers.

    queue-0/            a queue; see `directory`
    queue-1/            another one, of another worker

A worker takes the lowest queue that nobody has locked, so a service of one process has one queue in all its
lives. A queue whose worker is gone is an orphan: another worker adopts it, forwards what is in it, and leaves it.
The empty queue stays for the next worker.

Invariants:

1. A queue has one owner or adopter at a time: the lock in its directory.
2. A queue is never removed, so nobody can lock a directory that is about to go.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import SpoolDirectoryError, SpoolInUseError
from aioproduce.spool.directory import DIRECTORY_MODE, SpoolDirectory, has_segments
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.file_systems import file_system_of, objection_to

if TYPE_CHECKING:
    from collections.abc import Container

_log = logging.getLogger("aioproduce.spool")

_NAME: Final = re.compile(r"queue-(0|[1-9]\d{0,3})")
_MOST_QUEUES: Final = 1000


def queue_paths(path: str) -> list[str]:
    """Return the paths of the queues in a service's directory, in the order of their numbers.

    Raises:
        OSError: if the directory cannot be read.
    """
    matches = (_NAME.fullmatch(name) for name in os.listdir(path))
    return [f"{path}/queue-{number}" for number in sorted(int(match[1]) for match in matches if match)]


@final
class ServiceDirectory:
    """The directory of a service's queues.

    Args:
        path: The directory; it is made if its parent exists.

    Attributes:
        path: The directory, absolute.

    Raises:
        SpoolDirectoryError: if it cannot be made or read.
    """

    __slots__ = ("_refused", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        self._refused: set[str] = set()
        try:
            with suppress(FileExistsError):
                os.mkdir(self.path, DIRECTORY_MODE)
            queue_paths(self.path)
            # Also if it was there: an earlier process may have been killed before this.
            with suppress(PermissionError):  # who may not read the parent cannot sync it
                FileSystem().sync_directory(os.path.dirname(self.path))
        except OSError as error:
            raise SpoolDirectoryError(
                f"the spool's directory {self.path} cannot be used: {error.strerror or error}; it needs a parent "
                "that exists, and the right to read and to write",
                directory=self.path,
            ) from error
        self._warn_of_its_file_system()

    def _warn_of_its_file_system(self) -> None:
        kind = file_system_of(self.path)
        objection = objection_to(kind)
        if objection is not None:
            _log.warning(
                "the spool's directory %s is on %s: %s. Use a local disk", self.path, kind, objection
            )

    def take(self) -> SpoolDirectory:
        """Open and lock the lowest queue that nobody uses; it may be a new one.

        Raises:
            SpoolDirectoryError: if that queue cannot be read or written, or has another format.
            SpoolInUseError: if all queues that there may be are in use.
        """
        for number in range(_MOST_QUEUES):
            with suppress(SpoolInUseError):
                return SpoolDirectory(f"{self.path}/queue-{number}")
        raise SpoolInUseError(
            f"all {_MOST_QUEUES} queues of {self.path} are in use: give this service a directory of its own",
            directory=self.path,
        )

    def next_orphan(self, refused: Container[str]) -> SpoolDirectory | None:
        """Open and lock the first queue that nobody uses and that has something in it.

        A queue that cannot be opened is reported once, in the log, and is left alone.

        Args:
            refused: Paths of queues that the caller does not want.
        """
        try:
            paths = queue_paths(self.path)
        except OSError as error:
            self._leave(self.path, error)
            return None
        for path in paths:
            try:
                if path not in refused and has_segments(path):
                    return SpoolDirectory(path)
            except SpoolInUseError:
                continue
            except (SpoolDirectoryError, OSError) as error:
                self._leave(path, error)
        return None

    def _leave(self, path: str, error: Exception) -> None:
        """Report once that something is left as it is until the next look."""
        if path not in self._refused:
            self._refused.add(path)
            _log.error("the spool leaves a queue without a worker as it is: %s", error)
