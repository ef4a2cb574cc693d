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
3. A forked child does not keep its parent's lock.
4. A life is on disk before a record is stored in it, and is kept while one of its records waits.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from bisect import bisect_right
from contextlib import suppress
from typing import Final, NamedTuple, final
from weakref import WeakSet

from aioproduce.errors import SpoolDirectoryError, SpoolFormatError, SpoolInUseError
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.segments import SUFFIX

_FORMAT: Final = 1
DESCRIPTION: Final = "spool.json"
LOCK: Final = "lock"
LOGS: Final = "logs"
QUARANTINE: Final = "quarantine"
DIRECTORY_MODE: Final = 0o700
"""Only the service's user: records may be secret."""

_ARE_TAKEN: Final = (errno.EWOULDBLOCK, errno.EACCES)


class Life(NamedTuple):
    """A life of a queue.

    Attributes:
        begins_at: Its first offset, in each log.
        life_id: 16 bytes, the first part of its records' ids.
    """

    begins_at: int
    life_id: bytes


class Description(NamedTuple):
    """What the description of a queue says.

    Attributes:
        spool_id: The queue's id, 16 bytes.
        lives: The lives whose records may wait, in the order of their offsets.
    """

    spool_id: bytes
    lives: tuple[Life, ...] = ()

    def record_id(self, offset: int) -> bytes:
        """Return the id of a record: that of the life in which its offset was used, and the offset."""
        return self.life_id(offset) + offset.to_bytes(8, "big")

    def life_id(self, offset: int) -> bytes:
        """Return the id of the life in which an offset was used; the queue's if that life is not known any more."""
        place = bisect_right(self.lives, offset, key=lambda life: life.begins_at) - 1
        return self.spool_id if place < 0 else self.lives[place].life_id

    def with_life(self, begins_at: int, waits_from: int, *, replaces_last: bool) -> Description:
        """Return the description with another life, without those that ended before `waits_from`."""
        lives = self.lives[:-1] if replaces_last else self.lives
        ended = bisect_right(lives, waits_from, key=lambda life: life.begins_at) - 1
        return Description(self.spool_id, (*lives[max(ended, 0) :], Life(begins_at, uuid.uuid4().bytes)))


@final
class SpoolDirectory:
    """An open directory, locked until `close()`.

    Args:
        path: The directory; it is made if its parent exists.

    Attributes:
        path: The directory, absolute.
        description: The ids of the queue and of its lives.

    Raises:
        SpoolDirectoryError: if it cannot be made, read or written.
        SpoolFormatError: if it has another format.
        SpoolInUseError: if another process, or this one, uses it.
    """

    __slots__ = ("__weakref__", "_lock", "description", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        try:
            with suppress(FileExistsError):
                os.mkdir(self.path, DIRECTORY_MODE)
            self._lock = lock_queue(self.path)
            try:
                self.description: Description = read_description(self.path) or begin_description(self.path)
                with suppress(FileExistsError):
                    os.mkdir(self.logs, DIRECTORY_MODE)
                FileSystem().sync_directory(self.path)
                FileSystem().sync_directory(os.path.dirname(self.path))
            except BaseException:
                os.close(self._lock)
                raise
            _held.add(self)
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

    @property
    def spool_id(self) -> bytes:
        """The queue's id, 16 bytes, made with the directory."""
        return self.description.spool_id

    def begin_life(self, begins_at: int, waits_from: int, *, replaces_last: bool = False) -> None:
        """Begin a life: write its id, durably.

        Args:
            begins_at: Its first offset, behind all that earlier lives have used.
            waits_from: The first offset that may wait in a log: lives that end before it are forgotten.
            replaces_last: Whether the last life is forgotten: no log has anything of it.

        Raises:
            OSError: if it cannot be written.
        """
        self.description = self.description.with_life(begins_at, waits_from, replaces_last=replaces_last)
        write_description(self.path, self.description)

    def life_id(self, offset: int) -> bytes:
        """Return the id of the life in which an offset was used."""
        return self.description.life_id(offset)

    def close(self) -> None:
        """Unlock the directory."""
        _held.discard(self)
        os.close(self._lock)

    def _was_forked(self) -> None:
        """Let go of the lock in a child: the kernel would keep it until both processes have ended."""
        os.close(self._lock)


_held: Final[WeakSet[SpoolDirectory]] = WeakSet()


def _leave_locks_to_the_parent() -> None:
    for directory in list(_held):
        directory._was_forked()
    _held.clear()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)


def has_segments(path: str) -> bool:
    """Return whether a queue's logs have files, whose records may wait. It locks nothing."""
    logs = f"{path}/{LOGS}"
    with suppress(FileNotFoundError, NotADirectoryError):
        return any(_has_segments(f"{logs}/{log}") for log in os.listdir(logs))
    return False


def _has_segments(log: str) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile, or a file that is not ours
        return any(name.endswith(SUFFIX) for name in os.listdir(log))
    return False


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
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        os.close(descriptor)  # with it the lock
        raise
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


def read_description(directory: str) -> Description | None:
    """Return the description of a queue; None if it has none.

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
        lives = (Life(int(begins_at), uuid.UUID(life).bytes) for begins_at, life in description["lives"])
        return Description(uuid.UUID(description["id"]).bytes, tuple(lives))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpoolDirectoryError(
            f"{path} is damaged ({error}): records keep their ids only with the id in it. Restore it; or make "
            'another one, {"format": 1, "id": "<a UUID>", "lives": []}, and what was sent before gets new ids',
            directory=directory,
        ) from error


def begin_description(directory: str) -> Description:
    """Write a description with a new id, and return it.

    Raises:
        OSError: if it cannot be written.
    """
    made = Description(uuid.uuid4().bytes)
    write_description(directory, made)
    return made


def write_description(directory: str, description: Description) -> None:
    """Write a description, durably.

    Raises:
        OSError: if it cannot be written; then the old one is there.
    """
    path = f"{directory}/{DESCRIPTION}"
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        lives = [[life.begins_at, str(uuid.UUID(bytes=life.life_id))] for life in description.lives]
        spool_id = str(uuid.UUID(bytes=description.spool_id))
        json.dump({"format": _FORMAT, "id": spool_id, "lives": lives}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    FileSystem().sync_directory(directory)
