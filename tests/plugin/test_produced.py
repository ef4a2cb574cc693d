"""`Produced`: what an assertion accepts, and what it says of what was there instead."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY as WHATEVER

import pytest

from aioproduce.testing import ANY, FakeRecord, Produced


def record(
    value: bytes | None,
    key: bytes | None = None,
    *,
    partition: int = 0,
    offset: int = 0,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp: int = 1_700_000_000_000,
) -> FakeRecord:
    return FakeRecord(partition, offset, timestamp, key, value, headers)


ORDERS = Produced(
    "orders",
    [
        record(
            b'{"id": 1, "lines": [1, 2]}', b"a", headers=(("trace", b"1"), ("trace", b"2"), ("empty", None))
        ),
        record(None, b"a", offset=1),
        record("größer".encode(), None, partition=2, timestamp=1_700_000_000_001),
        record("größer".encode(), b"b", partition=2, offset=1),
    ],
    among={"orders": 4, "payments": 1, "empty": 0},
)
NOTHING = Produced("empty", [], among={"orders": 4, "empty": 0})


def message(produced: Produced, *arguments: Any, **wanted: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        produced.assert_has(*arguments, **wanted)
    return str(caught.value)


# Looking


def test_it_is_a_sequence() -> None:
    assert len(ORDERS) == 4
    assert ORDERS[0].key == b"a"
    assert [each.offset for each in ORDERS] == [0, 1, 0, 1]
    assert isinstance(ORDERS[1:], Produced)
    assert ORDERS[1:].keys == [b"a", None, b"b"]
    assert ORDERS[1:] == Produced("orders", list(ORDERS)[1:])
    assert ORDERS[1:] != ORDERS
    assert repr(ORDERS) == "<Produced 'orders': 4 records>"
    assert repr(ORDERS[:1]) == "<Produced 'orders': 1 record>"
    assert not NOTHING


def test_parts_of_it() -> None:
    assert ORDERS.in_partition(2).values == ["größer".encode()] * 2
    assert ORDERS.with_key("a").values == [b'{"id": 1, "lines": [1, 2]}', None]
    assert ORDERS.with_key(None).keys == [None]
    assert ORDERS[:1].json == [{"id": 1, "lines": [1, 2]}]
    with pytest.raises(ValueError, match="Expecting value"):
        _ = ORDERS.json


# What is accepted


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 4),
        ({"value": "größer"}, 2),
        ({"value": "größer".encode()}, 2),
        ({"value": bytearray("größer".encode())}, 2),
        ({"value": None}, 1),
        ({"value": WHATEVER, "key": "a"}, 2),
        ({"key": None}, 1),
        ({"key": b"b", "partition": 2}, 1),
        ({"headers": {"trace": b"2"}}, 1),
        ({"headers": [("trace", b"2"), ("trace", b"1"), ("empty", None)]}, 1),
        ({"headers": {}}, 4),
        ({"json": {"lines": [1, 2], "id": 1}}, 1),
        ({"json": {"lines": WHATEVER, "id": 1}, "key": "a"}, 1),
        ({"timestamp": 1_700_000_000_001}, 1),
        ({"value": ANY, "key": ANY, "json": ANY}, 4),
    ],
    ids=str,
)
def test_what_is_there(wanted: dict[str, Any], count: int) -> None:
    assert len(ORDERS.assert_has(**wanted)) == count
    assert len(ORDERS.assert_has(**wanted, count=count)) == count
    for other in {0, count - 1, count + 1}:
        assert f"not {other}\n" in message(ORDERS, **wanted, count=other)


@pytest.mark.parametrize(
    "wanted",
    [
        {"value": b"other"},
        {"value": ""},
        {"key": "A"},
        {"key": "a", "partition": 2},
        {"headers": {"trace": b"3"}},
        {"headers": {"trace": None}},
        {"headers": {"Empty": None}},
        {"json": {"id": 1}},
        {"json": {"id": True, "lines": [1, 2]}},
        {"json": {"id": "1", "lines": [1, 2]}},
        {"json": {"id": 1, "lines": [1, 2, 3]}},
        {"json": None},
        {"partition": 1},
        {"timestamp": 1},
    ],
    ids=str,
)
def test_what_is_not_there(wanted: dict[str, Any]) -> None:
    assert "no record of topic 'orders' has " in message(ORDERS, **wanted)
    assert len(ORDERS.assert_has(**wanted, count=0)) == 0
    assert "(1 expected)" in message(ORDERS, **wanted, count=1)


@pytest.mark.parametrize("value", [1, 1.5, True, {"id": 1}, [b"a"], ("a",), {b"a"}], ids=repr)
def test_what_no_record_can_be_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"value is bytes.*json="):
        ORDERS.assert_has(value)
    with pytest.raises(TypeError, match="key is bytes"):
        ORDERS.assert_has(key=value)
    with pytest.raises(TypeError, match="key is bytes"):
        ORDERS.with_key(value)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(TypeError, match="not both"):
        ORDERS.assert_has(b"42", json=42)
    with pytest.raises(ValueError, match="-1"):
        ORDERS.assert_has(b"42", count=-1)
    with pytest.raises(TypeError, match="bytes, str or None"):
        ORDERS.assert_exactly([WHATEVER])


# What is said


def test_the_closest_record_is_told_with_what_differs() -> None:
    told = message(ORDERS, key="a", json={"id": 1, "lines": [1, 3]}, headers={"trace": b"1"})

    assert told == (
        "no record of topic 'orders' has JSON {'id': 1, 'lines': [1, 3]} and key 'a' and header 'trace'=b'1'\n"
        "closest is partition 0, offset 0:\n"
        "  $.lines[1]: expected 3, found 2\n"
        "4 records there:\n"
        "  partition 0, offset 0: key b'a', value b'{\"id\": 1, \"lines\": [1, 2]}', "
        "headers 'trace'=b'1', 'trace'=b'2', 'empty'=None\n"
        "  partition 0, offset 1: key b'a', value None\n"
        "  partition 2, offset 0: key None, value b'gr\\xc3\\xb6\\xc3\\x9fer'\n"
        "  partition 2, offset 1: key b'b', value b'gr\\xc3\\xb6\\xc3\\x9fer'"
    )


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ({"json": {"id": 2, "lines": [1, 2]}}, "$.id: expected 2, found 1"),
        ({"json": {"id": 1}}, "$.lines: not expected, found [1, 2]"),
        ({"json": {"id": 1, "lines": [1, 2], "x": 0}}, "$.x: expected 0, missing"),
        ({"json": {"id": 1, "lines": [1]}}, "$.lines: expected 1 elements, found 2"),
        ({"json": [], "partition": 0}, "$: expected [], found {'id': 1, 'lines': [1, 2]}"),
        ({"json": 1, "partition": 2}, "value: not JSON"),
        ({"key": "a", "partition": 1}, "partition: expected 1, found 0"),
        ({"key": "c", "partition": 2}, "  expected b'c'"),
        ({"key": "a", "headers": {"trace": b"9"}}, "header 'trace': expected b'9', found 'trace'=b'1', "),
        ({"key": "b", "timestamp": 5}, "timestamp: expected 5, found 1700000000000"),
    ],
    ids=str,
)
def test_what_differs(wanted: dict[str, Any], line: str) -> None:
    assert f"  {line}" in message(ORDERS, **wanted)


def test_nothing_is_close_to_what_differs_in_everything() -> None:
    assert "closest" not in message(ORDERS, key="z", partition=7, headers={"z": None})
    assert "closest" in message(ORDERS, key="z")


def test_long_values_are_shown_where_they_part() -> None:
    ours, theirs = b"x" * 10_000 + b"ours" + b"y" * 10_000, b"x" * 10_000 + b"theirs" + b"y" * 10_000
    told = message(Produced("t", [record(theirs)]), ours)

    assert "value from byte 9980:" in told
    assert f"expected b'{'x' * 20}oursyyy" in told
    assert f"found    b'{'x' * 20}theirsyyy" in told
    assert "(20,006 bytes)" in told
    assert len(told) < 1000


def test_a_part_of_a_longer_value_is_told_from_it() -> None:
    assert f"found    b'{'x' * 20}y" in message(Produced("t", [record(b"x" * 500 + b"y" * 9)]), b"x" * 500)


def test_many_records_are_not_all_shown() -> None:
    many = Produced("t", [record(b"%d" % number, offset=number) for number in range(1234)])

    told = message(many, b"other")

    assert "1,234 records there:" in told
    assert told.endswith("... and 1224 more")
    assert "1234 records in" in message_of_empty(many).replace(",", "")


def message_of_empty(produced: Produced) -> str:
    with pytest.raises(AssertionError) as caught:
        produced.assert_empty()
    return str(caught.value)


def test_where_there_is_nothing() -> None:
    NOTHING.assert_empty()
    assert message(NOTHING) == (
        "no record of topic 'empty' has anything\n"
        "the topic is empty; there is something in 'orders' (4 records)"
    )
    assert "there is no such topic; there is something in 'orders' (4 records)" in message(
        Produced("order", [], among={"orders": 4}), b"42"
    )
    assert message(Produced("order", []), b"42").endswith("there is no such topic, nor a record in any other")


def test_too_much() -> None:
    assert message_of_empty(ORDERS.with_key("b")) == (
        "1 record in topic 'orders', where none should be\n"
        "  partition 2, offset 1: key b'b', value b'gr\\xc3\\xb6\\xc3\\x9fer'"
    )


def test_waited_in_vain() -> None:
    with pytest.raises(AssertionError, match=r"topic 'orders' has 4 records after 1\.5 s, not 7"):
        ORDERS.fail_waiting(7, 1.5)


# All of it


def of_values(*partitions: str) -> Produced:
    return Produced(
        "t",
        [
            record(letter.encode(), partition=partition, offset=offset)
            for partition, letters in enumerate(partitions)
            for offset, letter in enumerate(letters)
        ],
    )


@pytest.mark.parametrize(
    "produced",
    [of_values("abcd"), of_values("ac", "bd"), of_values("", "abcd", ""), of_values("d", "c", "b", "a")],
    ids=lambda each: "-".join(str(record.partition) for record in each),
)
def test_exactly_in_the_order_of_each_partition(produced: Produced) -> None:
    assert produced.assert_exactly(["a", b"b", "c", "d"]) is produced


def test_exactly_with_repetitions() -> None:
    of_values("aab", "ba").assert_exactly(["a", "b", "a", "a", "b"])
    of_values().assert_exactly([])
    Produced("t", [record(None)]).assert_exactly([None])


@pytest.mark.parametrize(
    ("produced", "expected", "problem"),
    [
        (of_values("ab"), "abc", "missing b'c'"),
        (of_values("ab"), "a", "not expected b'b'"),
        (of_values("aa"), "a", "not expected b'a'"),
        (of_values("a"), "aaa", "missing 2 times b'a'"),
        (
            of_values("ba"),
            "ab",
            "partition 0: b'a' (offset 1) comes after a value that is expected behind it",
        ),
        (of_values("ab", "dc"), "abcd", "partition 1: b'c' (offset 1) comes after"),
        (of_values(), "a", "missing b'a'"),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(map(repr, each.values)),
)
def test_not_exactly(produced: Produced, expected: str, problem: str) -> None:
    with pytest.raises(AssertionError) as caught:
        produced.assert_exactly([*expected])
    assert f"  {problem}" in str(caught.value)
    assert f"has not exactly the {len(expected)} record" in str(caught.value)


def test_many_problems_are_not_all_told() -> None:
    with pytest.raises(AssertionError, match=r"\.\.\. and 990 more\n"):
        of_values("a").assert_exactly(["a", *(f"missing {number}" for number in range(1000))])
