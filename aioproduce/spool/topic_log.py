"""One topic's log on disk: append batches, make them durable, drop what is settled.

`writer` calls it, in its thread; `log_reader` reads what it wrote. A log is a directory as Kafka has it
(`orders-0/00000000000000000000.log`), so Kafka's tools read it.

Invariants:

1. An append gets offsets that were never used, and its bytes go behind everything that was appended before. What it
   passes over becomes a hole.
2. What `sync()` has returned for is durable: the segment's content, its name, and the name of its directory.
3. After an error of an append nothing of it is in the log. If that cannot be ensured, the segment is given up.
4. After an error of a sync the segment is given up: its batches that are not durable are written to another one,
   from memory, or from the file if their checksum is right. A sync is never tried again for the same file.
5. A segment is removed after the position behind it is durable, never before. That holds for one that is dropped,
   too.
6. A segment ends where the next one begins: offsets behind that are those of a segment that was given up.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce.spool.batch_head import (
    HEAD_SIZE,
    PREFIX_SIZE,
    holes,
    is_begun,
    is_reserved,
    is_whole,
    prefix,
    read_head,
    read_sealed,
)
from aioproduce.spool.position import Position
from aioproduce.spool.segments import LIFE_STEP, Extent, Segment, find_segments, next_life

if TYPE_CHECKING:
    from aioproduce.spool.disk import Buffer, Disk, File

_RECYCLED: Final = "recycled"
_RESCUED: Final = "rescued"
_STRAYS: Final = (_RECYCLED, _RESCUED)
_LEAST_ROOM: Final = 64 * 1024


class PossiblyStoredError(OSError):
    """An append failed, and what it wrote could not be taken back: it may be found after a restart."""


class BatchesLostError(PossiblyStoredError):
    """A disk failed, and batches that were in the log are neither in memory nor readable any more.

    If an append raises it, these are batches of earlier appends; its own may be found after a restart.
    """


@final
class TopicLog:
    """The log of one topic. Opening it writes nothing and reads only names and the position.

    Args:
        disk: The disk.
        directory: The log's directory; its parent exists.
        segment_bytes: A segment's most bytes. A larger batch gets a segment of its own.
        keeps: Whether the caller keeps appended bytes unchanged until the next `sync()`, so that they can be
            written again after an error. Otherwise they are read back then.

    Attributes:
        segments: The segments that are not removed yet, in the order of their offsets.
        life_begins_at: The first offset of this life; see `segments`.
        next_offset: The offset of the next record.
        position: The durable position.
        dropped_to: The offset behind the last record that was dropped; readers pass over what is before it.
        has_settled: Whether records were settled, in this life or an earlier one: more was done than to drop them.
        stored_bytes: The bytes of all segments' batches; an earlier life's last segment counts as large as its
            file.
    """

    __slots__ = (
        "_active",
        "_directory",
        "_disk",
        "_file",
        "_has_spare",
        "_has_synced_earlier",
        "_is_new",
        "_keeps",
        "_kept",
        "_position",
        "_room",
        "_segment_bytes",
        "_sizes",
        "_synced_offset",
        "_synced_size",
        "dropped_to",
        "has_settled",
        "life_begins_at",
        "next_offset",
        "rescues",
        "segments",
        "stored_bytes",
    )

    def __init__(self, disk: Disk, directory: str, segment_bytes: int, *, keeps: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._keeps = keeps
        disk.make_directory(directory)
        self._is_new = True  # an earlier process may have made the directory and synced nothing
        self._position = Position(disk, directory)
        self.segments: deque[Segment] = deque(find_segments(disk, directory))
        self.has_settled: bool = self._position.is_settled
        if self._position.offset is None:
            self._position.offset = self.segments[0].base_offset if self.segments else 0
        self._sizes = {each.base_offset: disk.size(f"{directory}/{each.name}") for each in self.segments}
        self.stored_bytes: int = sum(self._sizes.values())
        self.life_begins_at: int = self._first_offset()
        self.next_offset: int = self.life_begins_at
        self.dropped_to: int = 0
        self.rescues: int = 0  # times two; odd while batches move to another segment
        self._file: File | None = None
        self._active = Segment(self.next_offset, Extent(0, self.next_offset))
        self._room = 0
        self._synced_size = 0
        self._synced_offset = self.next_offset
        self._kept: list[Buffer] = []
        self._has_spare = False
        self._has_synced_earlier = False
        for name in _STRAYS:
            with suppress(FileNotFoundError):
                disk.unlink(f"{directory}/{name}")

    def begin_life_at(self, offset: int) -> None:
        """Append from this offset on, which is not before `life_begins_at`; nothing was appended yet."""
        self.life_begins_at = self.next_offset = self._synced_offset = offset
        self._active = Segment(offset, Extent(0, offset))

    def _first_offset(self) -> int:
        last = self.segments[-1].base_offset if self.segments else -1
        return 0 if last < 0 and self.position == 0 else next_life(max(last, self.position))

    @property
    def position(self) -> int:
        """The durable position: every record before it is settled."""
        assert self._position.offset is not None
        return self._position.offset

    @property
    def unsynced_bytes(self) -> int:
        """The bytes that are not durable yet."""
        return 0 if self._file is None else self._end - self._synced_size

    def snapshot(self) -> list[Segment]:
        """Return the segments, in any thread."""
        while True:
            try:
                return list(self.segments)
            except RuntimeError:  # the writer changed them meanwhile
                continue

    def earlier_sizes(self) -> dict[int, int]:
        """Return the bytes of the files of earlier lives, by base offset, that are not removed yet."""
        return dict(self._sizes)

    # -- append ---

    def append(self, batches: Sequence[Sequence[Buffer]], at_least: Sequence[int] = ()) -> int:
        """Write as many of these batches as fit into one segment; return their number, at least one.

        They get the offsets from `next_offset` on.

        Args:
            batches: Sealed batches of our own, each in pieces, of which the first has the whole head.
            at_least: The least offset of each; without it they are consecutive.

        Raises:
            OSError: if they could not be written. Nothing of them is in the log.
            PossiblyStoredError: the same, but they may be in the log after a restart.
            BatchesLostError: as in `sync()`.
        """
        if at_least and self._is_far(at_least[0]):
            self._pass_to(at_least[0])
        if self._file is None or self._end + sum(map(len, batches[0])) > self._segment_bytes:
            self._roll()
        at = self._end
        pieces: list[Buffer] = []
        offset = self.next_offset
        count = 0
        for first, *others in batches:
            size, record_count, crc = read_sealed(first)
            if count and (at + size > self._segment_bytes or (at_least and self._is_far(at_least[count]))):
                break
            if at_least and offset < at_least[count]:
                passed = holes(offset, at_least[count])
                pieces += passed
                at += HEAD_SIZE * len(passed)
                offset = at_least[count]
            pieces += (prefix(offset, size, crc), memoryview(first)[PREFIX_SIZE:], *others)
            at += size
            offset += record_count
            count += 1
        self._write(pieces, at)
        if self._keeps:
            self._kept += pieces
        self.stored_bytes += at - self._end
        self._active.extent = Extent(at, offset)
        self.next_offset = offset
        return count

    def _is_far(self, offset: int) -> bool:
        """Return whether an offset is too far from the segment's name, which tells a next life where to begin."""
        return offset >= self._active.base_offset + LIFE_STEP // 2

    def _pass_to(self, offset: int) -> None:
        """End the active segment with a hole, so that the next one begins at this offset."""
        if self._file is None:
            self._roll()
        passed = holes(self.next_offset, offset)
        end = self._end + HEAD_SIZE * len(passed)
        self._write([*passed], end)
        if self._keeps:
            self._kept += passed
        self.stored_bytes += end - self._end
        self._active.extent = Extent(end, offset)
        self.next_offset = offset
        self._seal()

    @property
    def _end(self) -> int:
        assert self._active.extent is not None
        return self._active.extent.size

    def _write(self, pieces: list[Buffer], end: int) -> None:
        file = self._file
        assert file is not None
        try:
            if end > self._room:
                self._room = max(end, min(2 * self._room + _LEAST_ROOM, self._segment_bytes))
                file.allocate(self._room)
            if 0 < self._room - end < HEAD_SIZE:  # part of the hole that a file has which is used again
                pieces = [*pieces, bytes(self._room - end)]
            file.write(self._end, pieces)
        except OSError as error:
            self._undo(file, error)
            raise

    def _undo(self, file: File, error: OSError) -> None:
        """Take what a failed append has written from the segment; give the segment up if that fails, too.

        Without the sync a power cut could bring it back, and offsets would be used twice.
        """
        try:
            file.truncate(self._end)
            file.sync()
        except OSError:
            try:
                self._give_up()
            except BatchesLostError:
                raise
            except OSError as failure:
                raise PossiblyStoredError(failure.errno, failure.strerror) from failure
            raise PossiblyStoredError(error.errno, error.strerror) from error
        self._room = self._end
        self._is_durable()

    # -- sync ---

    def sync(self) -> None:
        """Make everything durable that was appended.

        Raises:
            OSError: if that failed, also with another segment. What was appended before may be durable or not,
                and no later `sync()` tells.
            BatchesLostError: if batches that were in the log are in it no more.
        """
        if self._file is None and self._synced_offset < self.next_offset:
            # An append has given the segment up, and rescued nothing.
            self._synced_offset = self.next_offset
            raise PossiblyStoredError(errno.EIO, "a segment was given up before all of it was durable")
        if self._file is None or not self.unsynced_bytes:
            return
        try:
            self._file.sync()
        except OSError:
            self._give_up()
        else:
            self._is_durable()

    def _is_durable(self) -> None:
        self._synced_size = self._end
        self._synced_offset = self.next_offset
        self._kept.clear()

    def _give_up(self) -> None:
        """Go on in another segment, which begins with the batches that are not durable here."""
        file, self._file = self._file, None
        assert file is not None
        try:
            if self._end > self._synced_size:
                self._rescue(file)
        finally:
            self._kept.clear()
            file.close()

    def _rescue(self, file: File) -> None:
        size = self._end - self._synced_size
        pieces = self._kept or [self._read_back(file, size)]
        rescued = Segment(self._synced_offset, Extent(size, self.next_offset))
        path = f"{self._directory}/{_RESCUED}"
        new = self._disk.create(path)
        try:
            new.write(0, pieces)
            new.sync()
            self._disk.rename(path, f"{self._directory}/{rescued.name}")
            self._sync_names()
        except OSError:
            new.close()
            raise
        self.rescues += 1
        self._active.extent = Extent(self._synced_size, self._synced_offset)
        if not self._synced_size:
            self.segments.pop()  # its name is the new one's now
        self.segments.append(rescued)
        self.rescues += 1
        self._active = rescued
        self._file = new
        self._room = size
        self._is_durable()

    def _read_back(self, file: File, size: int) -> bytes:
        """Read from a file whose sync failed: the page cache may have what the disk has not."""
        content = file.read(self._synced_size, size)
        view = memoryview(content)
        at, offset = 0, self._synced_offset
        while at < size:
            head = read_head(view, at)
            if head is None or head.base_offset != offset or not is_whole(view[at : at + head.size], head):
                raise BatchesLostError(
                    f"{self.next_offset - offset} records from offset {offset} on in {self._directory} are lost: "
                    "the disk failed to make them durable, and they cannot be read back; look at the kernel's log, "
                    "and replace the disk"
                )
            at += head.size
            offset = head.end_offset
        return content

    # -- segments ---

    def _roll(self) -> None:
        """Seal the active segment, and begin another one."""
        if self._is_new:
            self._sync_earlier()
        self._seal()
        base = self.next_offset
        segment = Segment(base, Extent(0, base))
        path = f"{self._directory}/{segment.name}"
        if self._has_spare:
            self._disk.rename(f"{self._directory}/{_RECYCLED}", path)
            self._has_spare = False
            file = self._disk.open(path)
        else:
            file = self._disk.create(path)
        try:
            self._sync_names()
        except OSError:
            file.close()
            raise
        if self.segments and self.segments[-1].base_offset == base:
            self.segments.pop()  # it was given up with nothing in it, and has been replaced
        self.segments.append(segment)
        self._active = segment
        self._file = file
        self._room = file.size
        self._is_durable()

    def _sync_earlier(self) -> None:
        """Make durable what an earlier process appended last, before anything behind it is.

        After an error it is left as it is: another sync would prove nothing, and its bytes are checked when they
        are read.
        """
        if self.segments and not self._has_synced_earlier:
            self._has_synced_earlier = True
            file = self._disk.open(f"{self._directory}/{self.segments[-1].name}")
            try:
                file.sync()
            finally:
                file.close()

    def _sync_names(self) -> None:
        self._disk.sync_directory(self._directory)
        if self._is_new:
            self._disk.sync_directory(self._directory.rpartition("/")[0] or "/")
            self._is_new = False

    def _seal(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            file.truncate(self._end)
            file.sync()
        except OSError:
            self._give_up()
            if (
                self._file is not None
            ):  # the rescued segment: it is sealed already, its size is that of its batches
                self._file.close()
                self._file = None
            return
        self._is_durable()
        file.close()
        self._file = None

    # -- settle ---

    def settle(self, position: int, *, is_settled: bool = True) -> None:
        """Make a position durable, then drop the segments before it.

        Args:
            position: The position.
            is_settled: Whether any record before it was settled, now or before.

        Raises:
            OSError: if the position could not be made durable, and nothing is dropped; or if a segment could not be
                removed, which the next opening tries again.
        """
        self._move(max(position, self.dropped_to), is_settled=is_settled)
        self.remove_settled()

    def _move(self, position: int, *, is_settled: bool) -> None:
        if position != self.position or not self._position.is_durable or is_settled > self.has_settled:
            self._position.move(position, is_settled=is_settled or self.has_settled)
            self.has_settled = self._position.is_settled

    def drop_active(self) -> None:
        """Drop the active segment, too, if all of it is settled: the queue is full, and needs every byte.

        Raises:
            OSError: as in `settle()`.
        """
        if self.next_offset <= self.position:
            self._seal()
            self.remove_settled()

    # -- drop ---

    def oldest_written_at(self) -> float:
        """Return when the oldest segment was last written, in seconds since the epoch; never, if there is none.

        One whose file somebody has removed is the oldest of all: nothing is left of it that could be kept.

        Raises:
            OSError: if the file system cannot tell.
        """
        if not self.stored_bytes:
            return inf
        try:
            return self._disk.written_at(f"{self._directory}/{self.segments[0].name}")
        except FileNotFoundError:
            return -inf

    @property
    def oldest_ends_at(self) -> float:
        """The offset behind the oldest segment, if there is one."""
        return self._ends_at(0)

    def seal(self) -> None:
        """End the active segment: the next append begins another one.

        Raises:
            OSError: as in `sync()`.
        """
        self._seal()

    def drop_oldest(self) -> tuple[int, int, int]:
        """Settle the oldest segment, although its records were not sent; `remove_settled()` removes it.

        Returns:
            The first offset that was dropped, the offset behind the last, and the number of records.

        Raises:
            OSError: if the position could not be made durable, and nothing is dropped.
        """
        if len(self.segments) == 1:
            self._seal()
        segment = self.segments[0]
        first = max(segment.base_offset, self.position)
        end = max(int(self._ends_at(0)), first)
        count = self._records_of(segment, first, end)
        self._move(max(end, self.dropped_to), is_settled=False)
        self.dropped_to = max(end, self.dropped_to)  # behind the move: nobody passes over what is not dropped
        return first, end, count

    def _records_of(self, segment: Segment, first: int, end: int) -> int:
        """Count a segment's records between two offsets: it has holes, and may end before the next begins."""
        count = at = 0
        reached = segment.base_offset
        following = self.segments[1] if len(self.segments) > 1 else None
        is_known = segment.extent is not None or not (following is None or following.begins_life)
        try:
            file = self._disk.open(f"{self._directory}/{segment.name}")
            try:
                while (head := read_head(file.read(at, HEAD_SIZE))) is not None:
                    if head.base_offset != reached or reached >= end:
                        break
                    count += (
                        max(head.end_offset - max(head.base_offset, first), 0) if head.record_count else 0
                    )
                    at += head.size
                    reached = head.end_offset
                if not is_known:
                    rest = file.read(at, file.size - at)
                    # Something is damaged, and nobody can tell how many records.
                    count += is_begun(rest, reached) or not is_reserved(rest, reached)
            finally:
                file.close()
        except OSError:  # a disk that cannot be read must not keep the oldest records for ever
            if not is_known:
                return max(count, 1)
        if is_known:  # what is damaged is counted by its offsets
            count += max(end - max(reached, first), 0)
        return count

    def remove_settled(self) -> None:
        """Remove the segments before the position.

        Raises:
            OSError: if one could not be removed, which the next opening tries again.
        """
        while self.segments and self._ends_at(0) <= self.position:
            segment = self.segments.popleft()
            path = f"{self._directory}/{segment.name}"
            size = self._sizes.pop(segment.base_offset, 0) if segment.extent is None else segment.extent.size
            self.stored_bytes -= size
            is_read = segment.base_offset < self.dropped_to  # a reader of it may not have passed it
            is_large = segment.extent is not None and size >= self._segment_bytes // 2
            if self._has_spare or is_read or not is_large or not self._can_be_used_again(path, segment):
                self._disk.unlink(path)
            else:
                self._disk.rename(path, f"{self._directory}/{_RECYCLED}")
                self._has_spare = True

    def _can_be_used_again(self, path: str, segment: Segment) -> bool:
        """Put a hole behind a file's last batch: what is left of the file's first use is known by it."""
        assert segment.extent is not None
        try:
            file = self._disk.open(path)
            try:
                if file.size > segment.extent.size:  # it was given up before it was sealed
                    file.truncate(segment.extent.size)
                file.write(segment.extent.size, holes(segment.base_offset, segment.base_offset + 1))
            finally:
                file.close()
        except OSError:  # a full disk: removing the file is what helps
            return False
        return True

    def _ends_at(self, number: int) -> float:
        """Return the offset behind a segment's last record; never, for the one that is written."""
        if number + 1 < len(self.segments):
            return self.segments[number + 1].base_offset
        segment = self.segments[number]
        if segment.extent is None:
            return self.life_begins_at
        return inf if segment is self._active and self._file is not None else segment.extent.end_offset

    def close(self) -> None:
        """Seal the log, so that its last segment ends with its last batch.

        Raises:
            OSError: as in `sync()`.
        """
        try:
            self._seal()
        finally:
            self._position.close()
