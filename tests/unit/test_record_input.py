"""What `send()` takes and what it refuses: the error's type, its attributes, and a message that says what to do."""

from __future__ import annotations

import sys
from array import array
from collections import UserDict
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce._native.key_hash import MURMUR2
from aioproduce._native.topic_appender import TopicAppender
from aioproduce.config import ProducerConfig
from aioproduce.errors import (
    InvalidHeadersError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    SerializationError,
)
from aioproduce.producer.input import (
    RecordInput,
    check_partition,
    check_topic,
    header_list,
    serialize,
    timestamp_ms,
)
from aioproduce.records import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Iterator


class Text(str):
    pass


class Bytes(bytes):
    def __bytes__(self) -> bytes:
        return b"something else"


# -- topics ---


@pytest.mark.parametrize("topic", ["a", "...", "a.b_c-D9", "x" * 249, "__consumer_offsets", Text("topic")])
def test_good_topics(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("", "1 to 249 of the characters"),
        (".", "neither '.' nor '..'"),
        ("..", "neither '.' nor '..'"),
        ("x" * 250, "1 to 249"),
        ("with space", "a-z, A-Z, 0-9"),
        ("new\nline", "a-z, A-Z, 0-9"),
        ("ends with one\n", "is not a valid topic name"),
        ("topic\n", "is not a valid topic name"),
        ("schlüssel", "is not a valid topic name"),
        ("٣", "is not a valid topic name"),
        ("a/b", "is not a valid topic name"),
        (None, "a topic must be a str, not NoneType"),
        (b"topic", "a topic must be a str, not bytes"),
        (7, "a topic must be a str, not int"),
    ],
)
def test_bad_topics(topic: Any, text: str) -> None:
    with pytest.raises(InvalidTopicError) as raised:
        check_topic(topic)
    assert text in str(raised.value)
    assert raised.value.topic == topic


def test_a_hostile_topic_does_not_fill_the_log() -> None:
    with pytest.raises(InvalidTopicError) as raised:
        check_topic("x" * 1_000_000)
    assert len(str(raised.value)) < 500


# -- partitions ---


@pytest.mark.parametrize("partition", [0, 1, 2**31 - 1])
def test_good_partitions(partition: int) -> None:
    check_partition(partition)


@pytest.mark.parametrize(
    ("partition", "text"),
    [
        (-1, "0 or more, not -1; None lets the producer choose"),
        (True, "an int or None, not bool"),
        ("0", "an int or None, not str"),
        (1.0, "an int or None, not float"),
    ],
)
def test_bad_partitions(partition: Any, text: str) -> None:
    with pytest.raises(InvalidRecordError) as raised:
        check_partition(partition)
    assert text in str(raised.value)


# -- keys and values ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"v", b"v"),
        (b"", b""),
        (bytearray(b"v"), b"v"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (Bytes(b"v"), b"v"),
    ],
)
def test_bytes_need_no_serializer(value: Any, expected: bytes) -> None:
    found = serialize("value", value, "t", None)
    assert type(found) is bytes
    assert found == expected
    # The hot path takes nothing else.
    assert TopicAppender(MURMUR2).append(0, 0, found, found, None) is None


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize(
    ("value", "kind", "hint"),
    [
        ("text", "str", "(e.g. str.encode)"),
        (7, "int", ""),
        ({"a": 1}, "dict", ""),
        (array("i", [1]), "array", ""),
    ],
)
def test_anything_else_needs_one(field: str, value: Any, kind: str, hint: str) -> None:
    with pytest.raises(SerializationError) as raised:
        serialize(field, value, "orders", None)
    assert raised.value.field == field
    assert str(raised.value) == (
        f"the {field} for topic 'orders' is {kind}, and the producer has no {field} serializer: send bytes, or "
        f"configure {field}_serializer" + (f" {hint}" if hint else "")
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [(b"v", b"v"), (bytearray(b"v"), b"v"), (memoryview(b"v"), b"v"), (Bytes(b"v"), b"v"), (None, None)],
)
def test_what_a_serializer_may_give(given: Any, expected: bytes | None) -> None:
    found = serialize("value", object(), "t", lambda value: given)
    assert type(found) in (bytes, type(None))
    assert found == expected


def test_a_serializer_that_raises() -> None:
    def fail(value: object) -> bytes:
        raise LookupError("no schema")

    with pytest.raises(SerializationError) as raised:
        serialize("key", 7, "orders", fail)
    assert str(raised.value) == (
        "the key serializer failed for topic 'orders' on a int: LookupError: no schema"
    )
    assert isinstance(raised.value.__cause__, LookupError)
    assert raised.value.field == "key"


def test_a_serializer_is_not_kept_from_being_interrupted() -> None:
    def interrupt(value: object) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serialize("key", 7, "orders", interrupt)


def test_a_serializer_that_gives_the_wrong_thing() -> None:
    with pytest.raises(
        SerializationError, match=r"(?m)returned str for topic 'orders'; it must return bytes or None$"
    ):
        serialize("value", 7, "orders", str)  # type: ignore[arg-type]


