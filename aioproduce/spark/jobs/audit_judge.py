"""Derives a verdict from partials and marks: which blocks are suspicious, and what the exact pass's findings mean.

Used by the `audit` job and its tests; no Spark, no I/O.

1. A producer whose blocks are all as expected costs no Python object: the work is vectorised over its blocks. There
   are many producers, because a streaming query has an id for each batch and partition.
2. A block without any row in the lake needs no exact pass: all its numbers are missing.
3. Numbers are expected from 0 (or the lowest one, `Scope.is_from_first_seen`) to the mark's `next`, and beyond that
   to the highest one in the lake.
4. A number missing below `next` of a closed or an unmarked producer is lost, unless it is excused. For an open
   producer, only as many are lost as is proven: more are missing than were neither acknowledged nor failed. The
   rest was in flight: undecided.
5. If a producer's mark names topics that are not audited, its numbers prove nothing, and records are counted
   instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aioproduce.spark.jobs.audit_passes import (
    BLOCK,
    BLOCK_BITS,
    Span,
    Spans,
    Unsigned,
    as_unsigned,
    codes_of,
    fingerprints,
    mixed,
    unsigned,
)
from aioproduce.spark.jobs.audit_report import HOLES_OF_A_PRODUCER, AuditReport, ProducerFinding, Status
from aioproduce.spark.ranges import (
    NOTHING,
    Ranges,
    count,
    difference,
    intersection,
    union,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from aioproduce.spark.jobs.marks import Expectation

MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """What to check.

    Attributes:
        topics: The audited topics.
        is_limited: Whether these were named, so that marks may contain others; if not, all topics of marks count.
        is_from_first_seen: Whether to ignore numbers below the lowest one of a producer in the lake.
        limit: The maximum number of producers in the report.
    """

    topics: frozenset[str]
    is_limited: bool = False
    is_from_first_seen: bool = False
    limit: int = 100

    def is_by_counts(self, expected: Expectation | None) -> bool:
        """Return whether only counts can be compared, because some of the producer's records are not audited."""
        return self.is_limited and expected is not None and not self.topics.issuperset(expected.topics)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """One producer's range: numbers from `low` up to `end` are expected; the mark covers those up to `next`."""

    low: int
    next: int
    end: int
    excused: Ranges


