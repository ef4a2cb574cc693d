"""What the accumulator does with batches: flush, failure, splits, idempotent order, the choice of the partition.

The scenarios of Java's RecordAccumulatorTest and BuiltInPartitionerTest that test_record_accumulator.py leaves out.
Java's `awaitFlushComplete` (an interrupted flush puts its counter back) has no counterpart: a flush is a mark, not
a counter, and who waits for it is the driver's business.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from aioproduce._native.key_hash import partition_for_key
from aioproduce.compression import codec_for
from aioproduce.core.batching.sequences import Sequences
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.errors import DeliveryError, RecordTooLargeError
from aioproduce.records import TopicPartition
from tests.unit.accumulator_harness import (
    OVERHEAD,
    TOPIC,
    VALUE,
    AccumulatorHarness,
    delivery_error,
    partitions,
    records,
)

if TYPE_CHECKING:
    from aioproduce._native.delivery import DeliveryFuture
    from aioproduce.core.batching.producer_batch import ProducerBatch

FOREVER = 1e9


def drain_all(harness: AccumulatorHarness) -> list[ProducerBatch]:
    drained: list[ProducerBatch] = []
    while nodes := sorted(harness.ready()):
        for node in nodes:
            drained += harness.drain(node)
    return drained


# -- flush and close ---


def record_of(value: bytes) -> SerializedRecord:
    return SerializedRecord(TOPIC, None, value, None, 0, 0)


def test_flush_sends_what_lingers() -> None:
    harness = AccumulatorHarness(batch_size=4096, linger=FOREVER, delivery_timeout=FOREVER)
    for number in range(100):
        harness.append(number % 3)
        assert harness.accumulator.has_incomplete
    assert harness.ready() == set()
    mark = harness.accumulator.begin_flush(harness.now)
    assert harness.ready() == {0, 1}
    drained = drain_all(harness)
    assert sorted(partitions(drained)) == [0, 1, 2]
    assert sum(batch.record_count for batch in drained) == 100
    for batch in drained:
        assert harness.accumulator.oldest_incomplete_id < mark
        harness.succeed(batch)
    assert harness.accumulator.oldest_incomplete_id >= mark
    assert not harness.accumulator.has_incomplete
    assert harness.pool.outstanding == 0


def test_records_that_come_after_a_flush_began_neither_hurry_nor_hold_it_up() -> None:
    harness = AccumulatorHarness(linger=FOREVER, delivery_timeout=FOREVER)
    harness.append(0)
    mark = harness.accumulator.begin_flush(harness.now)
    [flushed] = drain_all(harness)
    harness.append(0)
    assert harness.ready() == set()
    harness.succeed(flushed)
    assert harness.accumulator.oldest_incomplete_id >= mark
    assert harness.accumulator.has_incomplete


def test_flush_of_nothing_is_complete_at_once() -> None:
    harness = AccumulatorHarness()
    mark = harness.accumulator.begin_flush(harness.now)
    assert harness.accumulator.oldest_incomplete_id >= mark


def test_flush_waits_for_the_parts_of_a_split_batch() -> None:
    harness = AccumulatorHarness(linger=FOREVER, delivery_timeout=FOREVER)
    harness.append(0)
    harness.append(0)
    mark = harness.accumulator.begin_flush(harness.now)
    [batch] = harness.drain()
    harness.accumulator.split_and_reenqueue(batch, harness.now)
    for part in drain_all(harness):
        assert harness.accumulator.oldest_incomplete_id < mark
        harness.succeed(part)
    assert harness.accumulator.oldest_incomplete_id >= mark


def test_a_muted_partition_is_flushed_when_it_is_unmuted() -> None:
    harness = AccumulatorHarness(linger=FOREVER, delivery_timeout=FOREVER)
    harness.append(0)
    partition = TopicPartition(TOPIC, 0)
    harness.accumulator.mute(partition)
    harness.accumulator.begin_flush(harness.now)
    assert harness.ready() == set()
    harness.accumulator.unmute(partition, harness.now)
    assert harness.ready() == {0}


def test_while_closing_nothing_lingers() -> None:
    harness = AccumulatorHarness(linger=FOREVER, delivery_timeout=FOREVER)
    harness.append(0)
    harness.accumulator.readiness.begin_close(harness.now)
    assert harness.ready() == {0}
    harness.append(2)
    assert harness.ready() == {0, 1}


# -- failure ---


def append_many(harness: AccumulatorHarness, count: int) -> tuple[list[DeliveryFuture], list[object]]:
    told: list[object] = []
    deliveries = []
    for number in range(count):
        delivery = harness.append(number % 3)
        delivery._add_delivery_callback(lambda found, error: told.append(str(error)))
        deliveries.append(delivery)
    return deliveries, told


def test_failing_all_incomplete_batches_tells_every_record() -> None:
    """Java's abortIncompleteBatches: queued and in flight."""
    harness = AccumulatorHarness(batch_size=OVERHEAD + 128, linger=FOREVER, delivery_timeout=FOREVER)
    deliveries, told = append_many(harness, 100)
    drained = harness.drain(0) + harness.drain(1)
    in_flight = sum(batch.record_count for batch in drained)
    assert 0 < in_flight < 100
    assert not any(batch.is_open or batch.is_settled for batch in drained)
    assert {batch.batch_id for batch in drained} < {b.batch_id for b in harness.accumulator.incomplete}

    for batch in harness.accumulator.incomplete:
        harness.fail(batch, delivery_error("closed by force"))
        batch.result.run_callbacks()
    assert told == ["closed by force"] * 100
    assert all(isinstance(delivery.exception(), DeliveryError) for delivery in deliveries)
    assert not harness.accumulator.has_incomplete
    assert harness.ready() == set()
    # What is in flight keeps its memory until its connection is gone.
    assert harness.pool.outstanding == len(drained) * (OVERHEAD + 128)
    for batch in drained:
        batch.release_abandoned()
    assert harness.pool.outstanding == 0


