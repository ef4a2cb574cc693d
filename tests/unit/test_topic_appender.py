"""`TopicAppender`: what it appends by itself, what it leaves to be decided, and the same in both builds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproduce._native.key_hash import MURMUR2, NO_HASH, partition_for_key
from aioproduce.errors import InvalidHeadersError
from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime

NO_PARTITION = -1
RECORD = 12
"""A null key and a value of 5 bytes: length, attributes, timestamp, offset, null key, 1 + 5, headers."""


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The module under test and those it works with, compiled and interpreted."""
    return native_build(request.param)


class Batches:
    """An appender with open batches, as the accumulator would keep them."""

    def __init__(self, native: SimpleNamespace, count: int = 3, *, ignore_keys: bool = False) -> None:
        self.native = native
        self.appender = native.topic_appender.TopicAppender(NO_HASH if ignore_keys else MURMUR2)
        self.appender.set_partition_count(count)
        self.buffers: dict[int, Any] = {}

    def open(self, partition: int, size: int = 1024) -> Any:
        buffer = self.buffers[partition] = self.native.record_batch.RecordBatchBuffer(bytearray(size))
        result = self.native.delivery.BatchResult("topic", partition, NoLoopRuntime())
        self.appender.open(partition, buffer, result)
        return buffer

    def append(
        self, partition: int = NO_PARTITION, key: bytes | None = None, value: bytes | None = b"value"
    ) -> Any:
        return self.appender.append(partition, 1000, key, value, None)


def test_a_record_goes_into_the_open_batch_of_its_partition(native: SimpleNamespace) -> None:
    batches = Batches(native)
    batches.open(2)
    for index in range(3):
        delivery = batches.append(2, key=b"k")
        assert type(delivery) is native.delivery.DeliveryFuture
        assert (delivery.topic, delivery.partition) == ("topic", 2)
        assert list(batches.buffers[2].iter_records())[index] == (1000, b"k", b"value", ())


def test_the_future_knows_index_timestamp_and_sizes(native: SimpleNamespace) -> None:
    appender = native.topic_appender.TopicAppender(MURMUR2)
    appender.set_partition_count(1)
    result = native.delivery.BatchResult("topic", 0, NoLoopRuntime())
    appender.open(0, native.record_batch.RecordBatchBuffer(bytearray(1024)), result)
    deliveries = [
        appender.append(0, 5, b"key", None, None),
        appender.append(0, 6, None, b"", [("h", None)]),
        appender.append(0, 2**63 - 1, b"", b"value", ()),
    ]
    result.succeed(100)
    assert [delivery.result() for delivery in deliveries] == [
        ("topic", 0, 100, 5, 3, -1),
        ("topic", 0, 101, 6, -1, 0),
        ("topic", 0, 102, 2**63 - 1, 0, 5),
    ]


def test_without_an_open_batch_there_is_something_to_decide(native: SimpleNamespace) -> None:
    batches = Batches(native)
    assert batches.append(0) is None
    batches.open(1)
    assert batches.append(0) is None
    assert batches.append(2) is None
    batches.appender.close(1)
    assert batches.append(1) is None
    assert batches.buffers[1].record_count == 0
    batches.open(1)
    assert batches.append(1) is not None


def test_a_full_batch_is_left_as_it_is(native: SimpleNamespace) -> None:
    batches = Batches(native)
    buffer = batches.open(0, 61 + RECORD)
    assert batches.append(0) is not None
    assert batches.append(0) is None
    assert (buffer.record_count, buffer.size) == (1, 61 + RECORD)


def test_partitions_that_the_topic_does_not_have(native: SimpleNamespace) -> None:
    batches = Batches(native, 2)
    batches.open(0)
    batches.open(3)
    assert batches.append(2) is None
    assert batches.append(3) is None, "the batch is from when the topic had more partitions"
    batches.appender.set_partition_count(4)
    assert batches.append(3) is not None
    assert batches.append(2**62) is None


def test_keys_choose_as_java_does(native: SimpleNamespace) -> None:
    batches = Batches(native, 7)
    for partition in range(7):
        batches.open(partition)
    for key in (b"", b"k", b"key", bytes(100), "schlüssel".encode()):
        assert batches.append(key=key).partition == partition_for_key(key, 7)
    assert batches.append(5, key=b"key").partition == 5
    batches.appender.set_partition_count(0)
    assert batches.append(key=b"key") is None


def test_keyless_records_follow_the_sticky_choice_until_its_share_is_used(native: SimpleNamespace) -> None:
    batches = Batches(native)
    batches.open(1)
    assert batches.append() is None, "nothing was chosen yet"
    batches.appender.set_sticky(1, 2 * RECORD)
    # The bytes are there, or not: the record that passes the mark still goes in.
    assert batches.append().partition == 1
    assert batches.append().partition == 1
    assert batches.append() is None
    assert batches.appender.take_sticky_bytes() == 2 * RECORD
    assert batches.appender.take_sticky_bytes() == 0
    batches.appender.set_sticky(1, RECORD + 1)
    assert [batches.append() is None for _ in range(3)] == [False, False, True]


def test_only_keyless_records_count_for_the_sticky_choice(native: SimpleNamespace) -> None:
    batches = Batches(native)
    for partition in range(3):
        batches.open(partition)
    batches.appender.set_sticky(1, 1000)
    batches.append(1)
    batches.append(key=b"k")
    assert batches.appender.take_sticky_bytes() == 0
    batches.append()
    assert batches.appender.take_sticky_bytes() == RECORD
    batches.appender.set_sticky(0, 1000)
    assert batches.append().partition == 0


def test_what_was_not_appended_is_not_counted(native: SimpleNamespace) -> None:
    batches = Batches(native)
    batches.open(0, 70)
    batches.appender.set_sticky(0, 1000)
    assert batches.append() is None
    batches.appender.set_sticky(2, 1000)
    assert batches.append() is None
    assert batches.appender.take_sticky_bytes() == 0


def test_ignored_keys_follow_the_sticky_choice(native: SimpleNamespace) -> None:
    batches = Batches(native, 7, ignore_keys=True)
    batches.open(3)
    batches.appender.set_sticky(3, 1000)
    for key in (b"a", b"b", b"c"):
        assert batches.append(key=key).partition == 3
    assert batches.appender.take_sticky_bytes() == 3 * (RECORD + 1)
    assert batches.append(4, key=b"a") is None


def test_an_error_leaves_everything_as_it_was(native: SimpleNamespace) -> None:
    batches = Batches(native)
    buffer = batches.open(0)
    batches.appender.set_sticky(0, 1000)
    for headers in ([("name",)], [(1, b"v")], [("name", "text")]):
        with pytest.raises(InvalidHeadersError):
            batches.appender.append(NO_PARTITION, 0, None, b"v", headers)
    with pytest.raises(OverflowError):
        batches.appender.append(NO_PARTITION, 2**63, None, b"v", None)
    assert (buffer.record_count, buffer.size) == (0, 61)
    assert batches.appender.take_sticky_bytes() == 0