def test_a_serializer_that_is_a_coroutine_function() -> None:
    async def encode(value: object) -> bytes:
        return b""

    # Warnings are errors here: the coroutine is not left for Python to complain of.
    with pytest.raises(SerializationError, match="is it an async function"):
        serialize("value", 7, "orders", encode)  # type: ignore[arg-type]


# -- timestamps ---


class Odd(tzinfo):
    """A zone like those before 1900: with seconds."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1, seconds=30)

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "odd"


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, 0),
        (1_700_000_000_123, 1_700_000_000_123),
        (2**63 - 1, 2**63 - 1),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        # date -u -d "2026-07-30 12:34:56" +%s
        (datetime(2026, 7, 30, 12, 34, 56, 789_999, tzinfo=UTC), 1_785_414_896_789),
        (datetime(2026, 7, 30, 14, 34, 56, 789_000, tzinfo=timezone(timedelta(hours=2))), 1_785_414_896_789),
        (datetime(1970, 1, 1, 1, 0, 31, tzinfo=Odd()), 1000),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999),
    ],
)
def test_good_timestamps(timestamp: Any, expected: int) -> None:
    assert timestamp_ms(timestamp) == expected


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (-1, "from 0 to 2^63 - 1 ms since the epoch, not -1"),
        (2**63, "from 0 to 2^63 - 1"),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "not -1"),
        (datetime(2026, 7, 30), "use an aware datetime, e.g. datetime.now(timezone.utc)"),
        (1_700_000_000.5, "not float (time.time() returns seconds)"),
        (True, "milliseconds since the epoch) or an aware datetime, not bool"),
        ("2026-07-30", "not str"),
        (datetime(2026, 7, 30).date(), "not date"),
    ],
)
def test_bad_timestamps(timestamp: Any, text: str) -> None:
    with pytest.raises(InvalidTimestampError) as raised:
        timestamp_ms(timestamp)
    assert text in str(raised.value)


# -- headers ---


def test_good_headers() -> None:
    pairs = [("a", b"1"), ("a", None)]
    for same in (pairs, tuple(pairs)):
        assert header_list(same) is same, "not copied"
    assert header_list(iter(pairs)) == pairs
    assert header_list({"a": b"1"}.items()) == [("a", b"1")]
    empties: list[Any] = [[], (), iter([]), {}.items()]
    assert [header_list(empty) for empty in empties] == [None] * 4


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ("a=b", "headers must be (name, value) pairs, not a str"),
        (b"a", "headers must be (name, value) pairs, not a bytes"),
        (bytearray(b"a"), "headers must be (name, value) pairs, not a bytearray"),
        ({"a": b"1"}, "not a dict: use headers.items()"),
        (UserDict({"a": b"1"}), "not a UserDict: use headers.items()"),
        (7, "headers must be an iterable of (name, value) pairs, not int"),
    ],
)
def test_bad_headers(headers: Any, text: str) -> None:
    with pytest.raises(InvalidHeadersError) as raised:
        header_list(headers)
    assert text in str(raised.value)


def test_an_error_in_the_users_own_generator_is_not_mistaken_for_ours() -> None:
    def broken() -> Iterator[tuple[str, bytes]]:
        yield ("a", b"1")
        raise TypeError("a bug of the user's")

    with pytest.raises(TypeError, match="a bug of the user's"):
        header_list(broken())


# -- whole records ---


def reader(**settings: Any) -> RecordInput:
    return RecordInput(ProducerConfig.from_keywords(bootstrap_servers="h:9092", **settings))


def test_a_record_is_read_with_the_producers_serializers() -> None:
    read = reader(key_serializer=str.encode, value_serializer=lambda value: b"%d" % value).read_record
    record = ProducerRecord(
        topic="t",
        key="k",
        value=7,
        partition=3,
        timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        headers=iter([("h", b"v")]),
    )
    assert read(record, 99) == ("t", b"k", b"7", [("h", b"v")], 3, 1000)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"key_serializer": str.encode}, True),
        ({"value_serializer": str.encode}, True),
        ({"key_serializer": str.encode, "value_serializer": str.encode}, True),
    ],
    ids=["none", "key", "value", "both"],
)
def test_one_serializer_is_enough_to_have_serializers(settings: dict[str, Any], expected: bool) -> None:
    """A reader of this takes a shorter way past both."""
    assert reader(**settings).has_serializers is expected


def test_nulls_are_not_serialized() -> None:
    def fail(value: object) -> bytes:
        raise AssertionError("a null is a null")

    read = reader(key_serializer=fail, value_serializer=fail).read_record
    assert read(ProducerRecord(topic="t"), 99) == ("t", None, None, None, None, 99)


def test_a_topic_that_is_no_str_is_refused_before_a_serializer_sees_it() -> None:
    with pytest.raises(InvalidTopicError):
        reader().read_record(ProducerRecord(topic=b"t"), 0)  # type: ignore[arg-type]


def test_a_number_that_python_refuses_to_print_is_refused_by_us() -> None:
    assert 0 < sys.get_int_max_str_digits() < 5000
    with pytest.raises(InvalidTimestampError, match=r"(?m)not a number of 16610 bits$"):
        timestamp_ms(10**5000)
    with pytest.raises(InvalidRecordError, match="not a number of 16610 bits"):
        check_partition(-(10**5000))