class Judge:
    """Judges one lake.

    Args:
        partials: The merged result of the first pass.
        expectations: The marks' content, by producer id.
        scope: What to check.
    """

    def __init__(self, partials: pa.Table, expectations: Mapping[bytes, Expectation], scope: Scope) -> None:
        self._expectations = expectations
        self._scope = scope
        stamped = partials.filter(partials["producer_id"].is_valid())
        self._unstamped = int(np.asarray(partials["rows"]).sum() - np.asarray(stamped["rows"]).sum())
        codes, self._names = _in_order(stamped)
        self._blocks = unsigned(stamped["block"])
        self._rows = np.asarray(stamped["rows"])
        self._starts = np.flatnonzero(np.diff(codes, prepend=-1))
        self._codes = codes
        self._fingerprints = unsigned(stamped["fingerprint"])
        self._lowest = np.minimum.reduceat(unsigned(stamped["lowest"]), self._starts)
        self._highest = np.maximum.reduceat(unsigned(stamped["highest"]), self._starts)
        self._rows_of = np.add.reduceat(self._rows, self._starts)
        self._is_plain = np.ones(len(self._names), dtype=bool)
        self._is_unmarked = np.ones(len(self._names), dtype=bool)
        self._is_suspect = self._suspicious()

    # -- the first pass

    def _bounds(self, number: int) -> _Bounds:
        expected = self._expectations.get(self._names[number])
        highest = int(self._highest[number])
        low = int(self._lowest[number]) if self._scope.is_from_first_seen else 0
        if expected is None:
            return _Bounds(low, highest + 1, highest + 1, NOTHING)
        low = min(low, expected.next)
        return _Bounds(low, expected.next, max(expected.next, highest + 1), expected.excused)

    def _suspicious(self) -> npt.NDArray[np.bool_]:
        """Return which blocks are not as expected."""
        if not len(self._codes):
            return np.empty(0, dtype=bool)
        # As lists: reading numbers from arrays one by one takes ten times as long.
        lows = self._lowest.tolist() if self._scope.is_from_first_seen else [0] * len(self._names)
        # One less if it would not fit, so that the block is suspected and checked.
        ends = [min(highest + 1, MAX) for highest in self._highest.tolist()]
        excused: list[tuple[int, Ranges]] = []
        by_counts = np.zeros(len(self._names), dtype=bool)
        for number, name in enumerate(self._names):
            expected = self._expectations.get(name)
            if expected is None:
                continue
            self._is_unmarked[number] = False
            is_as_told = expected.is_closed and not expected.excused and ends[number] <= expected.next
            self._is_plain[number] = is_as_told
            lows[number] = min(lows[number], expected.next)
            ends[number] = max(ends[number], min(expected.next, MAX))
            if expected.excused:
                excused.append((number, expected.excused))
            by_counts[number] = self._scope.is_by_counts(expected)
        low, end = np.array(lows, dtype=np.uint64), np.array(ends, dtype=np.uint64)
        first = self._blocks << np.uint64(BLOCK_BITS)
        begins = _clipped(low[self._codes], first)
        finishes = _clipped(end[self._codes], first)
        wanted = finishes - begins
        prints = np.empty(len(first), dtype=np.uint64)
        for block, at in _by_value(self._blocks):
            known = fingerprints(block)
            prints[at] = known[finishes[at]] - known[begins[at]]
        for number, ranges in excused:
            self._excuse(number, ranges, int(low[number]), wanted, prints)
        is_wrong: npt.NDArray[np.bool_] = (wanted != self._rows) | (prints != self._fingerprints)
        is_wrong |= by_counts[self._codes]
        self._is_plain[self._codes[is_wrong]] = False
        blocks = (
            ((end - np.uint64(1)) >> np.uint64(BLOCK_BITS)) - (low >> np.uint64(BLOCK_BITS)) + np.uint64(1)
        )
        self._is_plain &= blocks == np.diff(self._starts, append=len(self._codes)).astype(np.uint64)
        return is_wrong

    def _excuse(
        self, number: int, ranges: Ranges, low: int, wanted: npt.NDArray[np.int64], prints: Unsigned
    ) -> None:
        """Subtract the numbers that may be absent from what a producer's blocks must have."""
        begin, end = self._slice(number)
        for at in range(begin, end):
            start = int(self._blocks[at]) << BLOCK_BITS
            for first, last in within(ranges, max(start, low), start + BLOCK):
                wanted[at] -= last - first + 1
                prints[at : at + 1] -= np.add.reduce(mixed(np.arange(first, last + 1, dtype=np.uint64)))

    def _slice(self, number: int) -> tuple[int, int]:
        ends = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._codes)
        return int(self._starts[number]), int(ends)

    def spans(self) -> Spans:
        """Return what the exact pass must check."""
        out: dict[bytes, dict[int, Span]] = {}
        for at in np.flatnonzero(self._is_suspect).tolist():
            number = int(self._codes[at])
            name, block = self._names[number], int(self._blocks[at])
            bounds = self._bounds(number)
            start = block << BLOCK_BITS
            if self._scope.is_by_counts(self._expectations.get(name)):
                span = Span(start, start, start)
            else:
                excused = within(bounds.excused, start, start + BLOCK)
                span = Span(bounds.low, bounds.next, bounds.end, excused)
            out.setdefault(name, {})[block] = span
        return out

    # -- the verdict

    def report(self, findings: pa.Table) -> AuditReport:
        """Return the verdict, given the exact pass's findings for `spans()`."""
        exact: dict[bytes, list[dict[str, Any]]] = {}
        for row in findings.to_pylist():
            exact.setdefault(row["producer_id"], []).append(row)
        out = AuditReport(
            rows=int(self._rows.sum()) + self._unstamped,
            unstamped=self._unstamped,
            topics=tuple(sorted(self._scope.topics)),
            suspects=findings.num_rows,
        )
        self._add_plain(out)
        notable = []
        for found in self._producers(exact):
            _add(out, found)
            if found.is_notable:
                notable.append(found)
        notable.sort(key=lambda found: (found.gravity, found.producer_id))
        out.findings = tuple(notable[: self._scope.limit])
        out.findings_more = len(notable) - len(out.findings)
        told = {
            topic for found in self._expectations.values() for topic, many in found.topics.items() if many
        }
        out.missing_topics = () if self._scope.is_limited else tuple(sorted(told - self._scope.topics))
        return out

    def _producers(self, exact: Mapping[bytes, list[dict[str, Any]]]) -> Iterator[ProducerFinding]:
        """Yield producers that are not clearly in order, and those with marks only."""
        for number in np.flatnonzero(~self._is_plain).tolist():
            name, rows = self._names[number], int(self._rows_of[number])
            expected = self._expectations.get(name)
            found = _finding(name, expected)
            found.rows = rows
            found.lowest, found.highest = int(self._lowest[number]), int(self._highest[number])
            self._judge(number, found, expected, exact.get(name, []))
            yield found
        present = set(self._names)
        for name, expected in self._expectations.items():
            if name not in present:
                yield _absent(name, expected, self._scope)

    def _add_plain(self, out: AuditReport) -> None:
        """Add the producers whose blocks are all as expected and that need no mention."""
        many = int(self._is_plain.sum())
        unmarked = int((self._is_plain & self._is_unmarked).sum())
        out.producers += many
        out.unmarked += unmarked
        out.closed += many - unmarked
        out.numbers += int(self._rows_of[self._is_plain].sum())

    def _judge(
        self, number: int, found: ProducerFinding, expected: Expectation | None, exact: list[dict[str, Any]]
    ) -> None:
        for row in exact:
            found.duplicates += row["duplicates"]
            found.reread += row["reread"]
            found.conflicts += row["conflicts"]
            found.conflicting += tuple(map(as_unsigned, row["conflicting"]))
        found.conflicting = tuple(sorted(found.conflicting)[:HOLES_OF_A_PRODUCER])
        found.numbers = found.rows - found.duplicates - found.conflicts
        if expected is not None and self._scope.is_by_counts(expected):
            _count_only(found, expected, self._scope)
            return
        bounds = self._bounds(number)
        begin, end = self._slice(number)
        blocks = self._blocks[begin:end]
        gone = difference(_of(bounds.low, bounds.end), _block_ranges(blocks))
        holes = difference(gone, bounds.excused)
        below = _of(bounds.low, bounds.next)
        missing = count(intersection(gone, below)) + sum(row["missing"] for row in exact)
        lost = count(intersection(holes, below)) + sum(row["lost"] for row in exact)
        loose = count(holes) - count(intersection(holes, below)) + sum(row["loose"] for row in exact)
        if bounds.excused:
            clean = _block_ranges(blocks[~self._is_suspect[begin:end]])
            missing += count(intersection(intersection(bounds.excused, below), clean))
        listed = union(
            holes,
            (
                (as_unsigned(hole["first"]), as_unsigned(hole["last"]))
                for row in exact
                for hole in row["holes"]
            ),
        )
        found.holes = listed[:HOLES_OF_A_PRODUCER]
        found.holes_more = lost + loose - count(found.holes)
        found.excused = missing - lost
        if expected is None:
            found.lost = lost
            return
        if expected.is_closed:
            found.lost = max(0, lost - expected.excused_more)
            found.beyond = (
                int(self._highest[number]) + 1 - expected.next - loose if bounds.end > expected.next else 0
            )
        else:
            found.lost = max(0, lost - _in_flight(expected))
        found.undecided = lost - found.lost + loose


