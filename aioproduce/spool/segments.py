"""Segments of a topic's log: their names, and which offsets a life of the log uses.

1. A segment's name is the offset of its first record, in 20 digits, as Kafka names its own.
2. A life is the time from opening a log to its end. Its first segment begins at a multiple of `LIFE_STEP`, and no
   other segment does. So an offset is never used twice: not even those of records that were forwarded from the
   page cache, and that a power cut then took from the disk.
3. Nothing is written to a segment of an earlier life.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from aioproduce.spool.disk import Disk

LIFE_STEP: Final = 10**9
"""More records than a power cut can take from the page cache."""

SUFFIX: Final = ".log"
_NAME: Final = re.compile(r"(\d{20})\.log")


class Extent(NamedTuple):
    """How far a segment goes.

    Attributes:
        size: The bytes of its batches.
        end_offset: The offset behind its last record.
    """

    size: int
    end_offset: int


@final
@dataclass(slots=True)
class Segment:
    """A file of batches.

    Attributes:
        base_offset: The offset of its first record.
        extent: How far it goes; None in an earlier life's segment, whose end nobody has looked for. The writer
            replaces it as a whole, because a reader in another thread looks at it.
    """

    base_offset: int
    extent: Extent | None = None

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.base_offset:020}{SUFFIX}"

    @property
    def begins_life(self) -> bool:
        """Whether it is the first of a life: there may be offsets before it that nobody used."""
        return self.base_offset % LIFE_STEP == 0


def find_segments(disk: Disk, directory: str) -> list[Segment]:
    """Return the segments in a directory, in the order of their offsets."""
    matches = (_NAME.fullmatch(name) for name in disk.names(directory))
    return [Segment(int(match[1])) for match in matches if match]


def next_life(after: int) -> int:
    """Return the first offset of a life that begins when offsets up to `after` may have been used."""
    return (after // LIFE_STEP + 2) * LIFE_STEP
