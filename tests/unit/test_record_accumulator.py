"""The accumulator's readiness, drain and time: the scenarios of Java's RecordAccumulatorTest that are about them.

Left out: the magic v0/v1 cases (obsolete), `splitFrequency` (batches are measured uncompressed, so there is no
compression ratio to estimate), `recordsDrainedWhenTransactionCompleting` (comes later). `stressfulSituation` is the
state machine in tests/property. Splits, flush, failure, partitioner: see test_record_accumulator_batches.py;
`adaptiveBuiltInPartitioner`: test_partitioning.py.
"""

from __future__ import annotations

import pytest

from aioproduce.compression import codec_for
from aioproduce.core.batching.producer_batch import BatchState
from aioproduce.errors import RecordTooLargeError
from aioproduce.records import TopicPartition
from tests.unit.accumulator_harness import (
    KEY,
    OVERHEAD,
    TOPIC,
    VALUE,
    AccumulatorHarness,
    partitions,
    records,
    wire_bytes,
)

RECORD = 15
"""Bytes of one record: length 1, attributes 1, timestamp 1, offset 1, key 1 + 3, value 1 + 5, headers 1."""
APPENDS = 68
"""What fits into 1025 bytes: 64 records of 15 bytes and, their offsets taking two bytes, 4 of 16."""
FULL = OVERHEAD + 1025


def fill(harness: AccumulatorHarness, partition: int, count: int = APPENDS) -> None:
    for _ in range(count):
        harness.append(partition)


# -- full batches and drain ---


def test_a_full_batch_is_ready_and_a_new_one_is_opened() -> None:
    harness = AccumulatorHarness(batch_size=FULL)
    for _ in range(APPENDS):
        harness.append(0)
        assert harness.ready() == set()
        assert harness.pool.outstanding == FULL
    harness.append(0)
    assert harness.pool.outstanding == 2 * FULL
    assert harness.ready() == {0}
    [batch] = harness.drain()
    assert [(key, value) for _, _, key, value, _ in records(batch)] == [(KEY, VALUE)] * APPENDS
    assert harness.ready() == set(), "the new batch lingers"


def test_a_partition_that_is_ready_already_is_no_news() -> None:
    harness = AccumulatorHarness(linger=0.0)
    harness.append(0)
    readiness = harness.accumulator.readiness
    assert readiness.has_news
    readiness.has_news = False
    queue = harness.accumulator._find(TopicPartition("test", 0))
    assert queue is not None
    readiness.reconsider(queue, harness.now)
    assert not readiness.has_news


def test_a_batch_in_flight_is_in_no_queue_to_be_taken_out_of() -> None:
    harness = AccumulatorHarness(linger=0.0)
    harness.append(0)
    (batch,) = harness.drain(0)
    harness.accumulator.remove_queued(batch, harness.now)
    assert batch.state is BatchState.IN_FLIGHT


def test_a_batch_that_is_full_to_the_byte_is_ready_at_once() -> None:
    harness = AccumulatorHarness(batch_size=OVERHEAD + RECORD)
    harness.append(0)
    assert harness.ready() == {0}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_larger_than_a_batch_gets_a_batch_of_its_own(compression: str) -> None:
    harness = AccumulatorHarness(batch_size=512, codec=codec_for(compression))
    large = bytes(1024)
    harness.append(0, value=large)
    assert harness.ready() == {0}
    [batch] = harness.drain()
    assert records(batch) == [(0, 0, KEY, large, [])]
    assert (batch.size < 512) is (compression != "none")
    harness.succeed(batch)
    assert harness.pool.available == harness.pool.total


