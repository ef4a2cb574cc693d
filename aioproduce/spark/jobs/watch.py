"""What the alert knows of one producer: which numbers came, which are missed, and when that is worth a word.

Called by `alert`, which keeps it in Spark's state store. Plain Python, no Spark and no clock: `now` is an
argument, in milliseconds.

1. Numbers come in any order within `grace_ms`, as partitions do; a gap is told only when it is that old.
2. Every number from the first that was seen is in one of: came, missed, told. A number that came and comes
   again is a duplicate; one that was told and comes is late, and is told as that.
3. The state is bounded: `MOST_RANGES` gaps that are waited for, and as many that were told. What is beyond
   is told at once, or forgotten (a number of it that comes then counts as a duplicate).
4. What is told once is not told again, unless the state was lost.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from aioproduce.spark.jobs.ranges import (
    NOTHING,
    Range,
    Ranges,
    count,
    difference,
    intersection,
    union,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_RANGES = 1000


class Kind(StrEnum):
    """What an alert is about."""

    GAP = "gap"
    """Numbers that did not come within the grace."""
    LATE = "late"
    """Numbers that were told as a gap, and came."""
    DUPLICATE = "duplicate"
    """Numbers that came again."""
    SILENT = "silent"
    """Nothing came for as long as a producer may be silent, and it has not said that it ends: the last number."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to tell.

    Attributes:
        kind: What it is about.
        first: The first number concerned.
        last: The last one; all between them are concerned.
    """

    kind: Kind
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait.

    Attributes:
        grace_ms: For a number that later ones have overtaken; above `delivery.timeout.ms`, within which a retry may
            still bring it.
        silence_ms: For a word of a producer that has not ended; then its state is dropped.
    """

    grace_ms: int = 150_000
    silence_ms: int = 3_600_000


@dataclass(slots=True)
class Watch:
    """The state of one producer.

    Attributes:
        base: Numbers below are from before the watch.
        top: One beyond the highest number that came, or that a mark told of.
        seen_at: When something came last.
        gaps: Numbers that are waited for: first, last, and since when.
        told: Numbers that were told as missing.
        is_closed: Whether the producer has said that it ends.
    """

    base: int
    top: int
    seen_at: int
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    told: Ranges = NOTHING
    is_closed: bool = False

    @classmethod
    def begin(cls, first: int, now: int) -> Self:
        """Begin to watch with this number as the first."""
        return cls(first, first, now)

    def take(self, came: Iterable[Range], now: int) -> list[Alert]:
        """Take ranges of numbers, one for each time that they came; in any order, they may overlap."""
        self.seen_at = now
        once, again = _parted(came)
        before = within(once, self.base, self.top)
        waited = union((first, last) for first, last, _ in self.gaps)
        alerts = [Alert(Kind.LATE, *found) for found in intersection(before, self.told)]
        repeated = difference(difference(before, waited), self.told)
        again = [part for found in again for part in within((found,), self.base, max(self.top, found[1] + 1))]
        alerts += [Alert(Kind.DUPLICATE, *found) for found in [*repeated, *again]]
        self.told = difference(self.told, before)
        self.gaps = [
            (first, last, since)
            for begin, end, since in self.gaps
            for first, last in difference(((begin, end),), before)
        ]
        highest = once[-1][1] + 1 if once else 0
        for first, last in within(once, self.top, max(highest, self.top)):
            self._reach(first, now)
            self.top = last + 1
        return alerts + self._bound()

    def promise(self, end: int, failed: Ranges, now: int, *, is_closing: bool) -> list[Alert]:
        """Take a mark: all numbers below `end` were given out, and those that failed need not come.

        Args:
            end: The mark's `next`.
            failed: Its `failed`.
            now: The time.
            is_closing: Whether no number will come after these.
        """
        self.seen_at = now
        self.is_closed = self.is_closed or is_closing
        self._reach(end, now)
        self.told = difference(self.told, failed)
        self.gaps = [
            (first, last, since)
            for begin, end, since in self.gaps
            for first, last in difference(((begin, end),), failed)
        ]
        return self._bound()

    def look(self, now: int, patience: Patience) -> list[Alert]:
        """What has become worth a word by the time alone."""
        due = [gap for gap in self.gaps if gap[2] + patience.grace_ms <= now]
        self.gaps = [gap for gap in self.gaps if gap[2] + patience.grace_ms > now]
        alerts = self._tell(due)
        if not self.is_closed and self.is_over(now, patience):
            alerts.append(Alert(Kind.SILENT, max(self.top - 1, 0), max(self.top - 1, 0)))
        return alerts

    def is_over(self, now: int, patience: Patience) -> bool:
        """Whether its state can be dropped: nothing came for so long that nothing is expected."""
        return self.seen_at + patience.silence_ms <= now and not self.gaps

    def wakes_at(self, patience: Patience) -> int:
        """When to look again."""
        ends = [since + patience.grace_ms for _, _, since in self.gaps]
        return min([*ends, self.seen_at + patience.silence_ms])

    def _reach(self, number: int, now: int) -> None:
        if number > self.top:
            self.gaps.append((self.top, number - 1, now))
            self.top = number

    def _tell(self, gaps: list[tuple[int, int, int]]) -> list[Alert]:
        told = tuple((first, last) for first, last, _ in gaps)
        # The oldest are forgotten.
        self.told = union(self.told, told)[-MOST_RANGES:]
        return [Alert(Kind.GAP, *found) for found in told]

    def _bound(self) -> list[Alert]:
        beyond = max(0, len(self.gaps) - MOST_RANGES)
        first, self.gaps = self.gaps[:beyond], self.gaps[beyond:]
        return self._tell(first)

    def to_json(self) -> str:
        """As the state store keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What was kept."""
        found = json.loads(text)
        found["gaps"] = [(first, last, since) for first, last, since in found["gaps"]]
        found["told"] = tuple((first, last) for first, last in found["told"])
        return cls(**found)

    @property
    def missed(self) -> int:
        """How many numbers are waited for or were told as missing."""
        return count((first, last) for first, last, _ in self.gaps) + count(self.told)


def _parted(came: Iterable[Range]) -> tuple[Ranges, list[Range]]:
    """The numbers that came, and those that came again, once for each time."""
    again: list[Range] = []
    every = sorted(came)
    end = -1
    for first, last in every:
        if first <= end:
            again.append((first, min(last, end)))
        end = max(end, last)
    return union(every), again
