"""Read a log for a tool: nothing is written, and a producer may write the log meanwhile.

It is the forwarder's `LogReader` on a disk that is only read. So a tool finds damaged what a forwarder would.

Invariants:

1. A segment that vanishes is no damage: the position is behind it. Reading goes on there.
2. Damage is reported only if a second look finds it, too: the first one may have met a batch that was being
   written, or a file that was used again. A file is given another name before anything is written to it for its new
   use, so a second look under the same name proves it.
3. A batch that is being written at the end of a log in use is not damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from aioproduce.spool.log_reader import LogReader
from aioproduce.spool.position import Position
from aioproduce.spool.quarantine import Quarantine
from aioproduce.spool.read_only_disk import ReadOnlyDisk
from aioproduce.spool.segments import find_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioproduce.spool.log_reader import Batch
    from aioproduce.spool.quarantine import Damage
    from aioproduce.spool.segments import Segment

READ_BYTES: Final = 256 * 1024
_Place: TypeAlias = tuple[str, int, int]


@final
class LogScan:
    """Reads a log once, from an offset or from its first byte to its end.

    Args:
        directory: The log's directory.
        offset: The first offset that is wanted; by default everything that is there.
        is_in_use: Returns whether a producer may be writing it. It is called after the segments were listed: a
            producer that starts later writes to none of them.

    Attributes:
        segments: The segments when the scan began.
        position: The position then; None if there was none.

    Raises:
        OSError: if the log cannot be read.
    """

    __slots__ = ("_directory", "_disk", "_found", "_is_in_use", "_start", "position", "segments")

    def __init__(self, directory: str, *, offset: int | None = None, is_in_use: Callable[[], bool]) -> None:
        self._disk = ReadOnlyDisk()
        self._directory = directory
        self.segments: list[Segment] = find_segments(self._disk, directory)
        self._is_in_use = is_in_use()
        # After the names: the segments before the first of them were removed when the position was behind them.
        self.position: int | None = self._read_position()
        first = self.segments[0].base_offset if self.segments else 0
        if offset is None:
            offset = first if self.position is None else min(first, self.position)
        self._start = offset
        self._found: list[Damage] = []

    def _read_position(self) -> int | None:
        return Position(self._disk, self._directory).offset

    @property
    def first_waiting(self) -> int:
        """The first offset that the next forwarder sends."""
        if self.position is not None:
            return self.position
        return self.segments[0].base_offset if self.segments else 0

    def batches(self) -> Iterator[Batch]:
        """Yield every whole batch, in order.

        Raises:
            OSError: if a file cannot be read.
        """
        reader = self._reader(self._start)
        segments = self.segments
        try:
            while True:
                try:
                    batches = reader.read(segments, READ_BYTES)
                except FileNotFoundError:
                    segments = find_segments(self._disk, self._directory)
                    reader.begin_at(max(reader.offset, self._read_position() or 0))
                    continue
                self._found += reader.damages
                reader.damages.clear()
                if not batches:
                    break
                yield from batches
        finally:
            reader.close()

    def damages(self) -> list[Damage]:
        """Return what is damaged, as far as batches were read; this reads the segments of each once more.

        Raises:
            OSError: if a file cannot be read.
        """
        return self._confirmed(self._found) if self._found else []

    def _reader(self, offset: int) -> LogReader:
        return LogReader(self._disk, self._directory, offset, Quarantine(self._disk, self._directory))

    def _confirmed(self, found: list[Damage]) -> list[Damage]:
        """Return the damages that a second look finds, too."""
        segments = find_segments(self._disk, self._directory)
        again: set[_Place] = set()
        for number, segment in enumerate(segments):
            suspects = [damage for damage in found if damage.segment == segment.name]
            if suspects:
                again |= self._look_again(segments[number : number + 2], suspects)
        return [damage for damage in found if _place_of(damage) in again]

    def _look_again(self, pair: Sequence[Segment], suspects: list[Damage]) -> set[_Place]:
        """Return what is damaged in the first of two segments, or in the last one of all."""
        segment = pair[0]
        is_written = self._is_in_use and len(pair) == 1
        reader = self._reader(segment.base_offset)
        try:
            while batches := reader.read(pair, READ_BYTES):
                if len(pair) > 1 and batches[0].head.base_offset >= pair[1].base_offset:
                    break
        except FileNotFoundError:  # it was settled meanwhile
            return set()
        finally:
            reader.close()
        # What is missing before a segment is missing still: no producer makes a file there.
        missing = {_place_of(each) for each in suspects if each.next_offset <= segment.base_offset}
        return missing | {_place_of(each) for each in reader.damages if not (each.is_tail and is_written)}


def _place_of(damage: Damage) -> _Place:
    """Return what two looks agree on: one that began in the middle of a damaged batch has another first offset."""
    return damage.segment, damage.start, damage.next_offset
