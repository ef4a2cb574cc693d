"""Sets of whole numbers as sorted, separate, inclusive ranges, for excused and missing numbers.

Used by the sink's marks, the audit and the alert. Plain Python, no Spark.

1. A `Ranges` is sorted, its ranges neither overlap nor touch, and each has `first <= last`: two equal sets are
   equal tuples.
2. Nothing here iterates over the numbers themselves: a hole of 2**60 costs as much as one of 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = tuple[Range, ...]

NOTHING: Ranges = ()


def union(*several: Iterable[Range]) -> Ranges:
    """Return all numbers in any of these, in any order; ranges with `first > last` are empty."""
    out: list[Range] = []
    for first, last in sorted(found for ranges in several for found in ranges):
        if first > last:
            continue
        if out and first <= out[-1][1] + 1:
            if last > out[-1][1]:
                out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return tuple(out)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    """Return the numbers that are in both."""
    out: list[Range] = []
    at_left = at_right = 0
    while at_left < len(left) and at_right < len(right):
        first = max(left[at_left][0], right[at_right][0])
        last = min(left[at_left][1], right[at_right][1])
        if first <= last:
            out.append((first, last))
        if left[at_left][1] < right[at_right][1]:
            at_left += 1
        else:
            at_right += 1
    return tuple(out)


def difference(left: Ranges, right: Ranges) -> Ranges:
    """Return the numbers of `left` that are not in `right`."""
    out: list[Range] = []
    at = 0
    for first, last in left:
        while at < len(right) and right[at][1] < first:
            at += 1
        begin, index = first, at
        while index < len(right) and right[index][0] <= last:
            if begin < right[index][0]:
                out.append((begin, right[index][0] - 1))
            begin = max(begin, right[index][1] + 1)
            index += 1
        if begin <= last:
            out.append((begin, last))
    return tuple(out)


def within(ranges: Ranges, first: int, end: int) -> Ranges:
    """Return the numbers from `first` up to, not including, `end`."""
    return intersection(ranges, ((first, end - 1),)) if first < end else NOTHING


def count(ranges: Iterable[Range]) -> int:
    """Return how many numbers these are."""
    return sum(last - first + 1 for first, last in ranges)


def shown(ranges: Iterable[Range]) -> str:
    """Return a text for people: `7, 9-12`."""
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