def test_drain_takes_turns_and_respects_the_request_size() -> None:
    """Java's drainBatches: a request has room for one batch, so a node's partitions take turns."""
    harness = AccumulatorHarness((0, 0, 1, 1), batch_size=70, max_request_size=120)

    def drained() -> tuple[list[int], list[int]]:
        return partitions(harness.drain(0)), partitions(harness.drain(1))

    for partition in range(4):
        harness.append(partition)
    assert drained() == ([0], [2])
    harness.append(0)
    harness.append(2)
    assert drained() == ([1], [3])
    assert drained() == ([0], [2])
    for partition in (1, 2, 3):
        harness.append(partition)
    harness.accumulator.mute(TopicPartition(TOPIC, 3))
    assert drained() == ([1], [2])
    for partition in (0, 1, 2):
        harness.append(partition)
    harness.accumulator.unmute(TopicPartition(TOPIC, 3), harness.now)
    assert drained() == ([0], [2])
    assert drained() == ([1], [3])
    assert drained() == ([], [])


def test_one_request_takes_a_batch_of_every_partition_that_fits() -> None:
    harness = AccumulatorHarness([0] * 5, batch_size=70, max_request_size=3 * (OVERHEAD + RECORD))
    for partition in range(5):
        for _ in range(2):
            harness.append(partition)
    # At most one batch of a partition, though each has two.
    assert [partitions(harness.drain()) for _ in range(5)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4], []]


def test_a_single_batch_beyond_the_request_size_goes_alone() -> None:
    """As a compressed batch may, or one that was filled before the size was known (Java's partialDrain)."""
    harness = AccumulatorHarness(batch_size=1024, max_request_size=512)
    for partition in (0, 1):
        for _ in range(200):
            harness.append(partition)
    first = harness.drain()
    assert partitions(first) == [0]
    assert first[0].size > 512
    assert partitions(harness.drain()) == [1]


def test_no_partition_starves_when_one_is_always_ready() -> None:
    harness = AccumulatorHarness([0] * 3, batch_size=70, max_request_size=120)
    order = []
    harness.append(1)
    harness.append(2)
    for _ in range(6):
        harness.append(0)
        order += partitions(harness.drain())
    assert sorted(order[:3]) == [0, 1, 2]


def test_drain_of_a_node_that_leads_nothing() -> None:
    harness = AccumulatorHarness((0, 0))
    harness.append(0)
    assert harness.drain(1) == []
    assert harness.drain(77) == []


def test_records_that_exceed_the_request_size_are_refused() -> None:
    harness = AccumulatorHarness(batch_size=1024, max_request_size=512)
    for partition in (None, 0):
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size=512") as raised:
            harness.append(partition, value=bytes(512))
        assert (raised.value.limit, raised.value.limited_by) == (512, "max.request.size")
    # Also where an open batch would have room for it.
    harness.append(0)
    with pytest.raises(RecordTooLargeError):
        harness.append(0, value=bytes(512))
    assert harness.pool.outstanding == 1024


def test_a_record_may_take_all_of_the_request_size() -> None:
    """Count the most that a record can need in addition to key and value: 36 bytes (attributes, varints)."""
    harness = AccumulatorHarness(batch_size=1024, max_request_size=OVERHEAD + 36 + 100)
    harness.append(0, value=bytes(100), key=None)
    with pytest.raises(RecordTooLargeError) as raised:
        harness.append(0, value=bytes(101), key=None)
    assert raised.value.size == OVERHEAD + 36 + 101


# -- linger ---


def test_linger() -> None:
    harness = AccumulatorHarness(linger=0.01)
    harness.append(0)
    assert harness.ready() == set()
    assert harness.next_timer_in() == pytest.approx(0.01)
    harness.advance(0.009)
    assert harness.ready() == set()
    harness.advance(0.001)
    assert harness.ready() == {0}
    [batch] = harness.drain()
    assert records(batch) == [(0, 0, KEY, VALUE, [])]


def test_without_linger_a_record_is_ready_at_once() -> None:
    harness = AccumulatorHarness(linger=0.0)
    harness.append(0)
    assert harness.ready() == {0}


