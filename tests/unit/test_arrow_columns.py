"""Arrow data as columns: every type that is taken, each that is not, slices, and what pyarrow says is in them."""

from __future__ import annotations

import datetime
import sys
from typing import Any
from unittest import mock

import pytest

from aioproduce.errors import ArrowColumnError
from aioproduce.producer.arrow import arrow_pieces

pa = pytest.importorskip("pyarrow", reason="send_arrow() needs the extra aioproduce[arrow]")

TEXTS = ["zero", "", None, "drei", "vier" * 30]
BYTES = [None if text is None else text.encode() for text in TEXTS]


def rows(data: object, names: dict[str, str] | None = None, *, has_topic: bool = True) -> list[Any]:
    """Every row as objects: key, value, headers, partition, timestamp, topic."""
    found: list[Any] = []
    for columns, topics in arrow_pieces(data, names or {}, has_topic=has_topic):
        of_row: dict[int, str | None] = {}
        for topic, start, stop in topics or []:
            of_row.update(dict.fromkeys(range(start, stop), topic))
        found.extend(
            (
                None if columns.keys is None else columns.keys.at(row),
                columns.values.at(row),
                None if columns.headers is None else columns.headers.at(row),
                None if columns.partitions is None else columns.partitions.at(row),
                None if columns.timestamps is None else columns.timestamps.at(row),
                of_row.get(row),
            )
            for row in range(len(columns))
        )
    return found


def of(role: int, data: object, **options: Any) -> list[Any]:
    return [row[role] for row in rows(data, **options)]


BYTE_ARRAYS = {
    "binary": pa.array(BYTES, pa.binary()),
    "large_binary": pa.array(BYTES, pa.large_binary()),
    "string": pa.array(TEXTS, pa.string()),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary_view": pa.array(BYTES, pa.binary()).cast(pa.binary_view()),
    "string_view": pa.array(TEXTS, pa.string()).cast(pa.string_view()),
    "dictionary of string": pa.array(TEXTS, pa.string()).dictionary_encode(),
    "dictionary of binary": pa.array(BYTES, pa.binary()).dictionary_encode(),
}


@pytest.mark.parametrize("array", BYTE_ARRAYS.values(), ids=BYTE_ARRAYS)
def test_keys_and_values(array: Any) -> None:
    table = pa.table({"key": array, "value": array})
    assert of(0, table) == of(1, table) == BYTES
    for start, stop in ((0, 5), (1, 4), (2, 3), (3, 5), (5, 5)):
        assert of(1, table.slice(start, stop - start)) == BYTES[start:stop]
        assert of(1, pa.record_batch([array.slice(start, stop - start)], ["value"])) == BYTES[start:stop]


def test_fixed_sizes_and_nothing_but_nulls() -> None:
    fixed = pa.array([b"abcd", None, b"efgh"], pa.binary(4))
    assert of(1, pa.table({"value": fixed}).slice(1)) == [None, b"efgh"]
    assert of(1, pa.table({"value": pa.nulls(3)})) == [None] * 3


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_partitions(kind: Any) -> None:
    table = pa.table({"value": pa.nulls(4), "partition": pa.array([0, None, 3, 100], kind)})
    assert of(3, table) == [0, None, 3, 100]
    assert of(3, table.slice(2)) == [3, 100]


AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=datetime.UTC)
AT_MS = 1_714_979_289_123


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kathmandu"])
@pytest.mark.parametrize(
    ("unit", "expected"), [("s", AT_MS // 1000 * 1000), ("ms", AT_MS), ("us", AT_MS), ("ns", AT_MS)]
)
def test_timestamps(unit: str, expected: int, zone: str | None) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    raw = int(AT.timestamp()) * per_second + 123_456 * per_second // 10**6
    table = pa.table(
        {
            "value": pa.nulls(3),
            "timestamp": pa.array([raw, None, 0], pa.int64()).cast(pa.timestamp(unit, zone)),
        }
    )
    assert of(4, table) == [expected, None, 0]
    assert of(4, table.slice(1)) == [None, 0]


def test_timestamps_as_numbers_and_too_large_ones() -> None:
    table = pa.table({"value": pa.nulls(2), "timestamp": pa.array([AT_MS, None], pa.int64())})
    assert of(4, table) == [AT_MS, None]
    seconds = pa.array([2**60], pa.int64()).cast(pa.timestamp("s"))
    with pytest.raises(ArrowColumnError, match="'timestamp' cannot be read"):
        rows(pa.table({"value": pa.nulls(1), "timestamp": seconds}))


HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    [("a", b"1"), ("ü", None)],
    None,
    [],
    [("a", b""), ("a", b"2")],
]
NAMED = [None if row is None else [{"name": name, "value": value} for name, value in row] for row in HEADERS]
STRUCT = pa.struct([("name", pa.string()), ("value", pa.binary())])
HEADER_ARRAYS = {
    "map": pa.array(HEADERS, pa.map_(pa.string(), pa.binary())),
    "list": pa.array(NAMED, pa.list_(STRUCT)),
    "large_list": pa.array(NAMED, pa.large_list(STRUCT)),
    "of key and value": pa.array(
        [None if row is None else [{"key": name, "value": value} for name, value in row] for row in HEADERS],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    "value first, binary names": pa.array(
        [
            None if row is None else [{"value": value, "name": name.encode()} for name, value in row]
            for row in HEADERS
        ],
        pa.list_(pa.struct([("value", pa.large_binary()), ("name", pa.binary())])),
    ),
}


@pytest.mark.parametrize("array", HEADER_ARRAYS.values(), ids=HEADER_ARRAYS)
def test_headers(array: Any) -> None:
    table = pa.table({"value": pa.nulls(4), "headers": array})
    assert of(2, table) == HEADERS
    for start in range(5):
        assert of(2, table.slice(start)) == HEADERS[start:]
        assert (
            of(2, pa.record_batch([pa.nulls(4 - start), array.slice(start)], ["value", "headers"]))
            == HEADERS[start:]
        )


def test_headers_without_a_name() -> None:
    for element in ({"name": None, "value": b"1"}, None):
        table = pa.table({"value": pa.nulls(1), "headers": pa.array([[element]], pa.list_(STRUCT))})
        with pytest.raises(ValueError, match="name is null"):
            rows(table)
    latin = pa.array(
        [[{"name": b"\xff", "value": b""}]],
        pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
    )
    with pytest.raises(ArrowColumnError, match="headers"):
        rows(pa.table({"value": pa.nulls(1), "headers": latin}))


def test_topics() -> None:
    table = pa.table({"value": pa.nulls(5), "topic": ["a", "a", "b", None, "a"]})
    assert of(5, table, has_topic=False) == ["a", "a", "b", None, "a"]
    encoded = table.set_column(1, "topic", table.column("topic").dictionary_encode())
    assert of(5, encoded.slice(1), has_topic=False) == ["a", "b", None, "a"]
    assert of(5, table, has_topic=True) == [None] * 5, "that column is not asked for"


def test_a_large_table_comes_in_pieces_and_chunks_are_followed() -> None:
    numbers = [b"%d" % number for number in range(20_000)]
    table = pa.concat_tables([pa.table({"value": numbers[:9_000]}), pa.table({"value": numbers[9_000:]})])
    assert of(1, table) == numbers
    assert max(len(columns) for columns, _ in arrow_pieces(table, {}, has_topic=True)) <= 8192


class Stream:
    """Data of some other library."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def test_whatever_has_arrows_interface() -> None:
    table = pa.table({"value": BYTE_ARRAYS["string"]})
    batch = pa.record_batch([BYTE_ARRAYS["string"]], ["value"])
    reader = pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch]))
    assert of(1, batch) == BYTES
    assert of(1, reader) == BYTES * 2
    assert of(1, Stream(table)) == BYTES
    assert of(1, Array(batch)) == BYTES
    for wrong in (None, [b"v"], {"value": [b"v"]}, BYTE_ARRAYS):
        with pytest.raises(TypeError, match="pyarrow RecordBatch, Table or RecordBatchReader"):
            rows(wrong)


def test_columns_of_other_names() -> None:
    table = pa.table({"id": ["k"], "payload": [b"v"], "key": [1.5], "at": pa.array([9], pa.int64())})
    assert rows(table, {"value": "payload", "key": "id", "timestamp": "at"}) == [
        (b"k", b"v", None, None, 9, None)
    ]


WRONG = {
    "value": [pa.array([1]), pa.array([[b"v"]]), pa.array([1]).dictionary_encode(), pa.array([{"v": b""}])],
    "key": [pa.array([1.5]), pa.array([True])],
    "partition": [pa.array(["0"]), pa.array([0.0]), pa.array([AT])],
    "timestamp": [pa.array(["2024"]), pa.array([1.0]), pa.array([AT.date()]), pa.array([AT.time()])],
    "topic": [pa.array([b"t"]), pa.array([1])],
    "headers": [
        pa.array([b"h"]),
        pa.array([[b"h"]]),
        pa.array([{"name": "h", "value": b""}]),
        pa.array([[{"name": "h"}]]),
        pa.array([[{"name": "h", "value": 1}]]),
        pa.array([[{"name": "h", "value": b"", "more": b""}]]),
        pa.array([[{"first": "h", "second": b""}]]),
        pa.array([[("h", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
}


@pytest.mark.parametrize(
    ("role", "array"),
    [
        pytest.param(role, array, id=f"{role} {array.type}")
        for role, arrays in WRONG.items()
        for array in arrays
    ],
)
def test_types_that_cannot_be_sent_are_refused_at_once(role: str, array: Any) -> None:
    columns = {"value": pa.nulls(1), "topic": ["t"], role: array}
    with pytest.raises(ArrowColumnError) as caught:
        arrow_pieces(pa.table(columns), {}, has_topic=False)
    assert caught.value.column == role
    assert str(array.type) in str(caught.value)
    assert "accepts" in str(caught.value)


def test_columns_that_are_not_there_or_twice() -> None:
    table = pa.table({"payload": [b"v"], "key": [b"k"]})
    with pytest.raises(ArrowColumnError, match=r"no column 'value'.*'payload', 'key'") as caught:
        arrow_pieces(table, {}, has_topic=True)
    assert caught.value.column == "value"
    with pytest.raises(ArrowColumnError, match="no column 'at'"):
        arrow_pieces(table, {"value": "payload", "timestamp": "at"}, has_topic=True)
    with pytest.raises(ArrowColumnError, match=r"no column 'topic'.*give the topic"):
        arrow_pieces(table, {"value": "payload"}, has_topic=False)
    twice = pa.table([pa.array([b"1"]), pa.array([b"2"])], names=["value", "value"])
    with pytest.raises(ArrowColumnError, match="2 columns 'value'"):
        arrow_pieces(twice, {}, has_topic=True)
    with pytest.raises(ValueError, match="there is no 'values'"):
        arrow_pieces(table, {"values": "payload"}, has_topic=True)


def test_without_pyarrow_the_extra_is_named() -> None:
    with (
        mock.patch.dict(sys.modules, {"pyarrow": None}),
        pytest.raises(ImportError, match=r"aioproduce\[arrow\]"),
    ):
        arrow_pieces(object(), {}, has_topic=True)
