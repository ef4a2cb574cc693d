"""What the alert knows of one producer: which numbers came, which are missed, and when that is worth a word.

Called by `alert`, which keeps it in Spark's state store. Plain Python, no Spark and no clock: `now` is an
argument, in milliseconds.

1. Numbers come in any order within `grace_ms`, as partitions do; a gap is told only when it is that old.
2. Every number from the first that was seen is in one of: came, missed, told. A number that came and comes
   again is a duplicate; one that was told and comes is late, and is told as that.
3. The state is bounded: `MOST_RANGES` gaps that are waited for, and as many that were told. A partition that is
   ahead of another leaves more gaps than that (every second number, say): then neighbours that were seen at once
   become one, which knows how many of its numbers are missing and not which. Nothing is told before its grace for
   want of room. Of what was told the oldest is forgotten (a number of it that comes then counts as a duplicate).
4. What is told once is not told again, unless the state was lost.
5. Numbers run over all topics of a producer. Of one whose mark tells of topics that are not watched no gap is told,
   for its numbers may be there; duplicates are. The audit topic is everybody's: a mark of a producer of topics that
   are not watched begins no state.
6. A watch that begins in the midst of a producer's numbers cannot know which of them came before it: gaps that are
   seen within its first grace are dropped, unless number 0 was seen.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import asdict, astuple, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from aioproduce.spark.ranges import (
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
        last: The last one.
        some: How many of these are concerned, where it is not known which; None: all are.
    """

    kind: Kind
    first: int
    last: int
    some: int | None = None

    @property
    def numbers(self) -> int:
        """How many numbers are concerned."""
        return self.last - self.first + 1 if self.some is None else self.some