def test_the_next_check_is_when_the_first_linger_ends() -> None:
    """Java's nextReadyCheckDelay."""
    harness = AccumulatorHarness(batch_size=FULL, linger=0.01)
    fill(harness, 0)
    assert harness.ready() == set()
    assert harness.next_timer_in() == pytest.approx(0.01)
    harness.advance(0.005)
    fill(harness, 2)
    assert harness.ready() == set()
    assert harness.next_timer_in() == pytest.approx(0.005)
    fill(harness, 1, APPENDS + 1)
    assert harness.ready() == {0}
    assert harness.next_timer_in() == pytest.approx(0.005)
    # Left are partition 2's batch and the second one of partition 1, which are as old as each other.
    harness.advance(0.005)
    assert partitions(harness.drain(0)) == [1, 0]
    assert harness.next_timer_in() == pytest.approx(0.005)


def test_a_batch_that_went_early_leaves_no_timer() -> None:
    harness = AccumulatorHarness(batch_size=OVERHEAD + 2 * RECORD, linger=5.0, delivery_timeout=100.0)
    harness.append(0)
    assert harness.next_timer_in() == pytest.approx(5.0)
    harness.append(0)
    assert harness.drain() == []
    # The third one finds the batch full.
    harness.append(0)
    assert harness.ready() == {0}
    [batch] = harness.drain()
    assert harness.next_timer_in() == pytest.approx(5.0)
    harness.accumulator.begin_flush(harness.now)
    [second] = harness.drain()
    harness.succeed(second)
    assert harness.next_timer_in() == pytest.approx(100.0)
    harness.succeed(batch)
    assert harness.next_timer_in() is None


def test_exhausted_memory_ends_all_linger() -> None:
    harness = AccumulatorHarness(batch_size=1024, memory=2 * 1024, linger=5.0)
    harness.append(0)
    harness.append(2)
    assert harness.try_append(1) is None
    assert harness.ready() == set(), "nobody waits yet"
    waiter = harness.pool.enqueue(1024, lambda: None)
    harness.accumulator.readiness.memory_exhausted(harness.now)
    assert harness.ready() == {0, 1}
    [batch] = harness.drain(0)
    # The waiting caller gives up: batches that are not drained linger on.
    harness.pool.abandon(waiter)
    assert harness.drain(1) == []
    assert harness.ready() == set()
    assert harness.next_timer_in() == pytest.approx(3.2)
    harness.succeed(batch)


def test_a_request_carries_one_batch_of_a_partition_also_when_its_neighbour_stands_aside() -> None:
    # Kafka's broker keeps the batches of a request by partition: of two, it would forget one and acknowledge it.
    harness = AccumulatorHarness(batch_size=1024, memory=4 * 1024, linger=5.0)
    harness.append(0, value=b"x" * 900)
    harness.append(0, value=b"x" * 900)
    harness.append(1)
    assert harness.append(0, value=b"x" * 900)
    waiter = harness.pool.enqueue(1024, lambda: None)
    harness.accumulator.readiness.memory_exhausted(harness.now)
    # Partition 1 was ready only because someone waited for memory; its turn comes between two of partition 0's.
    harness.pool.abandon(waiter)
    assert partitions(harness.drain(0)) == [0]
    assert partitions(harness.drain(0)) == [0]


def test_memory_exhausted_though_nobody_waits_any_more_changes_nothing() -> None:
    harness = AccumulatorHarness(linger=5.0, delivery_timeout=100.0)
    harness.append(0)
    harness.accumulator.readiness.memory_exhausted(harness.now)
    assert harness.ready() == set()
    assert harness.next_timer_in() == pytest.approx(5.0)


def test_when_memory_runs_out_what_lingers_longest_goes_first() -> None:
    """A partition's place in that order is that of its present batch, not that of one that was sent long ago."""
    harness = AccumulatorHarness((0, 0), linger=5.0, delivery_timeout=100.0)
    harness.append(0)
    harness.advance(5.0)
    [batch] = harness.drain()
    harness.succeed(batch)
    harness.append(1)
    harness.advance(1.0)
    harness.append(0)
    harness.pool.enqueue(64 * 1024, lambda: None)
    harness.accumulator.readiness.memory_exhausted(harness.now)
    assert partitions(harness.drain()) == [1, 0]


