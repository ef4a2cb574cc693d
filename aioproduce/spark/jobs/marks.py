"""Combines marks: each producer's reports, with which its records in a lake are compared.

Used by the audit. Reads the values of the audit topic's records, from the lake or from Kafka; the format is
`aioproduce.audit.mark`.

1. Marks may come in any order, and more than once: the result is the same.
2. A closing mark overrides every heartbeat. Several closing marks of one id are attempts of one task, which wrote
   the same numbers: a number is excused only if no attempt that assigned it reports it as acknowledged.
3. Values that are not marks are counted and never an error: the audit topic may contain anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aioproduce.audit import MarkError
from aioproduce.audit.mark import Mark
from aioproduce.spark.ranges import NOTHING, Ranges, intersection, union

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Expectation:
    """The combined marks of a producer.

    Attributes:
        producer_id: 16 bytes.
        is_closed: Whether one of them is a closing mark: nothing came after `next`.
        next: All numbers below it were assigned.
        acknowledged: How many records were acknowledged.
        excused: Numbers that failed, and may be absent.
        excused_more: How many more failed that the marks do not list.
        topics: How many were acknowledged in each topic.
        at: The time of the last mark, in milliseconds since the epoch.
        client_id: `client.id` of the producer.
        run: The writer's own data.
    """

    producer_id: bytes
    is_closed: bool
    next: int
    acknowledged: int
    excused: Ranges = NOTHING
    excused_more: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)
    at: int = 0
    client_id: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)


def expectation_of(mark: Mark) -> Expectation:
    """Return the content of one mark."""
    return Expectation(
        producer_id=mark.producer_id,
        is_closed=mark.kind == "closing",
        next=mark.next,
        acknowledged=mark.acknowledged,
        excused=union(mark.failed),
        excused_more=mark.failed_more,
        topics=dict(mark.topics),
        at=mark.at,
        client_id=mark.client_id,
        run=dict(mark.run),
    )


def combined(left: Expectation, right: Expectation) -> Expectation:
    """Combine two marks, or combinations of several, of the same producer."""
    if left.is_closed != right.is_closed:
        return left if left.is_closed else right
    later = max(left, right, key=_lateness)
    if not left.is_closed:
        return later
    end = max(left.next, right.next)
    return replace(
        later,
        next=end,
        excused=intersection(_unacknowledged(left, end), _unacknowledged(right, end)),
        excused_more=min(left.excused_more, right.excused_more),
    )


def _lateness(found: Expectation) -> tuple[int, int, int, str]:
    # The last part makes the choice between equal ones independent of the order.
    return found.next, found.acknowledged, found.at, str(sorted(found.run.items(), key=str))


def _unacknowledged(found: Expectation, end: int) -> Ranges:
    return union(found.excused, [(found.next, end - 1)])


class MarkFold:
    """Collects the values of the audit topic's records one by one.

    Args:
        until: Later marks are ignored, in milliseconds since the epoch; None: none is.

    Attributes:
        expectations: The combined marks so far, by producer id.
        marks: The number of marks.
        unreadable: The number of values that were not marks.
    """

    def __init__(self, until: int | None = None) -> None:
        self._until = until
        self.expectations: dict[bytes, Expectation] = {}
        self.marks: int = 0
        self.unreadable: int = 0

    def add(self, value: bytes | None) -> None:
        """Add one value."""
        try:
            found = expectation_of(Mark.from_json(value))
        except MarkError:
            self.unreadable += 1
            return
        if self._until is not None and found.at > self._until:
            return
        self.marks += 1
        before = self.expectations.get(found.producer_id)
        self.expectations[found.producer_id] = found if before is None else combined(before, found)

    def add_all(self, values: Iterable[bytes | None]) -> None:
        """Add several values."""
        for value in values:
            self.add(value)
