"""The compiled record batch against itself interpreted, and against other decoders, over any records."""

from __future__ import annotations

from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from tests.native_builds import native_module

COMPILED = native_module("record_batch", "imported")
INTERPRETED = native_module("record_batch", "interpreted")

payloads = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(st.tuples(st.text(max_size=20), payloads), max_size=5)


def records(timestamps: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(timestamps, payloads, payloads, headers), max_size=30)


@settings(max_examples=200)
@given(
    records=records(st.integers(-1, 2**63 - 1)),
    capacity=st.integers(61, 4000),
    producer=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
)
def test_both_builds_write_the_same_bytes(
    records: list[tuple[Any, ...]], capacity: int, producer: tuple[int, int, int]
) -> None:
    outcomes = []
    for native in (COMPILED, INTERPRETED):
        buffer = bytearray(4000)
        batch = native.RecordBatchBuffer(buffer, capacity)
        answers = [batch.try_append(*record) for record in records]
        bounds = [native.record_size_upper_bound(*record[1:]) for record in records]
        counters = (batch.record_count, batch.size, batch.base_timestamp, batch.max_timestamp)
        read_back = list(batch.iter_records())
        if batch.record_count:
            producer_id, epoch, sequence = producer
            buffers, size = batch.seal(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            assert sum(map(len, buffers)) == size == batch.size
        assert batch.size <= capacity
        outcomes.append((bytes(buffer), answers, bounds, counters, read_back))
    assert outcomes[0] == outcomes[1]
    accepted = [record for record, answer in zip(records, answers, strict=True) if answer >= 0]
    assert read_back == [(time, key, value, tuple(found or ())) for time, key, value, found in accepted]
    assert [answer for answer in answers if answer >= 0] == list(range(len(accepted)))


# The decoders compute in their own widths: timestamps here are what a clock says, up to the year 9999.
@settings(max_examples=100)
@given(records=records(st.integers(0, 253402300799999)))
def test_other_decoders_read_every_record(records: list[tuple[Any, ...]]) -> None:
    batch = COMPILED.RecordBatchBuffer(bytearray(61 + 30 * 2500))
    for index, record in enumerate(records):
        assert batch.try_append(*record) == index
    if not records:
        return
    (view,), size = batch.seal()
    data = bytes(view)
    decoded = DefaultRecordBatch(data)
    assert decoded.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decoded] == [
        (index, time, key, value, list(found or ()))
        for index, (time, key, value, found) in enumerate(records)
    ]
    checked, read = read_batch(data, 0)
    assert read == size
    assert len(checked.records) == len(records)
    assert checked.max_timestamp == max(record[0] for record in records)