# -- retries ---


def test_a_retried_batch_backs_off_and_its_neighbour_does_not() -> None:
    harness = AccumulatorHarness(linger=0.05, retry_backoff=(0.2, 2.0), delivery_timeout=100.0)
    harness.append(0)
    harness.advance(0.051)
    [batch] = harness.drain()
    harness.accumulator.reenqueue(batch, harness.now)
    harness.append(1)
    harness.advance(0.051)
    assert harness.ready() == {0}
    assert partitions(harness.drain()) == [1]
    assert harness.ready() == set()
    harness.advance(0.2)
    assert harness.ready() == {0}
    [again] = harness.drain()
    assert again is batch
    assert batch.attempts == 2


@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_back_off_grows_exponentially_up_to_its_maximum(jitter: float, factor: float) -> None:
    """KIP-580: 100 ms doubled, within 20 % of jitter, at most 1 s."""
    harness = AccumulatorHarness(jitter=jitter, retry_backoff=(0.1, 1.0), delivery_timeout=1e6)
    harness.append(0)
    harness.advance(0.01)
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        [batch] = harness.drain()
        harness.accumulator.reenqueue(batch, harness.now)
        wait = min(expected * factor, 1.0)
        assert harness.next_timer_in() == pytest.approx(wait)
        harness.advance(wait * 0.999)
        assert harness.ready() == set()
        assert harness.drain() == []
        harness.advance(wait * 0.002)
        assert harness.ready() == {0}


def test_back_off_goes_on_when_only_the_node_changes() -> None:
    """Without a newer epoch the new leader's broker is asked after the back-off, and the old one not at all."""
    harness = AccumulatorHarness(retry_backoff=(0.1, 1.0), delivery_timeout=100.0)
    harness.append(0)
    harness.advance(0.01)
    [batch] = harness.drain(0)
    harness.accumulator.reenqueue(batch, harness.now)
    harness.move(0, 1, epoch=1)
    assert harness.ready() == set()
    harness.advance(0.1)
    assert harness.ready() == {1}
    assert harness.drain(0) == []
    assert harness.drain(1) == [batch]


def test_a_newer_leader_ends_back_off_at_once() -> None:
    """KIP-951 (Java's readyAndDrainWhenABatchIsBeingRetried, and exponentialRetryBackoffLeaderChange)."""
    harness = AccumulatorHarness(retry_backoff=(0.1, 1.0), delivery_timeout=100.0)
    harness.append(0)
    harness.advance(0.01)
    [batch] = harness.drain(0)
    assert batch.sent_leader_epoch == 1
    # Neither time nor leader: backs off.
    harness.accumulator.reenqueue(batch, harness.now)
    harness.advance(0.001)
    assert harness.ready() == set()
    assert harness.drain(0) == []
    # A newer leader: at once, to that one only.
    harness.move(0, 1)
    assert harness.ready() == {1}
    assert harness.drain(0) == []
    [batch] = harness.drain(1)
    assert (batch.sent_leader_epoch, batch.attempts) == (2, 2)
    # The same leader refuses again: backs off again, by the attempts so far.
    harness.accumulator.reenqueue(batch, harness.now)
    assert harness.ready() == set()
    assert harness.next_timer_in() == pytest.approx(0.2)
    harness.advance(0.2)
    assert harness.ready() == {1}
    # A newer leader that is known before the batch is queued again.
    [batch] = harness.drain(1)
    harness.move(0, 0)
    harness.accumulator.reenqueue(batch, harness.now)
    assert harness.ready() == {0}