def test_failing_unsent_batches_leaves_those_in_flight() -> None:
    """Java's abortUnsentBatches."""
    harness = AccumulatorHarness(batch_size=OVERHEAD + 128, linger=FOREVER, delivery_timeout=FOREVER)
    deliveries, _ = append_many(harness, 100)
    drained = harness.drain(0) + harness.drain(1)
    for batch in harness.accumulator.incomplete:
        if batch not in drained:
            harness.fail(batch)
    failed = [delivery for delivery in deliveries if delivery.done()]
    assert all(isinstance(delivery.exception(), DeliveryError) for delivery in failed)
    assert len(failed) + sum(batch.record_count for batch in drained) == 100
    assert harness.accumulator.incomplete == sorted(drained, key=lambda batch: batch.batch_id)
    assert harness.ready() == set()
    for batch in drained:
        harness.succeed(batch)
    assert harness.pool.outstanding == 0


def test_a_lease_is_given_back_whatever_stops_the_append() -> None:
    harness = AccumulatorHarness(max_request_size=512)
    lease = harness.pool.try_allocate(1024)
    assert lease is not None
    with pytest.raises(RecordTooLargeError):
        harness.accumulator.append_with(lease, harness.view, record_of(bytes(600)), harness.now)
    assert lease.is_released
    # Sized for less than what came.
    harness = AccumulatorHarness()
    small = harness.pool.try_allocate(OVERHEAD + 1)
    assert small is not None
    with pytest.raises(RuntimeError, match="did not fit"):
        harness.accumulator.append_with(small, harness.view, record_of(VALUE), harness.now)
    assert small.is_released
    assert harness.pool.available == harness.pool.total
    assert not harness.accumulator.has_incomplete


def test_memory_that_came_too_late_goes_back_and_the_record_joins_the_open_batch() -> None:
    harness = AccumulatorHarness()
    lease = harness.pool.try_allocate(1024)
    assert lease is not None
    harness.append(0)  # another task was quicker
    delivery = harness.accumulator.append_with(lease, harness.view, record_of(VALUE), harness.now)
    assert lease.is_released
    assert harness.pool.outstanding == 1024
    harness.advance(0.01)
    [batch] = harness.drain()
    harness.succeed(batch, 10)
    assert delivery.result().offset == 11


