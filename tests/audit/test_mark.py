"""Marks: their JSON, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.audit import DEFAULT_AUDIT_TOPIC, Mark, MarkError

PRODUCER_ID = bytes(range(16))
FIELDS: dict[str, Any] = {
    "version": 1,
    "kind": "closing",
    "producer_id": "000102030405060708090a0b0c0d0e0f",
    "next": 1000,
    "acknowledged": 994,
    "failed": [[3, 5], [8, 8]],
    "failed_more": 2,
    "topics": {"orders": 990, "clicks": 4},
    "at": 1_700_000_000_000,
    "client_id": "shop",
    "run": {"query": "q", "batch": 7},
}
NUMBERS = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def marks(draw: st.DrawFn) -> Mark:
    edges = sorted(draw(st.sets(st.integers(0, 2**40), max_size=20)))
    ranges = tuple(zip(edges[::2], edges[1::2], strict=False))
    return Mark(
        kind=draw(st.sampled_from(["heartbeat", "closing"])),
        producer_id=draw(st.binary(min_size=16, max_size=16)),
        next=(edges[-1] if edges else 0) + draw(st.integers(1, 2**40)),
        acknowledged=draw(NUMBERS),
        failed=ranges,
        failed_more=draw(NUMBERS),
        topics=draw(st.dictionaries(NAMES, NUMBERS, max_size=3)),
        at=draw(st.integers(0, 2**60)),
        client_id=draw(NAMES),
        run=draw(st.dictionaries(NAMES, st.none() | st.integers() | NAMES, max_size=3)),
    )


def test_the_json_of_a_mark() -> None:
    assert DEFAULT_AUDIT_TOPIC == "aioproduce.audit"
    mark = Mark.from_json(json.dumps(FIELDS))
    assert json.loads(mark.to_json()) == FIELDS
    assert mark.key == b"000102030405060708090a0b0c0d0e0f"
    assert mark.producer_id == PRODUCER_ID
    assert mark.failed == ((3, 5), (8, 8))
    assert mark.failed_count == 6


@given(marks())
def test_a_mark_comes_back_as_it_was(mark: Mark) -> None:
    assert Mark.from_json(mark.to_json()) == mark


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert Mark.from_json(json.dumps({**FIELDS, "color": "blue"})) == Mark.from_json(json.dumps(FIELDS))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "end"),
        ("producer_id", "00"),
        ("producer_id", 7),
        ("producer_id", "x" * 32),
        ("next", -1),
        ("next", 1.5),
        ("next", True),
        ("next", "8"),
        ("next", 2**64),
        ("acknowledged", None),
        ("failed", None),
        ("failed", [[1]]),
        ("failed", [[1, 2, 3]]),
        ("failed", [["1", "2"]]),
        ("failed", [[2, 1]]),
        ("failed", [[3, 5], [5, 6]]),
        ("failed", [[999, 1000]]),
        ("failed", [[number, number] for number in range(0, 2002, 2)]),
        ("failed_more", -1),
        ("topics", []),
        ("topics", {"orders": -1}),
        ("at", -1),
        ("client_id", None),
        ("run", []),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_field_that_is_wrong_is_named(field: str, value: object) -> None:
    with pytest.raises(MarkError) as raised:
        Mark.from_json(json.dumps({**FIELDS, "next": 1000, field: value}))
    assert raised.value.field == field


@pytest.mark.parametrize("field", sorted(FIELDS.keys() - {"version"}))
def test_a_field_that_is_missing_is_named(field: str) -> None:
    with pytest.raises(MarkError, match=field):
        Mark.from_json(json.dumps({name: value for name, value in FIELDS.items() if name != field}))


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff\xfe\xfd",
        b"{",
        b"[]",
        b"3",
        b"[" * 100_000,
        b'{"version": 2}',
        b'{"version": true}',
        b"{}",
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_mark_is_a_mark_error(value: bytes | None) -> None:
    with pytest.raises(MarkError):
        Mark.from_json(value)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_mark_or_a_mark_error(value: bytes) -> None:
    with pytest.raises(MarkError):
        Mark.from_json(value)