def test_a_partition_in_back_off_is_in_no_ready_queue() -> None:
    """Its second batch was ready before the first came back."""
    harness = AccumulatorHarness(batch_size=70, delivery_timeout=100.0)
    harness.append(0)
    harness.append(0)
    [first] = harness.drain()
    assert harness.ready() == {0}
    harness.accumulator.reenqueue(first, harness.now)
    assert harness.ready() == set()
    harness.advance(0.1)
    assert harness.drain() == [first]


def test_back_off_holds_through_flush_close_and_exhaustion() -> None:
    harness = AccumulatorHarness(memory=2048, delivery_timeout=100.0)
    harness.append(0)
    harness.advance(0.01)
    [batch] = harness.drain()
    harness.accumulator.reenqueue(batch, harness.now)
    harness.accumulator.begin_flush(harness.now)
    harness.pool.enqueue(2048, lambda: None)
    harness.accumulator.readiness.memory_exhausted(harness.now)
    harness.accumulator.readiness.begin_close(harness.now)
    assert harness.ready() == set()
    harness.advance(0.1)
    assert harness.ready() == {0}


# -- leaders ---


def test_a_partition_without_a_leader_waits_for_one() -> None:
    harness = AccumulatorHarness((-1, 0), linger=0.0)
    harness.append(0)
    assert harness.ready() == set()
    assert harness.accumulator.readiness.has_new_leaderless
    assert harness.accumulator.readiness.ready.leaderless_topics == [TOPIC]
    harness.move(0, 1)
    assert harness.accumulator.readiness.ready.leaderless_topics == []
    assert harness.ready() == {1}
    assert partitions(harness.drain(1)) == [0]


def test_a_ready_partition_follows_its_leader() -> None:
    harness = AccumulatorHarness(linger=0.0)
    harness.append(0)
    assert harness.ready() == {0}
    harness.move(0, 1)
    assert harness.ready() == {1}
    assert harness.drain(0) == []
    harness.move(0, -1)
    assert harness.ready() == set()
    assert harness.accumulator.readiness.ready.leaderless_topics == [TOPIC]


def test_news_of_partitions_that_were_never_sent_to_is_ignored() -> None:
    harness = AccumulatorHarness()
    for topic_partition in (TopicPartition(TOPIC, 2), TopicPartition("other", 0)):
        harness.accumulator.leader_changed(topic_partition, harness.now)
        harness.accumulator.mute(topic_partition)
        harness.accumulator.unmute(topic_partition, harness.now)
        harness.accumulator.unblock(topic_partition, harness.now)
    harness.accumulator.topic_changed("other")
    assert harness.ready() == set()


# -- muting ---


def test_muted_partitions_are_neither_ready_nor_drained() -> None:
    harness = AccumulatorHarness(batch_size=FULL, delivery_timeout=100.0)
    fill(harness, 0)
    harness.advance(2.0)
    mute, unmute = harness.accumulator.mute, harness.accumulator.unmute
    partition = TopicPartition(TOPIC, 0)
    mute(partition)
    assert harness.ready() == set()
    unmute(partition, harness.now)
    assert harness.ready() == {0}
    mute(partition)
    assert harness.drain() == []
    unmute(partition, harness.now)
    assert partitions(harness.drain()) == [0]


def test_what_becomes_ready_while_muted_is_ready_when_unmuted() -> None:
    harness = AccumulatorHarness(linger=0.01)
    harness.append(0)
    partition = TopicPartition(TOPIC, 0)
    harness.accumulator.mute(partition)
    harness.advance(0.01)
    assert harness.ready() == set()
    harness.accumulator.unmute(partition, harness.now)
    assert harness.ready() == {0}


# -- the delivery time-out ---