# -- splits ---


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_split_batch_is_sent_again_in_order_and_at_once(compression: str) -> None:
    """Java's splitAndReenqueue, splitBatchOffAccumulator. Halves, until every record is acknowledged."""
    harness = AccumulatorHarness(batch_size=4096, codec=codec_for(compression))
    random = Random(7)
    values = [random.randbytes(100) for _ in range(20)]
    deliveries = [harness.append(0, value=value) for value in values]
    harness.append(0, value=bytes(4000))  # behind it, not of it
    [batch] = harness.drain()
    outstanding = harness.pool.outstanding
    harness.accumulator.split_and_reenqueue(batch, harness.now)
    log: list[bytes] = []
    splits = 1
    while len(log) < 20:
        assert harness.ready() == {0}
        [part] = harness.drain()
        found = [value for _, _, _, value, _ in records(part)]
        assert [offset for offset, *_ in records(part)] == list(range(len(found)))
        assert harness.pool.outstanding == outstanding, "the parts live under the lease of the whole"
        if part.size > 600 and part.record_count > 1:
            harness.accumulator.split_and_reenqueue(part, harness.now)
            splits += 1
        else:
            harness.succeed(part, len(log))
            log += found
    assert log == values
    assert splits > 2
    assert [delivery.result().offset for delivery in deliveries] == list(range(20))
    assert harness.pool.outstanding < outstanding
    harness.advance(0.01)
    [behind] = harness.drain()
    harness.succeed(behind, 20)
    assert harness.pool.outstanding == 0
    assert not harness.accumulator.has_incomplete


def test_parts_expire_with_the_batch_that_they_were() -> None:
    harness = AccumulatorHarness(linger=0.0, delivery_timeout=3.2)
    deliveries = [harness.append(0) for _ in range(4)]
    [batch] = harness.drain()
    harness.advance(3.0)
    harness.accumulator.split_and_reenqueue(batch, harness.now)
    [first] = harness.drain()
    assert harness.next_timer_in() == pytest.approx(0.2)
    harness.advance(0.2001)
    expired = harness.expire()
    assert [part.record_count for part in expired] == [2, 2]
    assert expired[0] is first
    assert all(delivery.done() for delivery in deliveries)
    assert harness.pool.outstanding == 1024, "the first part is in flight"
    first.release_abandoned()
    assert harness.pool.outstanding == 0
    assert not harness.accumulator.has_incomplete


# -- idempotent order ---


def idempotent(batch_size: int = 70) -> tuple[AccumulatorHarness, Sequences]:
    sequences = Sequences()
    sequences.init_begun()
    sequences.init_succeeded(343434, 0)
    harness = AccumulatorHarness((0,), batch_size=batch_size, delivery_timeout=FOREVER, sequences=sequences)
    # A partition's first batch goes alone; with it acknowledged, several may be in flight.
    harness.append(0)
    harness.accumulator.begin_flush(harness.now)
    [first] = harness.drain()
    assert first.base_sequence == 0
    sequences.batch_succeeded(first)
    harness.succeed(first, 0)
    harness.accumulator.unblock(first.topic_partition, harness.now)
    return harness, sequences


