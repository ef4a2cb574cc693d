"""The state of `alert` for one producer: which numbers arrived, which are missing, and when to report them.

Used by `alert`, which keeps it in Spark's state store. Plain Python without Spark or a clock: `now` is an argument,
in milliseconds.

1. Numbers may arrive in any order within `grace_ms`, because partitions do; a gap is reported only when it is that
   old.
2. Every number from the first one on is in one of three groups: arrived, missing, reported. A number that arrived
   and arrives again is a duplicate. One that was reported and arrives is late, and is reported as late.
3. The state is bounded: `MOST_RANGES` gaps that are waited for, and as many reported ones. A partition that is far
   ahead of another leaves more gaps than that (e.g. every second number). Then neighbours that were seen at the
   same time are merged into one gap, which knows how many of its numbers are missing but not which. Nothing is
   reported before its grace period for lack of room. Of the reported numbers the oldest are forgotten; one that
   then arrives counts as a duplicate.
4. An alert is not repeated, unless the state was lost.
5. Numbers run over all topics of a producer. If a mark names topics that are not watched, no gaps are reported,
   because the numbers may be there; duplicates are. The audit topic is shared: a mark of a producer of topics that
   are not watched creates no state.
6. A watch that begins amid a producer's numbers cannot know which of them arrived before it: gaps within its first
   grace period are dropped, unless number 0 was seen.
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
    """The kind of an alert."""

    GAP = "gap"
    """Numbers that did not arrive within the grace period."""
    LATE = "late"
    """Numbers that were reported as a gap, and arrived."""
    DUPLICATE = "duplicate"
    """Numbers that arrived again."""
    SILENT = "silent"
    """A producer was silent for too long without a closing mark; with its last number."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        kind: Its kind.
        first: The first number.
        last: The last number.
        some: How many of these are affected, if it is unknown which; None: all are.
    """

    kind: Kind
    first: int
    last: int
    some: int | None = None

    @property
    def numbers(self) -> int:
        """The number of affected numbers."""
        return self.last - self.first + 1 if self.some is None else self.some


@dataclass(slots=True)
class Gap:
    """Missing numbers that are waited for.

    Attributes:
        first: The first one.
        last: The last one.
        since: When the gap was noticed.
        missing: How many of them are missing: all, or an unknown subset.
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
        grace_ms: The wait for a number that later ones have overtaken; above `delivery.timeout.ms`, within which a
            retry may still deliver it.
        silence_ms: The wait for a sign of a producer that has not ended; then its state is dropped.
    """

    grace_ms: int = 150_000
    silence_ms: int = 3_600_000


@dataclass(slots=True)
class Watch:
    """The state of one producer.

    Attributes:
        base: Lower numbers are from before the watch.
        top: One beyond the highest number that arrived, or that a mark covered.
        seen_at: When something arrived last.
        settles_at: Until then it may still see numbers lower than `base`, unless that is 0.
        gaps: The missing numbers that are waited for, in order.
        told: Numbers that were reported as missing.
        is_closed: Whether the producer has a closing mark.
        is_partial: Whether it also sends to topics that are not watched.
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
        """Begin with this number; if it is not 0, lower numbers are accepted within the grace period."""
        return cls(first, first, now, now + grace_ms)

    def take(self, came: Iterable[Range], now: int) -> list[Alert]:
        """Add ranges of numbers, once for each arrival; in any order, and possibly overlapping."""
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
        """Add a mark: all numbers below `end` were assigned, and the failed ones need not arrive.

        Args:
            end: The mark's `next`.
            failed: Its `failed`.
            now: The time.
            is_closing: Whether no more numbers follow.
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
        """Return the alerts that are due by time alone."""
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
        """Return whether its state can be dropped, because nothing has arrived for so long."""
        return self.seen_at + patience.silence_ms <= now and not self.gaps

    def wakes_at(self, patience: Patience) -> int:
        """Return when to check again."""
        ends = [gap.since + patience.grace_ms for gap in self.gaps]
        return min([*ends, self.seen_at + patience.silence_ms])

    def rest(self) -> None:
        """Forget everything but the producer's progress."""
        self.base, self.gaps, self.told = self.top, [], NOTHING

    def _reach(self, number: int, now: int) -> None:
        if number > self.top:
            self.gaps.append(Gap(self.top, number - 1, now, number - self.top))
            self.top = number

    def _fill(self, came: Ranges) -> None:
        """Remove these numbers from the gaps."""
        left: list[Gap] = []
        for gap in self.gaps:
            # Only the ones that touch it: comparing each gap with all would be a product of two large numbers.
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
        # The oldest ones are forgotten.
        self.told = union(self.told, ((gap.first, gap.last) for gap in gaps))[-MOST_RANGES:]
        return [Alert(Kind.GAP, gap.first, gap.last, None if gap.is_exact else gap.missing) for gap in gaps]

    def _bound(self) -> list[Alert]:
        while len(self.gaps) > MOST_RANGES:
            fewer = _paired(self.gaps)
            if len(fewer) == len(self.gaps):
                # Each was seen at another time, so the first of so many is nearly due.
                beyond = len(self.gaps) - MOST_RANGES
                first, self.gaps = self.gaps[:beyond], self.gaps[beyond:]
                return self._tell(first)
            self.gaps = fewer
        return []

    def to_json(self) -> str:
        """Return the state as stored in the state store."""
        found = {**asdict(self), "gaps": [astuple(gap) for gap in self.gaps]}
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the stored state."""
        found = json.loads(text)
        found["gaps"] = [Gap(*gap) for gap in found["gaps"]]
        found["told"] = tuple((first, last) for first, last in found["told"])
        return cls(**found)


def _paired(gaps: list[Gap]) -> list[Gap]:
    """Merge pairs of neighbours that were seen at the same time."""
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
    """Split arrivals into the numbers, and those that arrived again, once for each time."""
    again: list[Range] = []
    every = sorted(came)
    end = -1
    for first, last in every:
        if first <= end:
            again.append((first, min(last, end)))
        end = max(end, last)
    return union(every), again