@pytest.mark.parametrize("delivery_timeout", [3.2, 2_147_483.647])
@pytest.mark.parametrize("is_muted", [False, True])
def test_a_batch_expires_by_its_age_muted_or_not(delivery_timeout: float, is_muted: bool) -> None:
    """Java's expiredBatchSingle and expiredBatchSingleMaxValue."""
    harness = AccumulatorHarness(linger=0.3, delivery_timeout=delivery_timeout)
    delivery = harness.append(0)
    assert harness.ready() == set()
    harness.advance(0.3)
    assert harness.ready() == {0}
    assert harness.accumulator.expired(harness.now) == []
    if is_muted:
        harness.accumulator.mute(TopicPartition(TOPIC, 0))
    assert harness.next_timer_in() == pytest.approx(delivery_timeout - 0.3)
    harness.advance(delivery_timeout - 0.301)
    assert harness.accumulator.expired(harness.now) == []
    harness.advance(0.002)
    assert len(harness.expire()) == 1
    assert delivery.done()
    assert harness.ready() == set()
    assert harness.next_timer_in() is None
    assert harness.pool.available == harness.pool.total


def test_expiry_takes_full_and_open_batches_the_oldest_first() -> None:
    """Java's expiredBatches, its first part."""
    harness = AccumulatorHarness(batch_size=FULL, linger=0.03, delivery_timeout=3.2)
    fill(harness, 0, APPENDS + 1)
    harness.advance(0.1)
    harness.append(2)
    assert harness.ready() == {0}
    harness.advance(3.1)
    assert partitions(harness.expire()) == [0, 0]
    assert harness.expire() == []
    assert harness.ready() == {1}
    harness.advance(0.1)
    assert partitions(harness.expire()) == [2]
    assert not harness.accumulator.has_incomplete
    # An expired batch takes no more records: the next one opens a new batch.
    delivery = harness.append(0)
    assert not delivery.done()
    assert harness.pool.outstanding == FULL


def test_a_retried_batch_expires_by_its_age_not_by_its_retry() -> None:
    """Java's expiredBatchesRetry: retries do not prolong the time."""
    for is_muted in (False, True):
        harness = AccumulatorHarness(linger=3.0, delivery_timeout=3.2)
        harness.append(0)
        harness.advance(3.0)
        [batch] = harness.drain()
        harness.advance(0.1)
        harness.accumulator.reenqueue(batch, harness.now)
        if is_muted:
            harness.accumulator.mute(TopicPartition(TOPIC, 0))
        assert harness.expire() == []
        assert harness.next_timer_in() == pytest.approx(0.1)
        harness.advance(0.1001)
        assert harness.expire() == [batch]
        assert harness.drain() == []
        assert harness.pool.outstanding == 0


def test_the_next_timer_is_the_first_expiry_also_of_what_is_in_flight() -> None:
    """Java's soonToExpireBatchesArePickedUpForExpiry."""
    harness = AccumulatorHarness(linger=0.5, delivery_timeout=3.2)
    harness.append(0)
    harness.advance(0.5)
    [first] = harness.drain()
    assert harness.next_timer_in() == pytest.approx(2.7)
    harness.append(1)
    assert harness.next_timer_in() == pytest.approx(0.5)
    harness.advance(2.0)
    [second] = harness.drain()
    assert harness.next_timer_in() == pytest.approx(0.7)
    harness.succeed(first)
    assert harness.next_timer_in() == pytest.approx(1.2)
    harness.succeed(second)
    assert harness.next_timer_in() is None


def test_a_batch_that_expires_in_flight_keeps_its_memory_until_the_answer() -> None:
    """KAFKA-19012: the transport may still hold its bytes."""
    harness = AccumulatorHarness(linger=0.0, delivery_timeout=3.2)
    delivery = harness.append(0)
    [batch] = harness.drain()
    sent = wire_bytes(batch)
    harness.advance(3.3)
    assert harness.expire() == [batch]
    assert delivery.done()
    assert batch.state is BatchState.ABANDONED
    assert harness.pool.outstanding == 1024
    assert wire_bytes(batch) == sent
    assert not harness.accumulator.has_incomplete
    batch.release_abandoned()
    assert harness.pool.outstanding == 0
