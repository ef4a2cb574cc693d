"""A spool's directory: whose it is, and what is in it.

    spool.json          the format's version, and the id that is part of each record's id
    lock                locked by the process that uses the directory
    logs/orders-0/      one log for each topic
    quarantine/         damaged bytes of logs
    dead-letters.db     records that the cluster will never accept

Invariants:

1. Two processes never use a directory at a time: the lock is the operating system's, and ends with its process.
2. A directory of another format is refused, and not changed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from contextlib import suppress
from typing import Final, final

from aioproduce.errors import SpoolDirectoryError, SpoolFormatError, SpoolInUseError

_FORMAT: Final = 1
DESCRIPTION: Final = "spool.json"
LOCK: Final = "lock"
LOGS: Final = "logs"
QUARANTINE: Final = "quarantine"
_MODE: Final = 0o700
_ARE_TAKEN: Final = (errno.EWOULDBLOCK, errno.EACCES)


@final
class SpoolDirectory:
    """An open directory, locked until `close()`.

    Args:
        path: The directory; it is made if its parent exists.

    Attributes:
        path: The directory, absolute.
        spool_id: 16 bytes, made with the directory.

    Raises:
        SpoolDirectoryError: if it cannot be made, read or written.
        SpoolFormatError: if it has another format.
        SpoolInUseError: if another process, or this one, uses it.
    """

    __slots__ = ("_lock", "path", "spool_id")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        try:
            with suppress(FileExistsError):
                os.mkdir(self.path, _MODE)
            self._lock = lock_queue(self.path)
            try:
                self.spool_id: bytes = read_description(self.path) or begin_description(self.path)
                with suppress(FileExistsError):
                    os.mkdir(self.logs, _MODE)
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
        return f"{self.path}/{LOGS}"

    @property
    def quarantine(self) -> str:
        """The directory of damaged bytes."""
        return f"{self.path}/{QUARANTINE}"

    def close(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)


def lock_queue(path: str) -> int:
    """Lock a queue's directory, and return the descriptor that holds the lock until it is closed.

    Raises:
        SpoolInUseError: if another process, or this one, has locked it.
        OSError: if its lock cannot be opened.
    """
    descriptor = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = _owner(descriptor)
        os.close(descriptor)
        if error.errno not in _ARE_TAKEN:
            raise
        raise in_use_error(path, owner) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def user_of(path: str) -> str | None:
    """Return the process that uses a queue's directory, "?" if it is not known, or None. It writes nothing.

    Raises:
        OSError: if the lock cannot be opened.
    """
    try:
        descriptor = os.open(f"{path}/{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # A shared lock: two that look at the same time do not take each other for a user.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _ARE_TAKEN:
            raise
        return _owner(descriptor)
    finally:
        os.close(descriptor)
    return None


def in_use_error(path: str, owner: str) -> SpoolInUseError:
    """Return the error of a queue that another process uses."""
    return SpoolInUseError(
        f"the spool's directory {path} is in use by process {owner}: give each process a "
        "directory of its own, or close the other producer first",
        directory=path,
    )


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "?"


def read_description(directory: str) -> bytes | None:
    """Return the id of a queue; None if it has no description.

    Raises:
        SpoolFormatError: if it is of another format.
        SpoolDirectoryError: if it is damaged.
        OSError: if it cannot be read.
    """
    path = f"{directory}/{DESCRIPTION}"
    try:
        with open(path, encoding="utf-8") as file:
            description = json.load(file)
        if description["format"] != _FORMAT:
            raise SpoolFormatError(
                f"the spool's directory {directory} has format {description['format']!r}, and this version of "
                f"aioproduce reads {_FORMAT}: use the version that wrote it",
                directory=directory,
            )
        return uuid.UUID(description["id"]).bytes
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpoolDirectoryError(
            f"{path} is damaged ({error}): records keep their ids only with the id in it. Restore it; or make "
            'another one, {"format": 1, "id": "<a UUID>"}, and what was sent before gets new ids',
            directory=directory,
        ) from error


def begin_description(directory: str) -> bytes:
    """Write a description with a new id, and return the id."""
    made = uuid.uuid4()
    path = f"{directory}/{DESCRIPTION}"
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"format": _FORMAT, "id": str(made)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    return made.bytes


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
