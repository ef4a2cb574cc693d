"""Read one topic's log from an offset on, batch by batch, past damage.

The forwarder and the tools use it. It may run in another thread than the log's writer: it reads a segment only
up to the size that the writer has announced.

Invariants:

1. A batch is returned whole, with the right checksum, once, and after all batches with lower offsets. Holes are
   passed over.
2. Damage ends nothing: the bytes up to the next batch are copied to the quarantine, and reading goes on behind
   them.
3. The end of an earlier life's last segment is a torn tail: a batch may have been half written when that life
   ended. If the log was closed, the file ends there, and it is damage; `verifying` tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.spool.batch_head import (
    HEAD_SIZE,
    BatchHead,
    find_batch,
    is_begun,
    is_reserved,
    is_whole,
    read_head,
)
from aioproduce.spool.quarantine import Damage, Quarantine

if TYPE_CHECKING:
    from aioproduce.spool.disk import Buffer, Disk, File
    from aioproduce.spool.segments import Extent, Segment

_NO_LIMIT: Final = 2**63
# The most batches that are returned at once in the loop's thread: each takes it some 6 us.
_MOST_CACHED: Final = 64


class Batch(NamedTuple):
    """A batch of the log.

    Attributes:
        head: Its head.
        content: Its bytes.
    """

    head: BatchHead
    content: memoryview


@final
class LogReader:
    """Reads a log from an offset on.

    Args:
        disk: The disk.
        directory: The log's directory.
        offset: The first offset that is wanted. A batch that begins earlier and contains it is returned whole.
        quarantine: Where damaged bytes go.

    Attributes:
        offset: The offset behind the last returned batch: the next wanted one.
        damages: What was found damaged since the last look; the caller takes it.
    """

    __slots__ = (
        "_at",
        "_directory",
        "_disk",
        "_expected",
        "_file",
        "_quarantine",
        "_segment",
        "damages",
        "offset",
    )

    def __init__(self, disk: Disk, directory: str, offset: int, quarantine: Quarantine) -> None:
        self._disk = disk
        self._directory = directory
        self._quarantine = quarantine
        self._segment: Segment | None = None
        self._file: File | None = None
        self._at = 0
        self._expected = 0
        self.offset: int = offset
        self.damages: list[Damage] = []

    def read(self, segments: Sequence[Segment], most: int) -> list[Batch]:
        """Return the next batches; none at the end of the log.

        Args:
            segments: The log's segments now, in order. One is removed when its records are settled, or dropped.
            most: Bytes to read at once. One batch is returned whole, however large it is.

        Raises:
            OSError: if the log cannot be read. The next call tries again.
        """
        if segments:
            self._look_for_start(segments[0])
        for segment, following in self._from_offset_on(segments):
            self._enter(segment)
            if batches := self._read(segment, following, most):
                self.offset = batches[-1].head.end_offset
                return batches
            if following is None:
                break
            self._leave(segment, following)
        return []

    def read_cached(self, segments: Sequence[Segment], most: int) -> list[Batch]:
        """Return the next batches if they are in memory; none if `read()` has to look: it waits for no disk.

        Args:
            segments: The log's segments now, in order.
            most: Bytes to read at once.
        """
        for segment, following in self._from_offset_on(segments):
            if segment is not self._segment or self._file is None:
                break
            bound = self._size(segment.extent)
            limit = _NO_LIMIT if following is None else following.base_offset
            batches = self._whole_batches(self._file.read_cached, most, bound, limit)
            found = list(islice(batches, _MOST_CACHED))
            if wanted := self._wanted(found):
                self.offset = wanted[-1].head.end_offset
            return wanted
        return []

    def pass_over(self, offset: int) -> None:
        """Pass over what is before this offset, without looking for it: it was dropped."""
        self.offset = max(self.offset, offset)

    def bytes_behind(self, sizes: Mapping[int, int]) -> int:
        """Return how many bytes of some segments are behind the place where reading stands.

        Args:
            sizes: Bytes of segments, by base offset.
        """
        if self._segment is None:
            return sum(size for base, size in sizes.items() if base >= self.offset)
        base = self._segment.base_offset
        return sum(size for other, size in sizes.items() if other > base) + max(
            sizes.get(base, 0) - self._at, 0
        )

    def begin_at(self, offset: int) -> None:
        """Read from this offset on, which may have been read before."""
        self.close()
        self.offset = offset

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._segment = None

    def _from_offset_on(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, Segment | None]]:
        """Yield the segments that may have the wanted offset, which moves meanwhile, each with the next one."""
        for segment, following in zip_longest(segments, segments[1:]):
            if following is None or following.base_offset > self.offset:
                yield segment, following

    # -- one segment ---

    def _look_for_start(self, first: Segment) -> None:
        """Account for records that are in no segment: somebody removed a file."""
        if self.offset >= first.base_offset:
            return
        if not first.begins_life:
            damage = Damage(self._directory, first.name, 0, 0, self.offset, first.base_offset, is_tail=False)
            self._quarantine.keep(damage, b"")
            self.damages.append(damage)
        self.offset = first.base_offset

    def _enter(self, segment: Segment) -> None:
        if segment is self._segment:
            return
        self.close()
        self._file = self._disk.open(f"{self._directory}/{segment.name}")
        self._segment = segment
        self._at = 0
        self._expected = segment.base_offset

    def _leave(self, segment: Segment, following: Segment) -> None:
        """Account for records that are missing at a segment's end."""
        if not following.begins_life:
            self._damaged(
                segment, self._at, self._size(segment.extent), self._expected, following.base_offset
            )
        self.offset = max(self.offset, following.base_offset)

    def _size(self, extent: Extent | None) -> int:
        assert self._file is not None
        return self._file.size if extent is None else extent.size

    def _read(self, segment: Segment, following: Segment | None, most: int) -> list[Batch]:
        """Return wanted batches of a segment from where reading stands; none at its end."""
        extent = segment.extent
        bound = self._size(extent)
        limit = _NO_LIMIT if following is None else following.base_offset
        assert self._file is not None
        is_last = following is None or following.begins_life
        while self._at < bound and self._expected < limit:
            found = list(self._whole_batches(self._file.read, most, bound, limit))
            if not found:
                if not self._skip(segment, extent, limit, is_last=is_last):
                    break
            elif wanted := self._wanted(found):
                return wanted
        return []

    def _wanted(self, batches: list[Batch]) -> list[Batch]:
        return [batch for batch in batches if batch.head.end_offset > self.offset and batch.head.record_count]

    def _whole_batches(
        self, read: Callable[[int, int], Buffer], most: int, bound: int, limit: int
    ) -> Iterator[Batch]:
        """Yield batches in one piece of the file, and stand behind the last that was taken."""
        view = memoryview(read(self._at, min(max(most, HEAD_SIZE), bound - self._at)))
        head = read_head(view)
        if head is not None and len(view) < head.size <= bound - self._at:
            view = memoryview(read(self._at, head.size))
        at = 0
        while self._expected < limit and (head := self._batch_at(view, at)) is not None:
            batch = Batch(head, view[at : at + head.size])
            at += head.size
            self._at += head.size
            self._expected = head.end_offset
            yield batch  # the caller may take no more

    def _batch_at(self, view: memoryview, at: int) -> BatchHead | None:
        head = read_head(view, at)
        if (
            head is None
            or head.base_offset != self._expected
            or not is_whole(view[at : at + head.size], head)
        ):
            return None
        return head

    # -- damage ---

    def _skip(self, segment: Segment, extent: Extent | None, limit: int, *, is_last: bool) -> bool:
        """Go on behind something that is not the next batch; return whether there is another batch."""
        assert self._file is not None
        bound = self._size(extent)
        rest = self._file.read(self._at, bound - self._at)
        found = find_batch(memoryview(rest), self._expected, limit)
        if found is not None:
            place, head = found
            self._damaged(segment, self._at, self._at + place, self._expected, head.base_offset)
            self._at += place
            self._expected = head.base_offset
            return True
        if extent is not None:
            self._damaged(segment, self._at, bound, self._expected, extent.end_offset)
            self._expected = extent.end_offset
        elif is_last:
            begun = read_head(rest)
            if begun is not None and begun.base_offset == self._expected:
                self._damaged(segment, self._at, bound, self._expected, begun.end_offset, is_tail=True)
            elif is_begun(rest, self._expected) or not is_reserved(rest, self._expected):
                self._damaged(segment, self._at, bound, self._expected, self._expected + 1, is_tail=True)
        else:
            return False  # the next segment's first offset tells what is missing
        self._at = bound
        return False

    def _damaged(
        self,
        segment: Segment,
        start: int,
        end: int,
        first_offset: int,
        next_offset: int,
        *,
        is_tail: bool = False,
    ) -> None:
        """Keep damaged bytes, unless all their records are settled."""
        assert self._file is not None
        first_offset = max(first_offset, self.offset)
        if first_offset >= next_offset:
            return
        damage = Damage(self._directory, segment.name, start, end, first_offset, next_offset, is_tail)
        self._quarantine.keep(damage, self._file.read(start, end - start))
        self.damages.append(damage)
