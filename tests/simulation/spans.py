"""Spans of time and what becomes of them: for `observations` and `liveness`.

A cover is a list of spans that is sorted and in which no two spans touch.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Span: TypeAlias = tuple[float, float]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The cover of these spans."""
    cover: list[Span] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if cover and begin <= cover[-1][1]:
            if end > cover[-1][1]:
                cover[-1] = (cover[-1][0], end)
        else:
            cover.append((begin, end))
    return cover


def gaps(cover: list[Span], begin: float, end: float) -> list[Span]:
    """What a cover leaves of a span."""
    left = []
    at = begin
    for index in range(max(bisect_right(cover, (begin, inf)) - 1, 0), len(cover)):
        span = cover[index]
        if span[0] >= end:
            break
        if span[0] > at:
            left.append((at, span[0]))
        at = max(at, span[1])
    if at < end:
        left.append((at, end))
    return left


def outside(cover: list[Span]) -> list[Span]:
    """All other times."""
    return gaps(cover, -inf, inf)


def common(cover: list[Span], other: list[Span]) -> list[Span]:
    """What is in both covers; the second is better the shorter."""
    both = []
    for begin, end in other:
        for index in range(max(bisect_right(cover, (begin, inf)) - 1, 0), len(cover)):
            span = cover[index]
            if span[0] >= end:
                break
            if span[1] > begin:
                both.append((max(span[0], begin), min(span[1], end)))
    return both
