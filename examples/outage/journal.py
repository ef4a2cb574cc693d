"""Which `send()`s of the service returned, told by the service itself: the audit believes nothing else.

`service` writes one, `story` counts its lines while it grows, and `audit` reads it.

1. A line is written after `send()` has returned, by one write to the operating system: a killed process has told of
   each record that it believed to be on disk, but for the last ones, whose lines a kill came before.
2. Lines have one size. So a file's size tells how many there are, and a torn last line is left out.
3. Each life of the service has a file of its own; records have the numbers of their life and of their place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self, final

_LINE: Final = b"%10d %7d %17.6f %10.6f\n"
_SIZE: Final = len(_LINE % (0, 0, 0.0, 0.0))
_COUNT: Final = slice(11, 18)
_NAME: Final = re.compile(r"life-(\d+)\.journal")


class Returned(NamedTuple):
    """One call that returned.

    Attributes:
        first: The number of its first record.
        records: How many it has.
        at: When it returned, in seconds since the epoch.
        took: Seconds from the call to its return.
    """

    first: int
    records: int
    at: float
    took: float


@final
@dataclass(frozen=True, slots=True)
class Journals:
    """The journals of all lives, in one folder."""

    folder: Path

    def lives(self) -> list[int]:
        """Return the numbers of the lives that have begun a journal, in order."""
        matches = (_NAME.fullmatch(file.name) for file in self.folder.glob("*.journal"))
        return sorted(int(match[1]) for match in matches if match)

    def file_of(self, life: int) -> Path:
        """Return the file of a life."""
        return self.folder / f"life-{life}.journal"

    def calls(self) -> int:
        """Return how many calls of all lives have returned so far."""
        return sum(map(self.calls_of, self.lives()))

    def calls_of(self, life: int) -> int:
        """Return how many calls of a life have returned so far."""
        return self.file_of(life).stat().st_size // _SIZE

    def read(self, life: int) -> Iterator[Returned]:
        """Read what returned in a life, in that order."""
        content = self.file_of(life).read_bytes()
        for start in range(0, len(content) - _SIZE + 1, _SIZE):
            first, count, at, took = content[start : start + _SIZE].split()
            yield Returned(int(first), int(count), float(at), float(took))

    def records(self) -> int:
        """Return how many records all lives have put on disk for sure."""
        return sum(
            int(content[start + _COUNT.start : start + _COUNT.stop])
            for life in self.lives()
            for content in (self.file_of(life).read_bytes(),)
            for start in range(0, len(content) - _SIZE + 1, _SIZE)
        )


@final
class Journal:
    """The journal that a life writes.

    Args:
        file: A file that does not exist yet.
    """

    def __init__(self, file: Path) -> None:
        self._file = open(file, "xb", buffering=0)  # noqa: SIM115  closed by the context

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def returned(self, first: int, count: int, at: float, took: float) -> None:
        """Tell that a call has returned."""
        self._file.write(_LINE % (first, count, at, took))
