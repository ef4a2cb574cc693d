"""The files of queues, as the tools see them: which queues a directory has, and which logs a queue has.

The tools call it. It reads names and the description, and writes nothing. A directory is that of a service, with
`queue-0`, `queue-1`, ... in it, or that of one queue.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.errors import SpoolDirectoryError
from aioproduce.spool.dead_letters import NAME as DEAD_LETTERS
from aioproduce.spool.directory import DESCRIPTION, LOGS, QUARANTINE, user_of
from aioproduce.spool.service_directory import queue_paths
from aioproduce.spool.writer import PARTITION_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARKS: Final = frozenset({DESCRIPTION, LOGS})


class LogFiles(NamedTuple):
    """The log of one topic.

    Attributes:
        topic: The topic.
        path: The log's directory.
    """

    topic: str
    path: str


@final
@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one queue.

    Attributes:
        path: The queue's directory, absolute.
    """

    path: str

    @property
    def name(self) -> str:
        """The directory's own name, such as `queue-0`."""
        return os.path.basename(self.path)

    @property
    def quarantine(self) -> str:
        """The directory of damaged bytes, which need not exist."""
        return f"{self.path}/{QUARANTINE}"

    @property
    def dead_letters(self) -> str:
        """The file of dead letters, which need not exist."""
        return f"{self.path}/{DEAD_LETTERS}"

    @property
    def has_dead_letters(self) -> bool:
        """Whether the queue has a file of dead letters."""
        return os.path.exists(self.dead_letters)

    def user(self) -> str | None:
        """Return the process that uses the queue, "?" if it is not known, or None.

        Raises:
            SpoolDirectoryError: if that cannot be found out.
        """
        try:
            return user_of(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def is_in_use(self) -> bool:
        """Return whether a process uses the queue.

        Raises:
            SpoolDirectoryError: as `user()`.
        """
        return self.user() is not None

    def logs(self) -> list[LogFiles]:
        """Return the logs, by topic.

        Raises:
            SpoolDirectoryError: if the directory cannot be read.
        """
        directory = f"{self.path}/{LOGS}"
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(directory, error) from error
        return [
            LogFiles(name.removesuffix(PARTITION_SUFFIX), f"{directory}/{name}")
            for name in names
            if name.endswith(PARTITION_SUFFIX)
        ]

    def log(self, topic: str) -> LogFiles | None:
        """Return the log of a topic; None if the queue has none."""
        return next((each for each in self.logs() if each.topic == topic), None)


def find_queues(path: str | os.PathLike[str]) -> list[QueueFiles]:
    """Return the queues of a directory, which is that of a service or of one queue.

    Raises:
        SpoolDirectoryError: if it cannot be read, or has no queue.
    """
    root = os.path.abspath(os.fspath(path))
    try:
        names = set(os.listdir(root))
        paths = queue_paths(root)
    except OSError as error:
        raise unreadable(root, error) from error
    if paths:
        return [QueueFiles(each) for each in paths]
    if not names & _MARKS:
        raise SpoolDirectoryError(
            f"{root} has no queue: it has neither {DESCRIPTION} nor {LOGS}, nor directories queue-0, queue-1, ...; "
            "name the directory that a SpooledProducer was given, or one of its queues",
            directory=root,
        )
    return [QueueFiles(root)]


def bytes_in(directory: str) -> int:
    """Return the bytes of the files in a directory; 0 if there is no such directory.

    Raises:
        OSError: if it cannot be read.
    """
    try:
        names: Sequence[str] = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return sum(size_of(f"{directory}/{name}") for name in names)


def size_of(path: str) -> int:
    """Return a file's size; 0 if it is gone."""
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


def unreadable(path: str, error: OSError) -> SpoolDirectoryError:
    """Return the error of a directory or a file that cannot be read."""
    return SpoolDirectoryError(
        f"{error.filename or path} cannot be read: {error.strerror or error}; run this as the user whose producer "
        "wrote it, and name a directory that exists",
        directory=path,
    )
