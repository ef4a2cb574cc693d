"""Marks: a producer's reports about its records, by which a missing tail can be detected.

Published to the audit topic by the producer (core/record_audit) and by each task of the Spark sink; landed with the
data and compared with it by the audit. Needs only the standard library.

A mark's key is the producer's id as 32 hexadecimal digits in ASCII, and its value is a JSON object in UTF-8 with
the fields of `Mark`. Unknown fields are ignored, so that a later version may add some; another `version` is an
error.

Invariants:

1. `Mark.from_json(mark.to_json()) == mark`.
2. The result of `from_json()` is checked: types, and `failed` ascending and below `next`. Otherwise it raises
   MarkError.
3. A number is lost if it is below `next`, not in `failed` and not in the lake. If `failed_more` is not 0, there are
   more failed ranges than a mark holds: that many numbers may be missing without being lost, but it is unknown
   which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from aioproduce.audit.errors import MarkError
from aioproduce.audit.stamp import MAX_SEQUENCE, PRODUCER_ID_SIZE

DEFAULT_AUDIT_TOPIC: Final = "aioproduce.audit"
"""The default topic for marks."""

MAX_FAILED_RANGES: Final = 1000
"""The maximum number of ranges in a mark, some 20 KB; further numbers are counted in `failed_more`."""

MARK_VERSION: Final = 1
"""The version of the format."""

MarkKind: TypeAlias = Literal["heartbeat", "closing"]
_KINDS: Final = get_args(MarkKind)


@dataclass(frozen=True, slots=True)
class Mark:
    """A producer's report at some instant.

    Attributes:
        kind: `heartbeat`, or `closing` for the last one.
        producer_id: 16 bytes, as in the stamps.
        next: All numbers below it were acknowledged or have failed. In a closing mark, it is the first number that
            was not assigned.
        acknowledged: How many records were acknowledged; in a heartbeat, some of them may be beyond `next`.
        failed: Ranges of numbers, first and last, whose records were reported as failed and may be missing.
        failed_more: How many more numbers have failed than `failed` holds.
        topics: How many were acknowledged in each topic.
        at: The time in milliseconds since the epoch.
        client_id: `client.id` of the producer.
        run: What the writer adds about itself, e.g. query, batch, partition and attempt of a task.

    Raises:
        MarkError: If a field has another type or contradicts another.

    Example:
        >>> mark = Mark(kind="closing", producer_id=bytes(16), next=3, acknowledged=3, topics={"orders": 3}, at=0)
        >>> Mark.from_json(mark.to_json()) == mark
        True
    """

    kind: MarkKind
    producer_id: bytes
    next: int
    acknowledged: int
    failed: tuple[tuple[int, int], ...] = ()
    failed_more: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)
    at: int = 0
    client_id: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(self.kind in _KINDS, "kind", self.kind, f"one of {', '.join(_KINDS)}")
        is_id = type(self.producer_id) is bytes and len(self.producer_id) == PRODUCER_ID_SIZE
        _require(
            is_id,
            "producer_id",
            self.producer_id,
            f"{PRODUCER_ID_SIZE} bytes, as {PRODUCER_ID_SIZE * 2} digits",
        )
        for name in ("next", "acknowledged", "failed_more", "at"):
            number = getattr(self, name)
            _require(_is_number(number), name, number, f"a whole number from 0 to {MAX_SEQUENCE}")
        _require(type(self.client_id) is str, "client_id", self.client_id, "a text")
        _require(isinstance(self.run, Mapping), "run", self.run, "an object")
        is_counts = isinstance(self.topics, Mapping) and all(
            type(topic) is str and _is_number(count) for topic, count in self.topics.items()
        )
        _require(is_counts, "topics", self.topics, "an object of numbers by topic")
        _require(
            len(self.failed) <= MAX_FAILED_RANGES, "failed", len(self.failed), f"at most {MAX_FAILED_RANGES}"
        )
        last = -1
        for each in self.failed:
            is_range = len(each) == 2 and all(_is_number(number) for number in each)
            _require(
                is_range and last < each[0] <= each[1] < self.next,
                "failed",
                each,
                f"ranges [first, last], ascending, apart, and below next={self.next}",
            )
            last = each[1]

    @property
    def key(self) -> bytes:
        """The key of its record: the producer's id in hexadecimal digits."""
        return self.producer_id.hex().encode()

    @property
    def failed_count(self) -> int:
        """How many numbers failed, including `failed_more`."""
        return sum(last - first + 1 for first, last in self.failed) + self.failed_more

    def to_json(self) -> bytes:
        """The value of its record."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        told |= {
            "producer_id": self.producer_id.hex(),
            "topics": dict(self.topics),
            "run": dict(self.run),
        }
        return json.dumps({"version": MARK_VERSION, **told}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes | str | None) -> Self:
        """Read the value of a record of the audit topic.

        Raises:
            MarkError: If it is not a mark, or is one of a later version.
        """
        if value is None:
            raise MarkError("a mark must have a value, but this record's is null")
        try:
            told = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise MarkError(
                f"a mark must be a JSON object in UTF-8, but this is not JSON: {error}"
            ) from error
        if type(told) is not dict:
            raise MarkError(f"a mark must be a JSON object, not {type(told).__name__}")
        version = told.get("version")
        if type(version) is not int or version != MARK_VERSION:
            raise MarkError(
                f"a mark of version {version!r:.40}, but this aioproduce reads {MARK_VERSION}: read it with "
                "a version that is at least as new as its producer"
            )
        missing = [each.name for each in fields(cls) if each.name not in told]
        if missing:
            raise MarkError(f"the mark does not have the field {missing[0]!r}", field=missing[0])
        values = {each.name: told[each.name] for each in fields(cls)}
        values["producer_id"] = _unhex(values["producer_id"])
        values["failed"] = _ranges(values["failed"])
        return cls(**values)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SEQUENCE


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise _wrong(name, value, wanted)


def _wrong(name: str, value: object, wanted: str) -> MarkError:
    return MarkError(f"the field {name!r} of a mark must be {wanted}, not {value!r:.100}", field=name)


def _unhex(value: object) -> bytes:
    if type(value) is str and len(value) == PRODUCER_ID_SIZE * 2:
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    raise _wrong("producer_id", value, f"{PRODUCER_ID_SIZE * 2} hexadecimal digits")


def _ranges(value: object) -> tuple[tuple[int, int], ...]:
    if type(value) is not list or any(type(each) is not list or len(each) != 2 for each in value):
        raise _wrong("failed", value, "a list of pairs")
    return tuple((first, last) for first, last in value)
