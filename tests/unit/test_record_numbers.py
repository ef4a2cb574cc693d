"""Numbers in records: the same bytes as a header that a user gives, and the same in both builds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.audit import pack_stamp
from aioproduce.errors import InvalidHeadersError, InvalidTimestampError
from tests.native_builds import BUILDS, native_build

PRODUCER_ID = bytes(range(16))
KEYS = st.none() | st.binary(max_size=70)
VALUES = st.none() | st.binary(max_size=200)
MANY = st.lists(st.just(("", None)), min_size=63, max_size=70)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=10), st.none() | st.binary(max_size=70)),
    max_size=5,
)
RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 2**63 - 1),
        KEYS,
        VALUES,
        HEADERS | st.lists(st.just(("", None)), min_size=63, max_size=70),
    ),
    max_size=12,
)


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    return native_build(request.param)


def numbers_of(native: SimpleNamespace) -> Any:
    return native.record_numbers.RecordNumbers(PRODUCER_ID)


def batch_of(native: SimpleNamespace, size: int = 1024) -> Any:
    return native.record_batch.RecordBatchBuffer(bytearray(size))


@pytest.mark.parametrize("build", BUILDS)
@settings(deadline=None)
@given(records=RECORDS, size=st.integers(61, 3000), skipped=st.integers(0, 2**40))
def test_a_numbered_record_has_the_bytes_of_one_with_that_header(
    build: str, records: list[Any], size: int, skipped: int
) -> None:
    native = native_build(build)
    numbers = numbers_of(native)
    ours, plain = batch_of(native, size), batch_of(native, size)
    for timestamp, key, value, headers in records:
        number = numbers.next
        index = numbers.append(ours, timestamp, key, value, headers)
        stamped = [*(headers or ()), ("ap.id", pack_stamp(PRODUCER_ID, number))]
        assert index == plain.try_append(timestamp, key, value, stamped)
        assert numbers.next == number + (index >= 0)
    assert (ours.record_count, ours.size) == (plain.record_count, plain.size)
    assert (ours.base_timestamp, ours.max_timestamp) == (plain.base_timestamp, plain.max_timestamp)
    assert ours.largest_record == plain.largest_record
    assert bytes(ours.records_view()) == bytes(plain.records_view())
    runs = native.record_numbers.number_runs(ours)
    assert runs == ([(0, ours.record_count - 1)] if ours.record_count else [])
    assert native.record_numbers.number_runs(ours, 1) == ([(0, 0)] if ours.record_count else [])


def test_numbers_go_over_all_batches_and_come_back_as_runs(native: SimpleNamespace) -> None:
    numbers = numbers_of(native)
    one, other = batch_of(native), batch_of(native)
    for batch in (one, one, other, one, other, other, one):
        numbers.append(batch, 1, b"k", b"v", [("a", b"1")] if batch is one else None)
    assert native.record_numbers.number_runs(one) == [(0, 1), (3, 3), (6, 6)]
    assert native.record_numbers.number_runs(other) == [(2, 2), (4, 5)]
    one.seal()
    assert native.record_numbers.number_runs(one) == [(0, 1), (3, 3), (6, 6)]
    one.release()
    assert native.record_numbers.number_runs(one) == []


def test_what_does_not_fit_and_what_is_refused_takes_no_number(native: SimpleNamespace) -> None:
    numbers = numbers_of(native)
    batch = batch_of(native, 150)
    assert numbers.append(batch, 1, None, b"v", None) == 0
    assert numbers.append(batch, 1, None, b"v" * 100, None) == -1
    with pytest.raises(InvalidHeadersError):
        numbers.append(batch, 1, None, b"v", [("a", 1)])
    with pytest.raises(InvalidTimestampError):
        numbers.append(batch, -2, None, b"v", None)
    assert numbers.append(batch, 1, None, b"v", None) == 1
    assert numbers.next == 2
    assert list(batch.iter_records())[1] == (1, None, b"v", (("ap.id", pack_stamp(PRODUCER_ID, 1)),))


def test_an_id_has_16_bytes(native: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        native.record_numbers.RecordNumbers(b"*" * 15)


@pytest.mark.parametrize("shared", [b"", b"encoded"], ids=["no headers", "headers of all rows"])
def test_rows_of_columns_are_numbered_as_records_are(native: SimpleNamespace, shared: bytes) -> None:
    numbers = numbers_of(native)
    appender = native.topic_appender.TopicAppender(0)
    appender.set_partition_count(2)
    appender.set_numbers(numbers)
    batches = [batch_of(native, 150), batch_of(native, 4000)]
    for partition, batch in enumerate(batches):
        appender.open(partition, batch, native.delivery.BatchResult("t", partition, SimpleNamespace()))
    headers = [("all", b"rows")] if shared else None
    encoded = native.record_batch.encode_headers(headers)
    bulk = native.bulk_append.BulkAppender(appender, 1, encoded)
    values = native.columns.ByteColumn([b"a", b"b", b"c"])
    assert len(bulk.append(values, None, None, None, None, 7, 0, 3)) == 3
    assert appender.append(1, 7, None, b"d", [("x", b"y")]) is not None
    assert len(bulk.append(values, None, None, None, None, 7, 1, 3)) == 2
    # Into a batch that has no room for all: what does not fit has no number.
    small = native.bulk_append.BulkAppender(appender, 0, encoded)
    placed = len(small.append(values, None, None, None, None, 7, 0, 3))
    assert placed < 3
    assert appender.append(1, 7, None, b"e", None) is not None
    expected = [(value, headers or []) for value in (b"a", b"b", b"c")]
    expected += [(b"d", [("x", b"y")]), *((value, headers or []) for value in (b"b", b"c")), (b"e", [])]
    at = [*range(6), 6 + placed]
    assert list(batches[1].iter_records()) == [
        (7, None, value, (*given, ("ap.id", pack_stamp(PRODUCER_ID, number))))
        for (value, given), number in zip(expected, at, strict=True)
    ]
