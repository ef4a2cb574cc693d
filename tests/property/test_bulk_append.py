"""Rows appended at once against the same rows appended one by one, in both builds, over any columns.

The reference is `TopicAppender.append()`, whose bytes other decoders read in `test_record_batch.py`.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native_builds import BUILDS
from tests.unit.bulk_harness import OpenBatches

PARTITIONS = 4

payload = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 127, b"x" * 128, b"k"])
header = st.tuples(st.text(max_size=4), payload)
timestamp = st.none() | st.integers(0, 2**63 - 1)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Rows, and what is told of each or of all."""
    count = draw(st.integers(0, 30))

    def column(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any] | None]:
        return st.none() | st.lists(items, min_size=count, max_size=count)

    return {
        "values": draw(st.lists(payload, min_size=count, max_size=count)),
        "keys": draw(column(payload)),
        "headers": draw(column(st.none() | st.lists(header, max_size=3))),
        "partitions": draw(column(st.none() | st.integers(-1, PARTITIONS))),
        "timestamps": draw(column(timestamp)),
        "partition": draw(st.integers(-1, PARTITIONS)),
        "timestamp": draw(st.integers(0, 2**63 - 1)),
        "common": draw(st.none() | st.lists(header, max_size=2)),
        "is_arrow": draw(st.booleans()),
        "is_large": draw(st.booleans()),
        "row": draw(st.integers(0, 9)),
        "start": draw(st.integers(0, count)),
    }


def prepared(build: str, setting: dict[str, Any]) -> OpenBatches:
    batches = OpenBatches(build, PARTITIONS, ignore_keys=setting["ignore_keys"])
    for partition, size in setting["sizes"].items():
        batches.open(partition, size)
    batches.appender.set_sticky(setting["sticky"], setting["left"])
    return batches


def at_once(batches: OpenBatches, call: dict[str, Any]) -> list[Any]:
    def of_bytes(items: list[Any] | None) -> Any:
        if call["is_arrow"]:
            return batches.of_arrow(items, row=call["row"], is_large=call["is_large"], nulls_have_bytes=True)
        return batches.of_list(items)

    span = batches.bulk(call["partition"], call["common"]).append(
        of_bytes(call["values"]),
        of_bytes(call["keys"]),
        batches.headers(call["headers"]),
        batches.numbers(call["partitions"], row=call["row"]),
        batches.numbers(call["timestamps"]),
        call["timestamp"],
        call["start"],
        len(call["values"]),
    )
    batches.acknowledge()
    metadata = span.metadata()
    assert len(metadata) == len(span)
    assert [span.future(index).result() for index in range(len(span))] == metadata
    return list(metadata)


def one_by_one(batches: OpenBatches, call: dict[str, Any]) -> list[Any]:
    deliveries = []
    for index in range(call["start"], len(call["values"])):
        partition, at, headers = call["partition"], call["timestamp"], call["common"]
        if call["partitions"] is not None and call["partitions"][index] is not None:
            partition = call["partitions"][index]
            if partition < 0:
                break
        if call["timestamps"] is not None and call["timestamps"][index] is not None:
            at = call["timestamps"][index]
        if call["headers"] is not None:
            headers = call["headers"][index]
        key = None if call["keys"] is None else call["keys"][index]
        delivery = batches.appender.append(partition, at, key, call["values"][index], headers)
        if delivery is None:
            break
        deliveries.append(delivery)
    batches.acknowledge()
    return [delivery.result() for delivery in deliveries]


@settings(max_examples=250, deadline=None)
@given(
    call=calls(),
    setting=st.fixed_dictionaries(
        {
            "ignore_keys": st.booleans(),
            "sizes": st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(61, 1500)),
            "sticky": st.integers(-1, PARTITIONS - 1),
            "left": st.integers(-1, 500),
        }
    ),
)
def test_at_once_is_one_by_one(call: dict[str, Any], setting: dict[str, Any]) -> None:
    outcomes = []
    for append in (at_once, one_by_one):
        for build in BUILDS:
            batches = prepared(build, setting)
            told = append(batches, call)
            counters = {
                partition: (buffer.record_count, buffer.size, buffer.base_timestamp, buffer.max_timestamp)
                for partition, buffer in batches.buffers.items()
            }
            contents = {
                partition: bytes(buffer.records_view()) for partition, buffer in batches.buffers.items()
            }
            outcomes.append((told, counters, contents, batches.appender.take_sticky_bytes()))
    assert outcomes[0] == outcomes[1] == outcomes[2] == outcomes[3]


rows = st.tuples(st.integers(0, 2**63 - 1), payload, payload, st.none() | st.lists(header, max_size=3))


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(rows, min_size=1, max_size=30))
def test_a_whole_batch_is_read_as_it_was_written(rows: list[Any]) -> None:
    for build in BUILDS:
        batches = OpenBatches(build, 1)
        buffer = batches.open(0, 30_000)
        futures = [
            batches.appender.append(0, at, key, value, headers or None) for at, key, value, headers in rows
        ]
        span = batches.record_span.span_of_batch(buffer, batches.results[0])
        batches.acknowledge()
        assert span.metadata() == [future.result() for future in futures]


@settings(max_examples=300, deadline=None)
@given(
    length=st.integers(0, 6),
    row=st.integers(0, 3),
    offsets=st.lists(st.integers(-3, 12) | st.integers(-(2**31), 2**31 - 1), min_size=10, max_size=10),
    validity=st.none() | st.binary(min_size=2, max_size=2),
    data=st.none() | st.binary(max_size=10),
    is_large=st.booleans(),
    names=st.lists(st.none() | st.binary(max_size=3), max_size=8),
)
def test_arrow_memory_that_is_anything_at_all(
    length: int,
    row: int,
    offsets: list[int],
    validity: bytes | None,
    data: bytes | None,
    is_large: bool,
    names: list[bytes | None],
) -> None:
    """Neither build reads outside of what it was given, and both stop at the same row."""
    outcomes = []
    for build in BUILDS:
        batches = OpenBatches(build, 1)
        batches.open(0, 5_000)
        packed = struct.pack(f"<10{'q' if is_large else 'i'}", *offsets)
        column = batches.columns.ByteColumn.of_arrow(length, row, validity, packed, data, is_large=is_large)
        headers = batches.columns.HeaderColumn(
            length,
            row,
            validity,
            struct.pack("<10i", *offsets),
            batches.of_arrow(names),
            batches.of_arrow(list(reversed(names))),
        )
        told = []
        for values, keys, of_each in (
            (column, None, None),
            (batches.of_list([b"v"] * length), column, None),
            (batches.of_list([b"v"] * length), None, headers),
        ):
            span = batches.bulk(0).append(values, keys, of_each, None, None, 1, 0, length)
            told.append(len(span))
        outcomes.append((told, bytes(batches.buffers[0].records_view())))
        for index in range(length):
            begin, end = offsets[row + index : row + index + 2]
            is_null = validity is not None and not validity[(row + index) // 8] >> (row + index) % 8 & 1
            if is_null or 0 <= begin <= end <= len(data or b""):
                assert column.at(index) == (None if is_null else (data or b"")[begin:end])
            else:
                assert told[0] <= index
                with pytest.raises(ValueError, match="outside"):
                    column.at(index)
    assert outcomes[0] == outcomes[1]
