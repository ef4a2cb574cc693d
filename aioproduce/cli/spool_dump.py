"""The rows of `aioproduce spool dump`: records or dead letters of queues, one after the other.

Called by `spool`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.cli.spool_view import letter_as_json, record_as_json
from aioproduce.errors import SpoolDirectoryError, SpoolFormatError
from aioproduce.spool.dead_letter_table import read_dead_letters
from aioproduce.spool.directory import read_description
from aioproduce.spool.record_reading import LogRecords

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from aioproduce.spool.directory import Description
    from aioproduce.spool.queue_files import QueueFiles

_LETTERS = 500


def record_rows(
    queues: Sequence[QueueFiles],
    topic: str | None,
    *,
    from_offset: int,
    waits: bool,
    problems: list[str],
) -> Generator[dict[str, Any]]:
    """Yield the records of queues.

    Args:
        queues: The queues.
        topic: Only this topic; all if None.
        from_offset: The first offset of each log.
        waits: Whether only records behind the position are wanted.
        problems: Gets what is damaged, at the end or when the rows are closed.

    Raises:
        SpoolDirectoryError: if a queue cannot be read.
        OSError: if a log cannot be read.
    """
    for queue in queues:
        description = _description(queue)
        for log in queue.logs():
            if topic is not None and log.topic != topic:
                continue
            try:
                reading = LogRecords(log, from_offset=from_offset, waits=waits, is_in_use=queue.is_in_use)
            except FileNotFoundError:  # nobody has it any more
                continue
            try:
                for record in reading.records():
                    yield record_as_json(queue.path, description, record)
            finally:  # also if no more are wanted
                problems += reading.problems()


def _description(queue: QueueFiles) -> Description | None:
    try:
        return read_description(queue.path)
    except SpoolFormatError:
        raise
    except SpoolDirectoryError:  # the records can be read without it
        return None


def dead_letter_rows(queues: Sequence[QueueFiles], topic: str | None) -> Generator[dict[str, Any]]:
    """Yield the dead letters of queues.

    Raises:
        sqlite3.Error: if a table cannot be read.
    """
    for queue in queues:
        after = None
        while queue.has_dead_letters and (
            letters := read_dead_letters(queue.dead_letters, topic=topic, after=after, limit=_LETTERS)
        ):
            for letter in letters:
                yield letter_as_json(queue.path, letter)
            after = letters[-1]
