"""`BulkAppender` and its columns: where rows go, where it stops, and memory that lies; in both builds."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aioproduce._native.key_hash import CRC32, FNV1A, HASHES_NULL, MURMUR2, partition_for_key
from tests.native_builds import BUILDS, native_module
from tests.unit.bulk_harness import BASE_OFFSET, OpenBatches, bytes_layout

VALUES = [b"zero", b"", None, b"three", b"4" * 40]
OVERHEAD = 61


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def append(batches: OpenBatches, values: Any, keys: Any = None, **others: Any) -> Any:
    bulk = others.pop("bulk", None) or batches.bulk(others.pop("partition", -1))
    return bulk.append(
        values,
        keys,
        others.pop("headers", None),
        others.pop("partitions", None),
        others.pop("timestamps", None),
        others.pop("timestamp", 7),
        others.pop("start", 0),
        others.pop("stop", len(values)),
    )


def offsets(span: Any) -> list[tuple[int, int]]:
    return [(metadata.partition, metadata.offset) for metadata in span.metadata()]


# -- where rows go ---


def test_rows_of_one_partition(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(1)
    span = append(batches, batches.of_list(list(VALUES)), partition=1)
    batches.acknowledge()
    assert len(span) == 5
    assert batches.records()[1] == [(7, None, value, ()) for value in VALUES]
    assert span.metadata() == [
        ("topic", 1, BASE_OFFSET + index, 7, -1, -1 if value is None else len(value))
        for index, value in enumerate(VALUES)
    ]
    assert [span.future(index).result() for index in range(5)] == span.metadata()


def test_the_largest_record_of_a_batch_is_known(build: str) -> None:
    batches = OpenBatches(build)
    buffer = batches.open(1)
    assert buffer.largest_record == 0
    append(batches, batches.of_list(list(VALUES)), partition=1)
    # Length, attributes, timestamp, offset, key and header count take a byte each, and so does the value's length.
    assert buffer.largest_record == 7 + 40
    append(batches, batches.of_list([b"small"]), partition=1)
    assert buffer.largest_record == 7 + 40
    append(batches, batches.of_list([b"5" * 50]), partition=1)
    assert buffer.largest_record == 7 + 50


def test_keys_choose_as_java_does(build: str) -> None:
    batches = OpenBatches(build, 5)
    for partition in range(5):
        batches.open(partition)
    keys = [b"", b"k", b"key", bytes(100), "schlüssel".encode(), b"k"]
    span = append(batches, batches.of_list([b"v"] * 6), batches.of_list(list(keys)))
    batches.acknowledge()
    assert [partition for partition, _ in offsets(span)] == [partition_for_key(key, 5) for key in keys]
    assert [metadata.serialized_key_size for metadata in span.metadata()] == [len(key) for key in keys]


def test_null_keys_and_ignored_keys_stick(build: str) -> None:
    batches = OpenBatches(build)
    for partition in range(3):
        batches.open(partition)
    batches.appender.set_sticky(2, 1000)
    span = append(batches, batches.of_list([b"v"] * 3), batches.of_list([None, b"k", None]))
    batches.acknowledge()
    assert [partition for partition, _ in offsets(span)] == [2, partition_for_key(b"k", 3), 2]
    ignoring = OpenBatches(build, ignore_keys=True)
    ignoring.open(1)
    ignoring.appender.set_sticky(1, 1000)
    assert len(append(ignoring, ignoring.of_list([b"v"] * 3), ignoring.of_list([b"a", b"b", b"c"]))) == 3
    assert ignoring.buffers[1].record_count == 3


@pytest.mark.parametrize(
    ("rule", "of_empty"),
    [
        (MURMUR2, 0x106E08D9 % 7),  # librdkafka's unittest_murmur2()
        (CRC32, 0),
        (FNV1A, (2**32 - 0x811C9DC5) % 7),  # the offset basis, which is negative as an int32
    ],
)
def test_rows_without_a_key_go_where_the_empty_key_goes(build: str, rule: int, of_empty: int) -> None:
    batches = OpenBatches(build, 7, key_rule=rule | HASHES_NULL)
    for partition in range(7):
        batches.open(partition)
    keyless = append(batches, batches.of_list([b"v"] * 2), bulk=batches.bulk(headers=[("name", b"value")]))
    span = append(batches, batches.of_list([b"v"] * 4), batches.of_list([b"key", None, b"", b"key"]))
    batches.acknowledge()
    assert [partition for partition, _ in offsets(keyless)] == [of_empty] * 2
    first, null, empty, last = (partition for partition, _ in offsets(span))
    assert (null, empty) == (of_empty, of_empty)
    assert first == last != of_empty


def test_a_column_of_partitions_goes_before_the_keys(build: str) -> None:
    batches = OpenBatches(build)
    for partition in range(3):
        batches.open(partition)
    batches.appender.set_sticky(1, 1000)
    span = append(
        batches,
        batches.of_list([b"v"] * 4),
        batches.of_list([b"k", b"k", None, None]),
        partitions=batches.numbers([2, None, 0, None], row=3),
    )
    batches.acknowledge()
    assert [partition for partition, _ in offsets(span)] == [2, partition_for_key(b"k", 3), 0, 1]


def test_timestamps_and_headers_of_each_and_of_all(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    headers = [[("a", b"1"), ("ü", None)], None, []]
    span = append(
        batches,
        batches.of_list([b"v"] * 3),
        partition=0,
        headers=batches.headers(headers),
        timestamps=batches.numbers([5, None, 0]),
        timestamp=9,
    )
    append(batches, batches.of_list([b"w"]), bulk=batches.bulk(0, [("all", b"")]))
    batches.acknowledge()
    assert batches.records()[0] == [
        (5, None, b"v", (("a", b"1"), ("ü", None))),
        (9, None, b"v", ()),
        (0, None, b"v", ()),
        (7, None, b"w", (("all", b""),)),
    ]
    assert [metadata.timestamp for metadata in span.metadata()] == [5, 9, 0]


def test_the_brokers_timestamp_goes_before(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    span = append(batches, batches.of_list([b"v"] * 2), partition=0, timestamps=batches.numbers([1, 2]))
    batches.results[0].succeed(5, 77)
    assert [(metadata.offset, metadata.timestamp) for metadata in span.metadata()] == [(5, 77), (6, 77)]


def test_it_shares_batches_with_single_appends(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    bulk = batches.bulk(0)
    first = append(batches, batches.of_list([b"0", b"1"]), bulk=bulk)
    delivery = batches.appender.append(0, 8, None, b"2", None)
    second = append(batches, batches.of_list([b"3"]), bulk=bulk)
    batches.acknowledge()
    assert [value for _, _, value, _ in batches.records()[0]] == [b"0", b"1", b"2", b"3"]
    assert (offsets(first), delivery.result().offset, offsets(second)) == ([(0, 0), (0, 1)], 2, [(0, 3)])


# -- where it stops ---


def test_it_stops_where_a_batch_is_full(build: str) -> None:
    batches = OpenBatches(build)
    record = 12
    buffer = batches.open(0, OVERHEAD + 3 * record)
    values = batches.of_list([b"value"] * 5)
    assert len(append(batches, values, partition=0)) == 3
    assert (buffer.record_count, buffer.size) == (3, OVERHEAD + 3 * record)
    assert len(append(batches, values, partition=0, start=3)) == 0


def test_it_stops_where_the_sticky_share_is_used(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(1)
    record = 12
    batches.appender.set_sticky(1, 2 * record + 1)
    values = batches.of_list([b"value"] * 5)
    # The bytes are there, or not: the record that passes the mark still goes in.
    assert len(append(batches, values)) == 3
    assert len(append(batches, values, start=3)) == 0
    assert batches.appender.take_sticky_bytes() == 3 * record


@pytest.mark.parametrize("partition", [-1, 0, 2, 3, 2**31 - 1])
def test_it_stops_where_there_is_no_open_batch(build: str, partition: int) -> None:
    batches = OpenBatches(build)
    batches.open(1)
    assert len(append(batches, batches.of_list([b"v"]), partition=partition)) == 0
    assert batches.buffers[1].record_count == 0


@pytest.mark.parametrize("wrong", ["text", bytearray(b"b"), 5, object], ids=repr)
def test_it_stops_at_what_is_no_bytes(build: str, wrong: Any) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    assert len(append(batches, batches.of_list([b"0", b"1", wrong, b"3"]), partition=0)) == 2
    keys = batches.of_list([b"k", wrong])
    assert len(append(batches, batches.of_list([b"2", b"3"]), keys, partition=0)) == 1
    assert [value for _, _, value, _ in batches.records()[0]] == [b"0", b"1", b"2"]


def test_it_stops_at_partitions_and_timestamps_that_there_are_not(build: str) -> None:
    batches = OpenBatches(build, 2)
    batches.open(0)
    values = batches.of_list([b"v"] * 3)
    for wrong in (-1, -(2**63), 2, 2**63 - 1):
        assert len(append(batches, values, partitions=batches.numbers([0, wrong, 0]))) == 1
    assert len(append(batches, values, partition=0, timestamps=batches.numbers([1, -1, 1]))) == 1


def test_a_sealed_batch_takes_nothing(build: str) -> None:
    batches = OpenBatches(build)
    buffer = batches.open(0)
    values = batches.of_list([b"v"] * 2)
    append(batches, values, partition=0, stop=1)
    buffer.seal()
    assert len(append(batches, values, partition=0, start=1)) == 0
    buffer.release()
    assert len(append(batches, values, partition=0, start=1)) == 0


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 3), (2, 1), (3, 3)])
def test_rows_that_there_are_not(build: str, start: int, stop: int) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    for columns in (
        {"values": batches.of_list([b"v"] * 2)},
        {"values": batches.of_list([b"v"] * 9), "keys": batches.of_arrow([b"k"] * 2)},
        {"values": batches.of_list([b"v"] * 9), "timestamps": batches.numbers([1, 2])},
        {"values": batches.of_list([b"v"] * 9), "headers": batches.headers([[], []])},
    ):
        with pytest.raises(ValueError, match="rows"):
            append(batches, partition=0, start=start, stop=stop, **columns)
    assert batches.buffers[0].record_count == 0


# -- Arrow's memory ---


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("row", [0, 1, 7, 8, 9])
def test_an_arrow_array_and_slices_of_one(build: str, row: int, is_large: bool) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    column = batches.of_arrow(VALUES * 3, row=row, is_large=is_large, nulls_have_bytes=True)
    assert [column.at(index) for index in range(len(column))] == VALUES * 3
    assert len(append(batches, column, partition=0)) == 15
    assert [value for _, _, value, _ in batches.records()[0]] == VALUES * 3
    for wrong in (-1, 15):
        with pytest.raises(IndexError):
            column.at(wrong)


def test_an_array_without_rows_or_bytes(build: str) -> None:
    batches = OpenBatches(build)
    columns = batches.columns
    batches.open(0)
    assert len(append(batches, columns.ByteColumn.of_arrow(0, 0, None, None, None, is_large=False))) == 0
    empty = columns.ByteColumn.of_arrow(2, 0, None, bytes(12), None, is_large=False)
    assert len(append(batches, empty, partition=0)) == 2
    assert [value for _, _, value, _ in batches.records()[0]] == [b"", b""]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    "wrong", [[0, 4, 99], [0, -1, 4], [-1, 2, 4], [3, 2, 4], [0, 4, 2**31 - 1], [-(2**31), 0, 0]], ids=str
)
def test_offsets_that_point_outside_are_never_followed(build: str, wrong: list[int], is_large: bool) -> None:
    batches = OpenBatches(build)
    batches.open(0, 100_000)
    packed = struct.pack("<3q" if is_large else "<3i", *wrong)
    column = batches.columns.ByteColumn.of_arrow(2, 0, None, packed, b"data", is_large=is_large)
    first_is_bad = not 0 <= wrong[0] <= wrong[1] <= 4
    span = append(batches, column, partition=0)
    assert len(span) == (0 if first_is_bad else 1)
    with pytest.raises(ValueError, match="outside"):
        column.at(len(span))
    keyed = append(batches, batches.of_list([b"v"] * 2), column, partition=0)
    assert len(keyed) == len(span)


def test_header_offsets_that_point_outside_and_null_names(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    names, values = batches.of_arrow([b"a", None]), batches.of_arrow([b"1", b"2"])
    for wrong, good_rows in (([0, 1, 2], 1), ([0, 3, 3], 0), ([-1, 1, 1], 0), ([0, 1, 0], 1)):
        headers = batches.columns.HeaderColumn(2, 0, None, struct.pack("<3i", *wrong), names, values)
        span = append(batches, batches.of_list([b"v"] * 2), partition=0, headers=headers)
        assert len(span) == good_rows
        with pytest.raises(ValueError, match="row"):
            headers.at(good_rows)
    bad = batches.columns.ByteColumn.of_arrow(1, 0, None, struct.pack("<2i", 0, 9), b"a", is_large=False)
    for parts in ((bad, values), (names, bad)):
        headers = batches.columns.HeaderColumn(1, 0, None, struct.pack("<2i", 0, 1), *parts)
        assert len(append(batches, batches.of_list([b"v"]), partition=0, headers=headers)) == 0


def test_headers_that_are_encoded_already(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    rows = [[("ap.id", b"%024d" % row), ("n", None), ("é", b"")] for row in range(5)]
    # By hand, from the format: the count, then each name and value behind its length, all as zigzag varints.
    encoded = b"".join(b"\x06\x0aap.id\x30%024d\x02n\x01\x04\xc3\xa9\x00" % row for row in range(5))
    headers = batches.columns.HeaderColumn.of_encoded(5, len(encoded) // 5, encoded)
    assert [headers.at(row) for row in range(5)] == rows
    assert len(headers) == 5
    span = append(batches, batches.of_list(list(VALUES)), partition=0, headers=headers, start=1)
    assert len(span) == 4
    assert batches.records()[0] == [(7, None, VALUES[row], tuple(rows[row])) for row in range(1, 5)]
    with pytest.raises(IndexError):
        headers.at(5)


def test_encoded_headers_of_no_bytes_or_in_too_little_memory(build: str) -> None:
    columns = OpenBatches(build).columns
    for length, width in ((2, 0), (2, -1), (-1, 8)):
        with pytest.raises(ValueError, match="of some bytes"):
            columns.HeaderColumn.of_encoded(length, width, bytes(80))
    with pytest.raises(ValueError, match="too short"):
        columns.HeaderColumn.of_encoded(2, 8, bytes(15))
    assert len(columns.HeaderColumn.of_encoded(0, 8, b"")) == 0


@pytest.mark.parametrize("part", ["validity", "offsets"])
def test_a_buffer_that_is_too_short(build: str, part: str) -> None:
    columns = OpenBatches(build).columns
    layout = bytes_layout([b"x", None] * 5, row=3)
    with pytest.raises(ValueError, match="too short"):
        columns.ByteColumn.of_arrow(**{**layout, part: layout[part][:-1]})
    with pytest.raises(ValueError, match="too short"):
        columns.LongColumn(2, 1, None, bytes(23))
    with pytest.raises(ValueError, match="too short"):
        columns.LongColumn(2, 7, b"\xff", bytes(80))
    values = columns.ByteColumn([])
    with pytest.raises(ValueError, match="too short"):
        columns.HeaderColumn(2, 0, None, bytes(11), values, values)


def test_lengths_that_no_array_has(build: str) -> None:
    columns = OpenBatches(build).columns
    values = columns.ByteColumn([])
    for length, row in ((-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="ever negative"):
            columns.ByteColumn.of_arrow(length, row, None, bytes(80), b"", is_large=False)
        with pytest.raises(ValueError, match="ever negative"):
            columns.LongColumn(length, row, None, bytes(80))
        with pytest.raises(ValueError, match="ever negative"):
            columns.HeaderColumn(length, row, None, bytes(80), values, values)


def test_memory_that_is_not_aligned_or_not_contiguous(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    layout = bytes_layout(VALUES)
    shifted = memoryview(b"." + layout["offsets"])[1:]
    column = batches.columns.ByteColumn.of_arrow(**{**layout, "offsets": shifted})
    assert [column.at(index) for index in range(5)] == VALUES
    assert len(append(batches, column, partition=0)) == 5
    with pytest.raises(ValueError, match="contiguous"):
        batches.columns.ByteColumn.of_arrow(**{**layout, "offsets": memoryview(layout["offsets"])[::2]})


def test_a_list_that_shrinks_between_two_calls(build: str) -> None:
    batches = OpenBatches(build)
    batches.open(0)
    items: list[Any] = [b"0", b"1", b"2"]
    column = batches.of_list(items)
    append(batches, column, partition=0, stop=1)
    del items[1:]
    with pytest.raises(ValueError, match="rows"):
        append(batches, column, partition=0, start=1, stop=3)


# -- spans ---


def test_a_whole_batch_as_a_span(build: str) -> None:
    batches = OpenBatches(build)
    buffer = batches.open(2)
    rows = [
        (2**63 - 1, b"k", b"v", [("h", b"x" * 300)]),
        (0, None, None, None),
        (5, b"", b"x" * 200, None),
        (2**63 - 1, b"k" * 70, b"", None),
    ]
    for row in rows:
        buffer.try_append(*row)
    span = batches.record_span.span_of_batch(buffer, batches.results[2])
    batches.acknowledge()
    assert span.metadata() == [
        (
            "topic",
            2,
            2 * BASE_OFFSET + index,
            at,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
        for index, (at, key, value, _) in enumerate(rows)
    ]


def test_a_span_that_is_not_settled(build: str) -> None:
    batches = OpenBatches(build, 2)
    batches.open(0)
    batches.open(1)
    span = append(batches, batches.of_list([b"v"] * 3), partitions=batches.numbers([0, 1, 0]))
    assert (span.settled(), span.is_acknowledged) == (0, False)
    batches.results[0].succeed(4)
    assert (span.settled(), span.is_acknowledged) == (2, False)
    assert span.probe(batches.results[1]).partition == 1
    batches.results[1].succeed(-1)
    assert (span.settled(), span.is_acknowledged) == (3, True)
    assert offsets(span) == [(0, 4), (1, -1), (0, 5)]
    for wrong in (-1, 3):
        with pytest.raises(IndexError):
            span.future(wrong)


def test_the_writer_refuses_what_does_not_fit() -> None:
    """Interpreted alone: compiled it can only be called in C."""
    native = native_module("record_batch", "interpreted")
    batch = native.RecordBatchBuffer(
        bytearray(native.RECORD_BATCH_OVERHEAD + 13), native.RECORD_BATCH_OVERHEAD + 12
    )
    assert native.put_record(batch, 1, b"", -1, b"value", 5, b"", 0) == 0
    assert list(batch.iter_records()) == [(1, None, b"value", ())]
    assert batch.records_view() == bytes([22, 0, 0, 0, 1, 10]) + b"value" + bytes(1)
    smaller = native.RecordBatchBuffer(
        bytearray(native.RECORD_BATCH_OVERHEAD + 12), native.RECORD_BATCH_OVERHEAD + 11
    )
    assert native.put_record(smaller, 1, b"", -1, b"value", 5, b"", 0) == -1
    assert (smaller.record_count, smaller.size) == (0, native.RECORD_BATCH_OVERHEAD)
