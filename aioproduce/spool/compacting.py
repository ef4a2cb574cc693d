"""Make a queue that nobody uses smaller: remove what is settled, what is left over, and reserved room.

The tools call it.

Invariants:

1. It holds the queue's lock from the first look to the last write.
2. A segment is removed only if no record of it waits and none of it is damaged, after the position behind it is
   durable.
3. The file of a position stays, also that of an empty log: without it the next life would use offsets again, and
   records would get ids that others had.
4. A log whose position cannot be read, and a segment that is damaged, are left as they are: `repairing` is first.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.spool.batch_head import HEAD_SIZE, holes
from aioproduce.spool.dead_letter_table import compact_dead_letters
from aioproduce.spool.directory import lock_queue
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.log_reader import LogReader
from aioproduce.spool.log_scan import READ_BYTES, LogScan
from aioproduce.spool.position import Position
from aioproduce.spool.quarantine import Quarantine
from aioproduce.spool.queue_files import size_of, unreadable
from aioproduce.spool.read_only_disk import ReadOnlyDisk
from aioproduce.spool.segments import Extent
from aioproduce.spool.verifying import description_findings, position_findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.spool.queue_files import LogFiles, QueueFiles
    from aioproduce.spool.segments import Segment

_STRAYS: Final = ("recycled", "rescued", "position.new")


@final
class Freed(NamedTuple):
    """One thing that was made smaller, or that was left.

    Attributes:
        path: The file.
        what: What was done; for people.
        bytes: How many bytes of files became free.
        is_left: Whether it was left as it is, because something has to be repaired first.
    """

    path: str
    what: str
    bytes: int
    is_left: bool = False


def compact(queue: QueueFiles, *, has_quarantine: bool = False) -> Iterator[Freed]:
    """Make a queue smaller, and yield each thing when it is done.

    Args:
        queue: The queue.
        has_quarantine: Whether the damaged bytes in the quarantine are removed, too.

    Raises:
        SpoolInUseError: if a producer uses the queue.
        SpoolDirectoryError: if the queue cannot be read or written, or has another format.
        sqlite3.Error: if the dead letters cannot be compacted.
    """
    lock: int | None = None
    try:
        lock = lock_queue(queue.path)
        description_findings(queue)  # refuses another format
        for log in queue.logs():
            yield from _compact_log(log)
        if queue.has_dead_letters:
            before = size_of(queue.dead_letters)
            compact_dead_letters(queue.dead_letters)
            yield from _freed(queue.dead_letters, "compacted", before - size_of(queue.dead_letters))
        if has_quarantine:
            yield from _empty_quarantine(queue)
    except OSError as error:
        raise unreadable(queue.path, error) from error
    finally:
        if lock is not None:
            os.close(lock)


def _compact_log(log: LogFiles) -> Iterator[Freed]:
    disk = FileSystem()
    for name in _STRAYS:
        path = f"{log.path}/{name}"
        if os.path.exists(path):
            size = size_of(path)
            disk.unlink(path)
            yield Freed(path, "removed", size)
    scan = LogScan(log.path, is_in_use=lambda: False)
    if position_findings(log, scan):
        yield Freed(log.path, "left: its position cannot be read; repair it first", 0, is_left=True)
        return
    position = scan.first_waiting
    is_durable = False
    for number, segment in enumerate(scan.segments):
        following = scan.segments[number + 1] if number + 1 < len(scan.segments) else None
        path = f"{log.path}/{segment.name}"
        extent: Extent | None = None
        if following is None or following.begins_life:
            extent = _extent(log.path, segment, following)
        if _is_settled(following, extent, position):
            if not is_durable:
                _make_durable(disk, log.path, position)
                is_durable = True
            size = size_of(path)
            disk.unlink(path)
            yield Freed(path, "removed: all of it is settled", size)
        elif extent is not None:
            yield from _cut(disk, path, extent.size)
        elif following is None or following.begins_life:
            yield Freed(
                path, "left: it is damaged, or ends with a torn batch, which a repair cuts", 0, is_left=True
            )
    disk.sync_directory(log.path)


def _is_settled(following: Segment | None, extent: Extent | None, position: int) -> bool:
    """Return whether no record of a segment waits, and its name is not needed to find unused offsets."""
    if following is not None and following.base_offset <= position:
        return True
    # At position 0 an empty segment goes not: a power cut may have taken records from it that were forwarded, and
    # only its name tells the next life that their offsets were used.
    return extent is not None and position > 0 and extent.end_offset <= position


def _extent(directory: str, segment: Segment, following: Segment | None) -> Extent | None:
    """Return how far a life's last segment goes; None if any of it is damaged."""
    disk = ReadOnlyDisk()
    reader = LogReader(disk, directory, segment.base_offset, Quarantine(disk, directory))
    limit = None if following is None else following.base_offset
    size, end = 0, segment.base_offset
    try:
        while batches := reader.read([segment], READ_BYTES):
            for batch in batches:
                if limit is not None and batch.head.base_offset >= limit:
                    return None
                size += batch.head.size + HEAD_SIZE * len(holes(end, batch.head.base_offset))
                end = batch.head.end_offset
    finally:
        reader.close()
    return None if reader.damages else Extent(size, end)


def _make_durable(disk: FileSystem, directory: str, offset: int) -> None:
    """Make a position durable: what an earlier process wrote may be seen, and be in no disk."""
    position = Position(disk, directory)
    try:
        position.move(offset, is_settled=position.is_settled)
    finally:
        position.close()


def _cut(disk: FileSystem, path: str, size: int) -> Iterator[Freed]:
    file = disk.open(path)
    try:
        reserved = file.size - size
        if reserved > 0:
            file.truncate(size)
            file.sync()
    finally:
        file.close()
    yield from _freed(path, "cut behind its last record", reserved)


def _freed(path: str, what: str, size: int) -> Iterator[Freed]:
    if size > 0:
        yield Freed(path, what, size)


def _empty_quarantine(queue: QueueFiles) -> Iterator[Freed]:
    try:
        names = sorted(os.listdir(queue.quarantine))
    except FileNotFoundError:
        return
    for name in names:
        path = f"{queue.quarantine}/{name}"
        size = size_of(path)
        os.unlink(path)
        yield Freed(path, "removed", size)
