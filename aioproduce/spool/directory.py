"""A queue's directory: whose it is, and what is in it.

    spool.json          the format's version, the queue's id, and the lives of the queue
    lock                locked by the process that uses the directory
    logs/orders-0/      one log for each topic
    quarantine/         damaged bytes of logs
    dead-letters.db     records that the cluster will never accept

A life of a queue is the time from its opening to its end. It begins at one offset in all logs, and has an id, which
is the first part of the ids of the records that are stored in it. So a queue and a copy of it, which use the same
offsets from then on, never give two records the same id.

Invariants:

1. Two processes never use a directory at a time: the lock is the operating system's, and ends with its process.
2. A directory of another format is refused, and not changed.
3. A life is on disk before a record is stored in it, and is kept while one of its records waits.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from bisect import bisect_right
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

from aioproduce.errors import SpoolDirectoryError, SpoolInUseError
from aioproduce.spool.segments import SUFFIX

_FORMAT: Final = 1
_DESCRIPTION: Final = "spool.json"
_LOCK: Final = "lock"
_LOGS: Final = "logs"
DIRECTORY_MODE: Final = 0o700
"""Only the service's user: records may be secret."""


class Life(NamedTuple):
    """A life of a queue.

    Attributes:
        begins_at: Its first offset, in each log.
        life_id: 16 bytes, the first part of its records' ids.
    """

    begins_at: int
    life_id: bytes


@final
class SpoolDirectory:
    """An open directory, locked until `close()`.

    Args:
        path: The directory; it is made if its parent exists.

    Attributes:
        path: The directory, absolute.
        spool_id: The queue's id, 16 bytes, made with the directory.
        lives: The lives whose records may wait, in the order of their offsets.

    Raises:
        SpoolDirectoryError: if it cannot be made, read or written, or has another format.
        SpoolInUseError: if another process, or this one, uses it.
    """

    __slots__ = ("_lock", "lives", "path", "spool_id")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        try:
            with suppress(FileExistsError):
                os.mkdir(self.path, DIRECTORY_MODE)
            self._lock = self._locked()
            try:
                self.lives: list[Life] = []
                self.spool_id: bytes = self._described()
                with suppress(FileExistsError):
                    os.mkdir(self.logs, DIRECTORY_MODE)
                _sync(self.path)
                _sync(os.path.dirname(self.path))
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise SpoolDirectoryError(
                f"the spool's directory {self.path} cannot be used: {error.strerror or error}; it needs a parent "
                "that exists, and the right to read and to write",
                directory=self.path,
            ) from error

    @property
    def logs(self) -> str:
        """The directory of the logs."""
        return f"{self.path}/{_LOGS}"

    @property
    def quarantine(self) -> str:
        """The directory of damaged bytes."""
        return f"{self.path}/quarantine"

    def _locked(self) -> int:
        descriptor = os.open(f"{self.path}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise SpoolInUseError(
                f"the spool's directory {self.path} is in use by process {owner or '?'}: give each process a "
                "directory of its own, or close the other producer first",
                directory=self.path,
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def _described(self) -> bytes:
        path = f"{self.path}/{_DESCRIPTION}"
        try:
            with open(path, encoding="utf-8") as file:
                description = json.load(file)
            if description["format"] != _FORMAT:
                raise SpoolDirectoryError(
                    f"the spool's directory {self.path} has format {description['format']!r}, and this version of "
                    f"aioproduce reads {_FORMAT}: use the version that wrote it",
                    directory=self.path,
                )
            self.lives = [
                Life(int(begins_at), uuid.UUID(life).bytes) for begins_at, life in description["lives"]
            ]
            return uuid.UUID(description["id"]).bytes
        except FileNotFoundError:
            return uuid.uuid4().bytes  # the first life is written with it
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolDirectoryError(
                f"{path} is damaged ({error}): records keep their ids only with the id in it. Restore it; or make "
                'another one, {"format": 1, "id": "<a UUID>", "lives": []}, and what was sent before gets new ids',
                directory=self.path,
            ) from error

    def begin_life(self, begins_at: int, waits_from: int) -> None:
        """Begin a life: write its id, durably.

        Args:
            begins_at: Its first offset, behind all that earlier lives have used.
            waits_from: The first offset that may wait in a log: lives that end before it are forgotten.

        Raises:
            OSError: if it cannot be written.
        """
        ended = bisect_right(self.lives, waits_from, key=lambda life: life.begins_at) - 1
        self.lives = [*self.lives[max(ended, 0) :], Life(begins_at, uuid.uuid4().bytes)]
        description: dict[str, Any] = {
            "format": _FORMAT,
            "id": str(uuid.UUID(bytes=self.spool_id)),
            "lives": [[life.begins_at, str(uuid.UUID(bytes=life.life_id))] for life in self.lives],
        }
        path = f"{self.path}/{_DESCRIPTION}"
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(description, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
        _sync(self.path)

    def life_id(self, offset: int) -> bytes:
        """Return the id of the life in which an offset was used."""
        place = bisect_right(self.lives, offset, key=lambda life: life.begins_at) - 1
        return self.lives[max(place, 0)].life_id

    def close(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)


def has_segments(path: str) -> bool:
    """Return whether a queue's logs have files, whose records may wait. It locks nothing."""
    logs = f"{path}/{_LOGS}"
    with suppress(FileNotFoundError, NotADirectoryError):
        return any(name.endswith(SUFFIX) for log in os.listdir(logs) for name in os.listdir(f"{logs}/{log}"))
    return False


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
