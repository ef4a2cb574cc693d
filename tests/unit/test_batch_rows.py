"""The records of a batch as columns, in both builds: what was appended is read; hostile bytes raise or stay inside.

The batches are written by the producer's encoder, which other decoders check in `test_record_batch.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native_builds import BUILDS, native_build
from tests.unit.bulk_harness import OpenBatches

_HEADER = 61

payload = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 127, b"x" * 128])
header = st.tuples(st.text(max_size=4), payload)
record = st.tuples(st.integers(0, 2**62), payload, payload, st.none() | st.lists(header, max_size=3))
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def _batch(native: Any, records: list[Record]) -> memoryview:
    buffer = native.record_batch.RecordBatchBuffer(bytearray(100_000))
    for timestamp, key, value, headers in records:
        assert buffer.try_append(timestamp, key, value, headers) >= 0
    pieces, _ = buffer.seal()
    return memoryview(b"".join(pieces))


def _rows(native: Any, batch: memoryview, records: list[Record]) -> Any:
    return native.batch_rows.BatchRows(batch, len(records), records[0][0])


@pytest.mark.parametrize("build", BUILDS)
@settings(max_examples=60)
@given(records=st.lists(record, min_size=1, max_size=12))
def test_each_record_is_read_as_it_was_appended(build: str, records: list[Record]) -> None:
    native = native_build(build)
    rows = _rows(native, _batch(native, records), records)
    for row, (timestamp, key, value, headers) in enumerate(records):
        assert rows.timestamps.at(row) == timestamp
        assert rows.values.at(row) == value
        assert (None if rows.keys is None else rows.keys.at(row)) == key
        assert list((rows.headers and rows.headers.at(row)) or ()) == list(headers or ())
    assert (rows.keys is None) == all(key is None for _, key, _, _ in records)
    assert (rows.headers is None) == (not any(headers for _, _, _, headers in records))


@pytest.mark.parametrize("build", BUILDS)
@settings(max_examples=60)
@given(records=st.lists(record, min_size=1, max_size=6), data=st.data())
def test_hostile_bytes_raise_or_give_rows_within_the_batch(
    build: str, records: list[Record], data: Any
) -> None:
    native = native_build(build)
    batch = bytearray(_batch(native, records))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(_HEADER, len(batch) - 1))] = data.draw(st.integers(0, 255))
    kept = batch[: data.draw(st.integers(_HEADER, len(batch)))]
    try:
        rows = _rows(native, memoryview(bytes(kept)), records)
    except (ValueError, OverflowError):
        return
    for row in range(len(records)):
        for column in (rows.values, rows.keys):
            if column is not None:
                found = column.at(row)
                assert found is None or found in bytes(kept)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda batch: batch[:-1], "bytes"),
        (lambda batch: batch + b"\0", "behind the last"),
        (lambda batch: batch[:_HEADER] + b"\xff" * 11 + batch[_HEADER:], "does not end"),
    ],
)
def test_what_is_wrong_is_named(build: str, change: Any, told: str) -> None:
    native = native_build(build)
    records: list[Record] = [(5, b"key", b"value", None)]
    changed = memoryview(bytes(change(bytes(_batch(native, records)))))
    with pytest.raises(ValueError, match=told):
        _rows(native, changed, records)


@pytest.mark.parametrize("build", BUILDS)
def test_more_records_than_bytes_are_refused(build: str) -> None:
    native = native_build(build)
    with pytest.raises(ValueError, match="1000 records"):
        native.batch_rows.BatchRows(memoryview(bytes(100)), 1000, 0)


@pytest.mark.parametrize("build", BUILDS)
@settings(max_examples=30)
@given(records=st.lists(record, min_size=1, max_size=12), number=st.integers(0, 2**60))
def test_rows_go_into_another_batch_with_numbers_of_the_caller(
    build: str, records: list[Record], number: int
) -> None:
    native = native_build(build)
    rows = _rows(native, _batch(native, records), records)
    batches = OpenBatches(build, 1)
    target = batches.open(0, 100_000)
    numbers = native.record_numbers.RecordNumbers(b"i" * 16, number)
    bulk = native.bulk_append.BulkAppender(batches.appender, 0, b"", numbers)
    span = bulk.append(rows.values, rows.keys, rows.headers, None, rows.timestamps, 0, 0, len(records))
    assert len(span) == len(records)
    pieces, _ = target.seal()
    again = _rows(native, memoryview(b"".join(pieces)), records)
    for row, (timestamp, key, value, headers) in enumerate(records):
        assert (again.timestamps.at(row), again.values.at(row)) == (timestamp, value)
        assert (None if again.keys is None else again.keys.at(row)) == key
        *own, last = again.headers.at(row)
        assert own == list(headers or ())
        assert last == ("ap.id", b"i" * 16 + (number + row).to_bytes(8, "big"))