def test_without_a_producer_id_nothing_is_drained() -> None:
    sequences = Sequences()
    harness = AccumulatorHarness((0,), linger=0.0, sequences=sequences)
    harness.append(0)
    assert harness.drain() == []
    assert harness.ready() == set(), "blocked, until the protocol moves"
    # Also when there is more to send, or time passes.
    harness.append(0, value=bytes(2000))
    harness.advance(1.0)
    assert harness.ready() == set()
    sequences.init_begun()
    sequences.init_succeeded(1, 0)
    harness.accumulator.readiness.unblock_all(harness.now)
    assert harness.ready() == {0}
    [batch] = harness.drain()
    assert (batch.producer.producer_id, batch.base_sequence) == (1, 0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_retried_batches_are_queued_in_the_order_of_their_sequences(order: tuple[int, ...]) -> None:
    harness, sequences = idempotent()
    for _ in range(4):
        harness.append(0)
    flying = [harness.drain()[0] for _ in range(3)]
    assert [batch.base_sequence for batch in flying] == [1, 2, 3]
    for number in order:
        harness.accumulator.reenqueue(flying[number], harness.now)
    harness.advance(0.2)
    # One at a time, and before what was never sent: the first must be answered before the next goes.
    for batch in flying:
        assert harness.drain() == [batch]
        if batch is not flying[-1]:
            assert harness.drain() == []
        sequences.batch_succeeded(batch)
        harness.succeed(batch, batch.base_sequence)
        harness.accumulator.unblock(batch.topic_partition, harness.now)
    [last] = harness.drain()
    assert last.base_sequence == 4


def test_parts_of_a_split_batch_take_its_sequences_and_its_place() -> None:
    harness, sequences = idempotent(batch_size=1024)
    deliveries = [harness.append(0, value=bytes([number])) for number in range(5)]
    harness.accumulator.begin_flush(harness.now)
    [whole] = harness.drain()
    harness.append(0)
    harness.accumulator.begin_flush(harness.now)
    [behind] = harness.drain()
    assert (whole.base_sequence, behind.base_sequence) == (1, 6)
    harness.accumulator.reenqueue(behind, harness.now)
    harness.accumulator.split_and_reenqueue(whole, harness.now)
    sequence = 1
    while sequence < 6:
        [part] = harness.drain()
        assert part.base_sequence == sequence
        sequences.batch_succeeded(part)
        harness.succeed(part, sequence)
        harness.accumulator.unblock(part.topic_partition, harness.now)
        sequence += part.record_count
    assert [delivery.result().offset for delivery in deliveries] == [1, 2, 3, 4, 5]
    harness.advance(0.2)
    assert harness.drain() == [behind]


# -- the choice of the partition ---


def test_keyless_records_fill_a_batch_before_the_partition_changes() -> None:
    """Java's stickyBatches."""
    # Length 1, attributes 1, timestamp 1, offset 1, null key 1, value 1 + 5, headers 1.
    batch_size = OVERHEAD + 50 * 12
    harness = AccumulatorHarness(batch_size=batch_size)
    for expected in (0, 1, 2, 0):
        assert {harness.append(key=None).partition for _ in range(50)} == {expected}
    assert harness.pool.outstanding == 4 * batch_size


def test_a_batch_that_falls_short_of_its_size_is_followed_by_another_one() -> None:
    """As in Java: `batch.size` bytes have to be there before the partition changes, and then a batch be full."""
    harness = AccumulatorHarness(batch_size=OVERHEAD + 50 * 12 + 11, linger=FOREVER)
    chosen = [harness.append(key=None).partition for _ in range(200)]
    assert chosen == [0] * 100 + [1] * 100


def test_the_next_partitions_open_batch_is_used_before_new_memory() -> None:
    harness = AccumulatorHarness((0, 0), batch_size=OVERHEAD + 50 * 12, linger=FOREVER)
    harness.append(1)
    for _ in range(50):
        assert harness.append(key=None).partition == 0
    outstanding = harness.pool.outstanding
    assert harness.append(key=None).partition == 1
    assert harness.pool.outstanding == outstanding


def test_large_keyless_records_are_spread_uniformly() -> None:
    """Java's uniformBuiltInPartitioner: the switch waits for the batch to be complete, not for chance."""
    harness = AccumulatorHarness(batch_size=1024, linger=0.0)
    large = bytes(1024)
    assert harness.append(key=None).partition == 0
    assert harness.append(key=None, value=large).partition == 0
    assert [harness.append(key=None, value=large).partition for _ in range(6)] == [1, 2, 0, 1, 2, 0]


def test_uniformity_over_chance() -> None:
    """Bytes per partition are even, whatever the sizes of the records (KIP-794)."""
    random = Random(42)
    harness = AccumulatorHarness(
        (0, 0, 0, 0), batch_size=1024, memory=1 << 30, linger=FOREVER, choices=random.randrange
    )
    sent: Counter[int] = Counter()
    for _ in range(20_000):
        size = random.choice((10, 50, 100, 900))
        sent[harness.append(key=None, value=bytes(size)).partition] += size
    even = sum(sent.values()) / 4
    # 5,000 choices of about 1 KiB: three standard deviations of a partition's share are about 3.7 %.
    assert all(abs(sent[partition] - even) < 0.05 * even for partition in range(4))


def test_no_fractional_batches_when_linger_ends_before_a_batch_is_full() -> None:
    """Java's builtInPartitionerFractionalBatches."""
    harness = AccumulatorHarness(batch_size=512, linger=0.01)
    value = bytes(32)
    for _ in range(10):
        for _ in range(512 * 2 // 3 // 32):
            harness.append(key=None, value=value)
        harness.advance(0.01)
        [node] = harness.ready()
        [batch] = harness.drain(node)
        assert 256 < batch.size < 512
        harness.succeed(batch)


def test_the_switch_comes_at_twice_the_size_in_any_case() -> None:
    """Or one partition would get all records of a producer whose batches are never full."""
    harness = AccumulatorHarness((0, 0), batch_size=1000, linger=FOREVER)
    chosen = []
    for _ in range(40):
        chosen.append(harness.append(key=None, value=bytes(88)).partition)
        if len(chosen) % 9 == 0:
            harness.accumulator.begin_flush(harness.now)
            for batch in harness.drain():
                harness.succeed(batch)
    assert set(chosen) == {0, 1}


def test_partitions_without_a_leader_are_not_chosen() -> None:
    harness = AccumulatorHarness((0, -1, 1), batch_size=128, choices=Random(1).randrange)
    chosen = {harness.append(key=None, value=bytes(64)).partition for _ in range(60)}
    assert chosen == {0, 2}
    harness = AccumulatorHarness((-1, -1), batch_size=128)
    assert {harness.append(key=None, value=bytes(64)).partition for _ in range(10)} == {0, 1}


def test_a_key_decides_unless_it_is_ignored() -> None:
    keys = [b"%d" % number for number in range(50)]
    harness = AccumulatorHarness([0] * 7)
    assert [harness.append(key=key).partition for key in keys] == [partition_for_key(key, 7) for key in keys]
    # One after the other, keyed records leave the sticky choice alone.
    assert {harness.append(key=None).partition for _ in range(5)} == {0}
    harness = AccumulatorHarness([0] * 7, ignore_keys=True)
    assert {harness.append(key=key).partition for key in keys} == {0}
    assert harness.append(5, key=b"k").partition == 5


def test_an_empty_key_is_a_key() -> None:
    harness = AccumulatorHarness([0] * 7)
    assert harness.append(key=b"").partition == partition_for_key(b"", 7) != 0


def test_new_partitions_are_used_when_metadata_tells_of_them() -> None:
    harness = AccumulatorHarness((0,), batch_size=1024)
    assert {harness.append(key=None, value=bytes(64)).partition for _ in range(5)} == {0}
    harness.leaders[TOPIC] = [(0, 1), (0, 1)]
    harness.refresh()
    keys = [b"%d" % number for number in range(20)]
    assert [harness.append(key=key).partition for key in keys] == [partition_for_key(key, 2) for key in keys]
    assert {harness.append(key=None, value=bytes(64)).partition for _ in range(40)} == {0, 1}
    assert harness.append(1).partition == 1


def test_a_topic_that_goes_takes_its_short_way_with_it() -> None:
    """Without it, records would be appended to a topic that metadata does not know any more."""
    harness = AccumulatorHarness((0, 0))
    harness.append(0)
    assert TOPIC in harness.accumulator.appenders
    harness.leaders[TOPIC] = []
    harness.refresh()
    assert TOPIC not in harness.accumulator.appenders
    harness.leaders[TOPIC] = [(0, 1), (0, 1)]
    harness.refresh()
    assert TOPIC in harness.accumulator.appenders
    assert harness.append(0).partition == 0
    assert harness.pool.outstanding == 1024, "the open batch was still there"


def test_batch_size_zero_sends_each_record_alone() -> None:
    harness = AccumulatorHarness((0, 0), batch_size=0, linger=FOREVER)
    deliveries = [harness.append(0), harness.append(0), harness.append(key=None)]
    drained = drain_all(harness)
    assert [batch.record_count for batch in drained] == [1, 1, 1]
    for batch in drained:
        harness.succeed(batch)
    assert all(delivery.done() for delivery in deliveries)
    assert harness.pool.outstanding == 0
