"""What is in a queue, at a glance: for each topic what waits, since when, and how much room it takes.

The tools call it, also while a producer uses the queue. It writes nothing.

Invariants:

1. It reads heads of batches, and only of a few segments, however much waits. A segment that another one of the same
   life follows ends where that one begins, so its records are counted from the names. The last segment of a life is
   counted from head to head, because behind it are offsets that nobody used.
2. A file may vanish between listing and reading. Then its records are settled.
3. A batch that is half written is not counted.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from aioproduce.errors import SpoolDirectoryError
from aioproduce.spool.batch_head import HEAD_SIZE, BatchHead, is_whole, read_head
from aioproduce.spool.dead_letter_table import count_dead_letters
from aioproduce.spool.directory import DESCRIPTION, read_description
from aioproduce.spool.position import Position
from aioproduce.spool.queue_files import LogFiles, QueueFiles, bytes_in, unreadable
from aioproduce.spool.read_only_disk import ReadOnlyDisk
from aioproduce.spool.segments import find_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.spool.disk import File
    from aioproduce.spool.segments import Segment


@final
@dataclass(frozen=True, slots=True)
class LogStat:
    """What one topic has in a queue.

    Attributes:
        topic: The topic.
        bytes: The bytes of its files, preallocated room too.
        segments: The number of its segments.
        position: The offset before which every record is settled.
        waiting: The records behind it, by their offsets. Damage and holes are not looked for: what is lost in a
            segment, or was never written, is counted, and in the
            last segment of a life nothing is counted behind a damaged head.
        oldest_at_ms: The timestamp of the first of the oldest waiting batch, in milliseconds since the epoch; None
            if nothing waits, or if that batch cannot be read.
    """

    topic: str
    bytes: int
    segments: int
    position: int
    waiting: int
    oldest_at_ms: int | None


@final
@dataclass(slots=True)
class QueueStat:
    """What is in a queue.

    Attributes:
        path: The queue's directory.
        spool_id: The id of the queue; None if that cannot be read.
        user: The process that uses the queue, "?" if it is not known; None if none does.
        logs: What each topic has, by name.
        quarantine_bytes: The bytes of the quarantine.
        dead_letters: The number of dead letters by topic.
        problems: What cannot be read.
    """

    path: str
    spool_id: bytes | None
    user: str | None
    logs: list[LogStat] = field(default_factory=list)
    quarantine_bytes: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The bytes of all logs."""
        return sum(each.bytes for each in self.logs)

    @property
    def waiting(self) -> int:
        """The records that wait, of all topics."""
        return sum(each.waiting for each in self.logs)

    @property
    def oldest_at_ms(self) -> int | None:
        """The oldest time of all topics."""
        return min((each.oldest_at_ms for each in self.logs if each.oldest_at_ms is not None), default=None)


def look_at(queue: QueueFiles) -> QueueStat:
    """Return what is in a queue.

    Raises:
        SpoolDirectoryError: if it cannot be read.
    """
    try:
        found = QueueStat(queue.path, None, queue.user())
        try:
            description = read_description(queue.path)
            if description is not None:
                found.spool_id = description.spool_id
            else:
                found.problems.append(f"{queue.path} has no {DESCRIPTION}, which has the id of the queue")
        except SpoolDirectoryError as error:
            found.problems.append(str(error))
        found.logs += [stat for each in queue.logs() if (stat := _look_at_log(each)) is not None]
        found.quarantine_bytes = bytes_in(queue.quarantine)
    except OSError as error:
        raise unreadable(queue.path, error) from error
    if queue.has_dead_letters:
        try:
            found.dead_letters = count_dead_letters(queue.dead_letters)
        except sqlite3.Error as error:
            found.problems.append(f"{queue.dead_letters} cannot be read: {error}")
    return found


def _look_at_log(log: LogFiles) -> LogStat | None:
    disk = ReadOnlyDisk()
    try:
        segments = find_segments(disk, log.path)
        position = Position(disk, log.path).offset
    except FileNotFoundError:
        return None
    if position is None:
        position = segments[0].base_offset if segments else 0
    waiting = 0
    oldest: int | None = None
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        count, begins_at = _look_at_segment(
            disk, log.path, segment, following, position, is_oldest=not waiting
        )
        waiting += count
        oldest = begins_at if oldest is None else oldest
    return LogStat(log.topic, bytes_in(log.path), len(segments), position, waiting, oldest)


def _look_at_segment(
    disk: ReadOnlyDisk,
    directory: str,
    segment: Segment,
    following: Segment | None,
    position: int,
    *,
    is_oldest: bool,
) -> tuple[int, int | None]:
    """Return how many records of a segment wait, and the time of the first of them if it is asked for."""
    is_last_of_life = following is None or following.begins_life
    if following is not None and following.base_offset <= position:
        return 0, None
    start = max(segment.base_offset, position)
    if following is not None and not is_last_of_life and not is_oldest:
        return following.base_offset - start, None
    try:
        file = disk.open(f"{directory}/{segment.name}")
    except FileNotFoundError:
        return 0, None
    oldest: int | None = None
    end = start
    try:
        for head in _heads(file, segment.base_offset):
            if following is not None and head.base_offset >= following.base_offset:
                break
            if head.end_offset > position and head.record_count:
                oldest = head.first_timestamp if oldest is None else oldest
                if not is_last_of_life:
                    break
            end = max(end, head.end_offset)
    finally:
        file.close()
    if following is not None and not is_last_of_life:
        end = following.base_offset
    return end - start, oldest


def _heads(file: File, offset: int) -> Iterator[BatchHead]:
    """Yield the heads of a segment's batches, from head to head; the last one only if its batch is whole."""
    at = 0
    latest: BatchHead | None = None
    while True:
        head = read_head(file.read(at, HEAD_SIZE))
        if head is None or head.base_offset != offset:
            break
        if latest is not None:
            yield latest
        latest = head
        at += head.size
        offset = head.end_offset
    if latest is not None and is_whole(memoryview(file.read(at - latest.size, latest.size)), latest):
        yield latest
