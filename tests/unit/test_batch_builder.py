"""`BatchBuilder`: what it takes, when it is full, and that it is sent once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aioproduce.config import ProducerConfig
from aioproduce.errors import (
    BatchClosedError,
    InvalidHeadersError,
    InvalidTimestampError,
    RecordTooLargeError,
    SerializationError,
)
from aioproduce.producer.batches import BatchBuilder, BatchPartitions
from aioproduce.producer.input import RecordInput

OVERHEAD = 61
NOW_MS = 1_700_000_000_000
RECORD = 12
"""A null key and a value of 5 bytes: length, attributes, timestamp, offset, null key, 1 + 5, headers."""


def builder(max_size: int | None = None, **settings: Any) -> BatchBuilder[Any, Any]:
    config = ProducerConfig.from_keywords(bootstrap_servers="localhost:9092", **settings)
    return BatchBuilder(RecordInput(config), config, lambda: NOW_MS, max_size)


def contents(batch: BatchBuilder[Any, Any]) -> list[Any]:
    with batch._being_sent() as records:
        return list(records.iter_records())


def test_records_in_their_order_with_all_that_they_have() -> None:
    batch = builder()
    assert batch.append(b"0", timestamp=5) == 0
    assert (
        batch.append(
            None, b"key", timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), headers={"h": b"1"}.items()
        )
        == 1
    )
    assert batch.append(bytearray(b"2"), memoryview(b"k"), timestamp=6, headers=[("h", None)]) == 2
    assert (len(batch), batch.record_count) == (3, 3)
    assert contents(batch) == [
        (5, None, b"0", ()),
        (1000, b"key", None, (("h", b"1"),)),
        (6, b"k", b"2", (("h", None),)),
    ]


def test_a_record_without_a_timestamp_gets_the_time_of_its_append() -> None:
    batch = builder()
    batch.append(b"one")
    batch.append_many([b"two", b"three"])
    assert [at for at, *_ in contents(batch)] == [NOW_MS] * 3


def test_a_full_batch_says_so_and_stays_as_it_was() -> None:
    batch = builder(OVERHEAD + 2 * RECORD)
    assert [batch.append(b"value", timestamp=1) for _ in range(3)] == [0, 1, None]
    assert (batch.record_count, batch.size) == (2, OVERHEAD + 2 * RECORD)
    assert batch.append(b"", timestamp=1) is None
    assert "2 records" in repr(batch)


def test_many_at_once_as_far_as_they_fit() -> None:
    values = [b"value"] * 10
    batch = builder(OVERHEAD + 4 * RECORD)
    assert batch.append_many(values, timestamp=1, start=7) == 3
    assert batch.append_many(values, timestamp=1) == 1
    assert batch.append_many(values, timestamp=1) == 0
    assert batch.append_many([], timestamp=1) == 0
    assert contents(batch) == [(1, None, b"value", ())] * 4


def test_many_with_keys_headers_and_what_is_no_plain_bytes() -> None:
    batch = builder()
    values = (b"0", bytearray(b"1"), None, memoryview(b"3"))
    assert (
        batch.append_many(values, [None, b"a", bytearray(b"b"), b""], timestamp=9, headers=[("h", b"x")]) == 4
    )
    assert [(key, value) for _, key, value, _ in contents(batch)] == [
        (None, b"0"),
        (b"a", b"1"),
        (b"b", None),
        (b"", b"3"),
    ]


def test_serializers() -> None:
    batch = builder(value_serializer=str.encode, key_serializer=lambda key: b"%d" % key)
    assert batch.append("zero", 0, timestamp=1) == 0
    assert batch.append_many(["one", "two", None], [1, None, 3], timestamp=1) == 3
    with pytest.raises(SerializationError):
        batch.append(b"bytes have no encode()")
    assert [(key, value) for _, key, value, _ in contents(batch)] == [
        (b"0", b"zero"),
        (b"1", b"one"),
        (None, b"two"),
        (b"3", None),
    ]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"value": "text"}, SerializationError),
        ({"value": b"", "key": 5}, SerializationError),
        ({"value": b"", "timestamp": -1}, InvalidTimestampError),
        ({"value": b"", "timestamp": 2**63}, InvalidTimestampError),
        ({"value": b"", "headers": [("h",)]}, InvalidHeadersError),
        ({"value": b"", "headers": "text"}, InvalidHeadersError),
    ],
    ids=repr,
)
def test_what_is_refused_changes_nothing(wrong: dict[str, Any], error: type[Exception]) -> None:
    batch = builder()
    batch.append(b"before", timestamp=1)
    with pytest.raises(error):
        batch.append(**wrong)
    with pytest.raises(error):
        batch.append_many([wrong.pop("value")], None if "key" not in wrong else [wrong.pop("key")], **wrong)
    assert contents(batch) == [(1, None, b"before", ())]


def test_many_stop_at_the_one_that_is_refused() -> None:
    batch = builder()
    with pytest.raises(SerializationError):
        batch.append_many([b"0", b"1", "two", b"3"], timestamp=1)
    assert [value for _, _, value, _ in contents(batch)] == [b"0", b"1"]


def test_as_many_keys_as_values() -> None:
    batch = builder()
    with pytest.raises(ValueError, match="as many keys"):
        batch.append_many([b"0", b"1"], [b"k"])
    assert batch.record_count == 0


def test_a_record_larger_than_the_batch_is_let_in_alone() -> None:
    batch = builder(100)
    assert batch.append(b"x" * 500, timestamp=1) == 0
    assert batch.append(b"y" * 40, timestamp=1) is None
    many = builder(100)
    assert many.append_many([b"x" * 500, b"y" * 40], timestamp=1) == 1
    assert many.append_many([b"y" * 40], timestamp=1) == 0
    other = builder(100)
    other.append(b"first", timestamp=1)
    assert other.append(b"x" * 500, timestamp=1) is None
    assert [value for _, _, value, _ in contents(many)] == [b"x" * 500]


@pytest.mark.parametrize(
    ("settings", "limited_by"),
    [
        ({"max_request_size": 1000}, "max.request.size"),
        ({"buffer_memory": 1000, "batch_size": 500}, "buffer.memory"),
    ],
)
def test_limits(settings: dict[str, Any], limited_by: str) -> None:
    with pytest.raises(RecordTooLargeError) as caught:
        builder(1001, **settings)
    assert (caught.value.size, caught.value.limit, caught.value.limited_by) == (1001, 1000, limited_by)
    batch = builder(1000, **settings)
    with pytest.raises(RecordTooLargeError) as caught:
        batch.append(b"x" * 1000)
    assert caught.value.limited_by == limited_by
    with pytest.raises(RecordTooLargeError):
        batch.append_many([b"x" * 1000])
    assert batch.record_count == 0


@pytest.mark.parametrize("size", [-1, 0, OVERHEAD])
def test_too_small_for_any_record(size: int) -> None:
    with pytest.raises(ValueError, match="max_size"):
        builder(size)


def test_the_size_is_that_of_batches() -> None:
    batch = builder(batch_size=OVERHEAD + RECORD)
    assert [batch.append(b"value", timestamp=1) for _ in range(2)] == [0, None]
    one_a_batch = builder(batch_size=0)
    assert [one_a_batch.append(b"value", timestamp=1) for _ in range(2)] == [0, 1]


def test_closed_it_takes_no_more() -> None:
    batch = builder()
    batch.append(b"0", timestamp=1)
    states = [batch.is_closed]
    batch.close()
    batch.close()
    assert [*states, batch.is_closed] == [False, True]
    with pytest.raises(BatchClosedError):
        batch.append(b"1")
    with pytest.raises(BatchClosedError):
        batch.append_many([b"1"])
    assert len(contents(batch)) == 1


def test_it_is_sent_once_unless_that_failed() -> None:
    batch = builder()
    batch.append(b"0", timestamp=1)
    with pytest.raises(LookupError), batch._being_sent():
        raise LookupError
    with pytest.raises(BatchClosedError):
        batch.append(b"1")
    with batch._being_sent() as records:
        assert records.record_count == 1
        with pytest.raises(BatchClosedError, match="sent once"), batch._being_sent():
            pass
    with pytest.raises(BatchClosedError, match="sent once"), batch._being_sent():
        pass
    assert (batch.record_count, batch.is_closed) == (1, True)


# -- where they go without a partition ---


class View:
    def __init__(self, count: int, available: tuple[int, ...]) -> None:
        self.partition_count = count
        self.available = available


def test_each_topic_has_its_sticky_choice_that_changes_after_batch_size_bytes() -> None:
    """KIP-794: the next partition is chosen once batch.size bytes went to one."""
    random = iter([2, 0, 1, 0, 0, 0])
    partitions = BatchPartitions(1000, lambda _count: next(random))
    three, one = View(3, (0, 1, 2)), View(5, (4, 3))

    assert [partitions.choose("t", three, size) for size in (400, 400, 400)] == [2, 2, 2]
    assert partitions.choose("t", three, 400) == 0
    assert partitions.choose("other", one, 999) == 3
    assert partitions.choose("other", one, 1) == 3
    # The topic was made again, and has fewer than the choice that this led to.
    assert partitions.choose("other", View(1, ()), 5000) == 0


def test_large_batches_ask_each_time() -> None:
    random = iter([1, 2, 0, 0])
    partitions = BatchPartitions(1000, lambda _count: next(random))
    three = View(3, (0, 1, 2))

    assert [partitions.choose("t", three, 1000) for _ in range(3)] == [1, 2, 0]