def _in_order(stamped: pa.Table) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Return the ids of a sorted table as codes that ascend from 0."""
    codes, names = codes_of(stamped["producer_id"])
    return codes, [name for name in names if name is not None]


def _clipped(numbers: Unsigned, first: Unsigned) -> npt.NDArray[np.int64]:
    """Return the numbers relative to the first of their block, from 0 to 65,536."""
    relative = np.where(numbers > first, numbers - first, np.uint64(0))
    return np.minimum(relative, np.uint64(BLOCK)).astype(np.int64)


def _by_value(values: Unsigned) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each value and its positions."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=values[order[0]] + np.uint64(1)))
    for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(values[order[begin]]), order[begin:end]


def _block_ranges(blocks: Unsigned) -> Ranges:
    """Return all numbers of these sorted blocks as ranges."""
    if not len(blocks):
        return NOTHING
    ends = np.flatnonzero(np.diff(blocks) != 1)
    firsts, lasts = blocks[np.concatenate(([0], ends + 1))], blocks[np.concatenate((ends, [len(blocks) - 1]))]
    return tuple(
        (first << BLOCK_BITS, (last + 1 << BLOCK_BITS) - 1)
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
    )


def _of(low: int, end: int) -> Ranges:
    return ((low, end - 1),) if low < end else NOTHING


def _finding(name: bytes, expected: Expectation | None) -> ProducerFinding:
    """Return what is known of a producer before its numbers are checked."""
    if expected is None:
        return ProducerFinding(name.hex(), Status.UNMARKED)
    status = Status.CLOSED if expected.is_closed else Status.OPEN
    run = dict(expected.run)
    return ProducerFinding(name.hex(), status, next=expected.next, client_id=expected.client_id, run=run)


def _in_flight(expected: Expectation) -> int:
    """Return how many numbers were neither acknowledged nor listed as failed at the producer's last mark.

    An Auditor's heartbeat lists only settled numbers, and counts some beyond them as acknowledged. These must not
    be offset against failed numbers that are not listed.
    """
    unsettled = expected.next - expected.acknowledged - count(expected.excused)
    return max(unsettled, expected.excused_more, 0)


def _absent(name: bytes, expected: Expectation, scope: Scope) -> ProducerFinding:
    """Return the finding for a producer that has only marks in the lake."""
    found = _finding(name, expected)
    if scope.is_from_first_seen:
        # Its records may have been in the deleted days, so nothing counts as missing.
        return found
    if scope.is_by_counts(expected):
        _count_only(found, expected, scope)
    else:
        holes = difference(_of(0, expected.next), expected.excused)
        missing = count(holes)
        found.excused = expected.next - missing
        unknown = expected.excused_more if expected.is_closed else _in_flight(expected)
        found.lost = max(0, missing - unknown)
        found.undecided = missing - found.lost
        found.holes = holes[:HOLES_OF_A_PRODUCER]
        found.holes_more = missing - count(found.holes)
    if found.lost:
        found.status = Status.VANISHED
    return found


def _count_only(found: ProducerFinding, expected: Expectation, scope: Scope) -> None:
    acknowledged = sum(many for topic, many in expected.topics.items() if topic in scope.topics)
    found.is_by_counts = True
    fewer = max(0, acknowledged - found.numbers)
    if scope.is_from_first_seen:
        # It is unknown how many of them were in the deleted days.
        found.undecided = fewer
    else:
        found.lost = fewer


def _add(out: AuditReport, found: ProducerFinding) -> None:
    out.producers += 1
    name = found.status.value
    setattr(out, name, getattr(out, name) + 1)
    for name in ("numbers", "duplicates", "reread", "conflicts", "lost", "undecided", "excused", "beyond"):
        setattr(out, name, getattr(out, name) + getattr(found, name))