@dataclass(slots=True)
class Gap:
    """Numbers that are waited for.

    Attributes:
        first: The first one.
        last: The last one.
        since: Since when.
        missing: How many between them are: all, or which of them is not known.
    """

    first: int
    last: int
    since: int
    missing: int

    @property
    def is_exact(self) -> bool:
        """Whether all of its numbers are missing."""
        return self.missing == self.last - self.first + 1


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
        settles_at: Until then it may yet see numbers that are older than `base`, unless that is 0.
        gaps: What is waited for, by number.
        told: Numbers that were told as missing.
        is_closed: Whether the producer has said that it ends.
        is_partial: Whether it has said that it sends to topics, too, that are not watched.
    """

    base: int
    top: int
    seen_at: int
    settles_at: int = 0
    gaps: list[Gap] = field(default_factory=list)
    told: Ranges = NOTHING
    is_closed: bool = False
    is_partial: bool = False

    @classmethod
    def begin(cls, first: int, now: int, grace_ms: int = 0) -> Self:
        """Begin with this number as the first; where that is not 0, within a grace it is seen what is older."""
        return cls(first, first, now, now + grace_ms)

    def take(self, came: Iterable[Range], now: int) -> list[Alert]:
        """Take ranges of numbers, one for each time that they came; in any order, they may overlap."""
        self.seen_at = now
        once, again = _parted(came)
        if once and once[0][0] < self.base and now < self.settles_at:
            self.gaps.insert(0, Gap(once[0][0], self.base - 1, now, self.base - once[0][0]))
            self.base = once[0][0]
        before = within(once, self.base, self.top)
        waited = union((gap.first, gap.last) for gap in self.gaps)
        alerts = [Alert(Kind.LATE, *found) for found in intersection(before, self.told)]
        repeated = difference(difference(before, waited), self.told)
        again = [part for found in again for part in within((found,), self.base, max(self.top, found[1] + 1))]
        alerts += [Alert(Kind.DUPLICATE, *found) for found in [*repeated, *again]]
        self.told = difference(self.told, before)
        self._fill(before)
        highest = once[-1][1] + 1 if once else 0
        for first, last in within(once, self.top, max(highest, self.top)):
            self._reach(first, now)
            self.top = last + 1
        return alerts + self._bound()

    def promise(
        self, end: int, failed: Ranges, now: int, *, is_closing: bool, is_elsewhere: bool = False
    ) -> list[Alert]:
        """Take a mark: all numbers below `end` were given out, and those that failed need not come.

        Args:
            end: The mark's `next`.
            failed: Its `failed`.
            now: The time.
            is_closing: Whether no number will come after these.
            is_elsewhere: Whether some of them are in topics that are not watched.
        """
        self.seen_at = now
        self.is_closed = self.is_closed or is_closing
        self.is_partial = self.is_partial or is_elsewhere
        if not self.is_partial:
            self._reach(end, now)
        self.told = difference(self.told, failed)
        self._fill(failed)
        return self._bound()

    def look(self, now: int, patience: Patience) -> list[Alert]:
        """What has become worth a word by the time alone."""
        if self.base and now >= self.settles_at:
            early = [gap for gap in self.gaps if gap.since < self.settles_at]
            if early:
                self.base = early[-1].last + 1
                self.gaps = self.gaps[len(early) :]
        due = [gap for gap in self.gaps if gap.since + patience.grace_ms <= now]
        self.gaps = [gap for gap in self.gaps if gap.since + patience.grace_ms > now]
        alerts = self._tell(due)
        if not self.is_closed and self.is_over(now, patience):
            alerts.append(Alert(Kind.SILENT, max(self.top - 1, 0), max(self.top - 1, 0)))
        return alerts

    def is_over(self, now: int, patience: Patience) -> bool:
        """Whether its state can be dropped: nothing came for so long that nothing is expected."""
        return self.seen_at + patience.silence_ms <= now and not self.gaps

    def wakes_at(self, patience: Patience) -> int:
        """When to look again."""
        ends = [gap.since + patience.grace_ms for gap in self.gaps]
        return min([*ends, self.seen_at + patience.silence_ms])

    def rest(self) -> None:
        """Forget all but how far the producer came."""
        self.base, self.gaps, self.told = self.top, [], NOTHING

    def _reach(self, number: int, now: int) -> None:
        if number > self.top:
            self.gaps.append(Gap(self.top, number - 1, now, number - self.top))
            self.top = number

    def _fill(self, came: Ranges) -> None:
        """Take these numbers off what is waited for."""
        left: list[Gap] = []
        for gap in self.gaps:
            # Only those that touch it: each gap with all of them would be a product of two large numbers.
            begin = bisect_left(came, gap.first, key=lambda found: found[1])
            end = bisect_right(came, gap.last, key=lambda found: found[0])
            touching = came[begin:end]
            if not touching:
                left.append(gap)
            elif gap.is_exact:
                rest = difference(((gap.first, gap.last),), touching)
                left += [Gap(first, last, gap.since, last - first + 1) for first, last in rest]
            else:
                gap.missing -= count(within(touching, gap.first, gap.last + 1))
                left += [gap] if gap.missing > 0 else []
        self.gaps = left

    def _tell(self, gaps: list[Gap]) -> list[Alert]:
        if gaps and self.is_partial:
            self.base = max(self.base, gaps[-1].last + 1)
            return []
        # The oldest are forgotten.
        self.told = union(self.told, ((gap.first, gap.last) for gap in gaps))[-MOST_RANGES:]
        return [Alert(Kind.GAP, gap.first, gap.last, None if gap.is_exact else gap.missing) for gap in gaps]

    def _bound(self) -> list[Alert]:
        while len(self.gaps) > MOST_RANGES:
            fewer = _paired(self.gaps)
            if len(fewer) == len(self.gaps):
                # Each was seen at another time: the first of so many is nearly due.
                beyond = len(self.gaps) - MOST_RANGES
                first, self.gaps = self.gaps[:beyond], self.gaps[beyond:]
                return self._tell(first)
            self.gaps = fewer
        return []

    def to_json(self) -> str:
        """As the state store keeps it."""
        found = {**asdict(self), "gaps": [astuple(gap) for gap in self.gaps]}
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What was kept."""
        found = json.loads(text)
        found["gaps"] = [Gap(*gap) for gap in found["gaps"]]
        found["told"] = tuple((first, last) for first, last in found["told"])
        return cls(**found)


def _paired(gaps: list[Gap]) -> list[Gap]:
    """Two neighbours of the same time as one."""
    out: list[Gap] = []
    is_single = True
    for gap in gaps:
        if out and is_single and out[-1].since == gap.since:
            last = out.pop()
            gap = Gap(last.first, gap.last, gap.since, last.missing + gap.missing)
            is_single = False
        else:
            is_single = True
        out.append(gap)
    return out


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
