"""The Sequences alone: sequences given out, and what each answer means for them.

Scenarios of Java's TransactionManagerTest that concern the idempotent producer (tests/README.md says which test
stands for which); those that need a sender are in test_sender_idempotent.py and test_sender_epochs.py.
"""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD
from aioproduce.core.batching.producer_batch import NO_PRODUCER_ID, ProducerBatch, ProducerIdAndEpoch
from aioproduce.core.batching.sequences import (
    MAX_EPOCH,
    MAX_SEQUENCE,
    Sequences,
    SequencesState,
    is_later,
    next_sequence,
)
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import FakeRuntime

P0, P1 = TopicPartition("test", 0), TopicPartition("test", 1)


class NoLease:
    def release(self) -> None:
        pass


def ready(producer_id: int = 15, epoch: int = 0) -> Sequences:
    manager = Sequences()
    manager.init_begun()
    manager.init_succeeded(producer_id, epoch)
    return manager


def make_batch(partition: TopicPartition = P0, records: int = 1) -> ProducerBatch:
    batch = ProducerBatch(
        partition,
        NoLease(),
        bytearray(RECORD_BATCH_OVERHEAD + 20 * records),
        FakeRuntime(),
        batch_id=0,
        created_at=0.0,
        deadline=1.0,
    )
    for _ in range(records):
        assert batch.try_append(0, None, b"v", None) is not None
    return batch


def sent(manager: Sequences, partition: TopicPartition = P0, *, records: int = 1) -> ProducerBatch:
    """A batch that may be sent, and is."""
    batch = make_batch(partition, records)
    assert manager.may_send(batch)
    manager.assign_sequence(batch)
    batch.begin_attempt()
    return batch


def acknowledged(manager: Sequences, partition: TopicPartition = P0, *, records: int = 1) -> None:
    manager.batch_succeeded(sent(manager, partition, records=records))


def place(batch: ProducerBatch) -> tuple[int, int]:
    return batch.producer.epoch, batch.base_sequence


def lose(batch: ProducerBatch) -> None:
    """Its fate is unknown from now on."""
    batch.possibly_written = True


# -- arithmetic ---


@pytest.mark.parametrize(
    ("sequence", "records", "expected"),
    [
        (0, 3, 3),
        (0, MAX_SEQUENCE, MAX_SEQUENCE),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE, 100, 99),
        (99, MAX_SEQUENCE, 98),
        (MAX_SEQUENCE - 1, 2, 0),
    ],
)
def test_sequences_wrap_around(sequence: int, records: int, expected: int) -> None:
    assert next_sequence(sequence, records) == expected


def test_later_is_meant_across_the_wrap_around() -> None:
    assert is_later(1, 0)
    assert not is_later(0, 1)
    assert not is_later(5, 5)
    assert is_later(3, MAX_SEQUENCE - 3)
    assert not is_later(MAX_SEQUENCE - 3, 3)


# -- the producer id ---


@pytest.mark.parametrize(("ahead", "is_ahead"), [(0, False), (1, True), (2**30 - 1, True), (2**30, False)])
def test_half_of_all_sequences_are_later_than_one(ahead: int, is_ahead: bool) -> None:
    for sequence in (0, 7, MAX_SEQUENCE):
        assert is_later(next_sequence(sequence, ahead), sequence) is is_ahead


def test_the_producer_id_is_asked_for_given_and_may_be_refused() -> None:
    manager = Sequences()
    needed = [manager.needs_producer_id]
    assert manager.producer == NO_PRODUCER_ID
    manager.init_begun()
    needed.append(manager.needs_producer_id)
    manager.init_failed(is_fatal=False)
    needed.append(manager.needs_producer_id)
    assert needed == [True, False, True]
    manager.init_begun()
    manager.init_succeeded(15, 7)
    assert manager.is_ready
    assert manager.producer == ProducerIdAndEpoch(15, 7)


def test_without_a_producer_id_nothing_may_be_sent() -> None:
    manager = Sequences()
    assert not manager.may_send(make_batch())
    manager.init_begun()
    assert not manager.may_send(make_batch())


def test_after_a_fatal_end_there_is_no_way_back() -> None:
    manager = Sequences()
    manager.init_begun()
    manager.init_failed(is_fatal=True)
    assert manager.state is SequencesState.FATAL
    assert not manager.needs_producer_id
    with pytest.raises(RuntimeError):
        manager.init_begun()


def test_an_answer_that_nobody_asked_for_is_a_bug() -> None:
    with pytest.raises(RuntimeError):
        Sequences().init_succeeded(15, 0)


# -- sequences ---


def test_the_first_sequence_is_0_and_records_are_counted() -> None:
    manager = ready()
    acknowledged(manager, records=3)
    assert place(sent(manager)) == (0, 3)
    assert place(sent(manager, records=2)) == (0, 4)
    assert place(sent(manager)) == (0, 6)
    assert place(sent(manager, P1)) == (0, 0)


def test_a_batch_keeps_its_sequence() -> None:
    manager = ready()
    batch = sent(manager, records=2)
    manager.assign_sequence(batch)
    assert place(batch) == (0, 0)


def test_only_the_first_unanswered_batch_may_be_repeated() -> None:
    manager = ready()
    acknowledged(manager)
    first, second = sent(manager), sent(manager)
    assert manager.may_send(first)
    assert not manager.may_send(second)
    manager.batch_succeeded(first)
    assert manager.may_send(second)


@pytest.mark.parametrize("first_goes_to", ["old", "new"])
def test_a_topic_that_was_made_again_has_acknowledged_nothing(first_goes_to: str) -> None:
    """Its leader accepts any first sequence: if it refused the first batch and took the second, the first would be
    a repetition that it never accepts.
    """
    ids = {"old": uuid4(), "new": uuid4()}
    manager = ready()

    def to(topic: str) -> ProducerBatch:
        batch = make_batch()
        batch.topic_id = ids[topic]
        return batch

    def goes(batch: ProducerBatch) -> ProducerBatch:
        assert manager.may_send(batch)
        manager.assign_sequence(batch)
        batch.begin_attempt()
        return batch

    manager.batch_succeeded(goes(to("old")))
    first = goes(to(first_goes_to))

    assert not manager.may_send(to("new"))
    first.topic_id = ids["new"]
    assert manager.may_send(first)
    assert not manager.may_send(to("new"))
    manager.batch_succeeded(first)

    goes(to("new"))
    # An equal id is the same topic.
    assert manager.may_send(to("new"))
    ids["new"] = UUID(str(ids["new"]))
    assert manager.may_send(to("new"))


def test_before_anything_is_acknowledged_one_batch_is_on_its_way() -> None:
    manager = ready()
    first = sent(manager)
    assert not manager.may_send(make_batch())
    assert manager.may_send(make_batch(P1))
    manager.batch_succeeded(first)
    sent(manager)
    sent(manager)


def test_no_more_are_unanswered_than_a_broker_remembers() -> None:
    manager = ready()
    acknowledged(manager)
    batches = [sent(manager) for _ in range(5)]
    assert not manager.may_send(make_batch())
    manager.batch_succeeded(batches[2])
    sent(manager)
    assert not manager.may_send(make_batch())


def test_the_order_of_batches_is_that_of_their_sequences_across_the_wrap_around() -> None:
    manager = ready()
    acknowledged(manager)
    batches = [sent(manager) for _ in range(3)]
    assert manager.is_before(batches[0], batches[2])
    assert not manager.is_before(batches[2], batches[1])


def test_parts_take_the_place_of_their_batch() -> None:
    manager = ready()
    acknowledged(manager)
    whole, behind = sent(manager, records=3), sent(manager)
    parts = [make_batch(records=1), make_batch(records=2)]
    manager.replace_by_parts(whole, parts)
    assert [place(batch) for batch in (*parts, behind)] == [(0, 1), (0, 2), (0, 4)]
    assert manager.is_before(parts[0], parts[1])
    assert manager.is_before(parts[1], behind)
    assert manager.may_send(parts[0])
    assert not manager.may_send(parts[1])


# -- a gap ---


def refused(manager: Sequences, batch: ProducerBatch) -> None:
    assert manager.may_retry(batch, codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_gap_right_behind_the_acknowledged_ones_calls_for_a_new_epoch() -> None:
    manager = ready()
    acknowledged(manager)
    batches = [sent(manager) for _ in range(4)]
    refused(manager, batches[0])
    assert manager.settle_sequences() == [P0]
    assert manager.producer == ProducerIdAndEpoch(15, 1)
    assert [place(batch) for batch in batches] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert all(batch.sequence_has_been_reset for batch in batches)


def test_a_gap_behind_a_batch_that_is_being_repeated_is_no_gap() -> None:
    manager = ready()
    acknowledged(manager)
    _, second = sent(manager), sent(manager)
    refused(manager, second)
    assert manager.settle_sequences() == []
    assert manager.producer.epoch == 0


def test_a_gap_before_what_was_acknowledged_cannot_be() -> None:
    """The broker took a later one: it has the first, or will never have it. It is asked again, not renumbered."""
    manager = ready()
    acknowledged(manager)
    first, second = sent(manager), sent(manager)
    manager.batch_succeeded(second)
    refused(manager, first)
    assert manager.settle_sequences() == []


def test_the_old_answers_of_renumbered_batches_do_not_bump_the_epoch_again() -> None:
    manager = ready()
    acknowledged(manager)
    first, second = sent(manager), sent(manager)
    refused(manager, first)
    manager.settle_sequences()
    refused(manager, second)
    manager.settle_sequences()
    assert manager.producer.epoch == 1


def test_what_was_acknowledged_last_is_the_latest_in_the_log_whatever_was_answered_last() -> None:
    """Answers of two connections may come out of order: the one behind the lost batch tells that it is there."""
    manager = ready()
    acknowledged(manager)
    lost, second, third = sent(manager), sent(manager), sent(manager)
    lose(lost)
    manager.batch_failed(lost)
    manager.batch_succeeded(third)
    manager.batch_succeeded(second)
    manager.settle_sequences()
    assert place(sent(manager)) == (0, 4)


def test_a_renumbered_batch_that_was_written_all_the_same_leaves_a_gap_to_close() -> None:
    manager = ready()
    acknowledged(manager)
    first, second = sent(manager), sent(manager)
    refused(manager, first)
    manager.settle_sequences()
    manager.batch_succeeded(first)
    assert manager.settle_sequences() == [P0]
    assert place(second) == (2, 0)


def test_other_partitions_finish_under_the_old_epoch_and_then_restart_at_0() -> None:
    manager = ready()
    acknowledged(manager, P0)
    acknowledged(manager, P1)
    sick, healthy = sent(manager, P0), sent(manager, P1)
    refused(manager, sick)
    manager.settle_sequences()
    assert place(healthy) == (0, 1)
    assert not manager.may_send(make_batch(P1))
    assert manager.may_retry(healthy, codes.NOT_LEADER_OR_FOLLOWER, -1)
    assert manager.may_send(healthy)
    manager.batch_succeeded(healthy)
    assert place(sent(manager, P1)) == (1, 0)


def test_a_partition_that_restarts_under_a_new_epoch_must_have_nothing_in_flight() -> None:
    manager = ready()
    acknowledged(manager, P0)
    acknowledged(manager, P1)
    sick = sent(manager, P0)
    sent(manager, P1)
    refused(manager, sick)
    manager.settle_sequences()
    with pytest.raises(RuntimeError, match="in flight"):
        manager.assign_sequence(make_batch(P1))


def test_a_broker_that_forgot_the_producer() -> None:
    manager = ready()
    acknowledged(manager)
    batch = sent(manager)
    assert manager.may_retry(batch, codes.UNKNOWN_PRODUCER_ID, -1)
    assert manager.settle_sequences() == []
    assert manager.may_retry(batch, codes.UNKNOWN_PRODUCER_ID, 500)
    assert manager.settle_sequences() == [P0]
    assert place(batch) == (1, 0)


# -- the last epoch ---


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    manager = ready(15, MAX_EPOCH)
    acknowledged(manager, P0)
    acknowledged(manager, P1)
    sick, healthy = sent(manager, P0), sent(manager, P1)
    refused(manager, sick)
    assert manager.settle_sequences() == [P0]
    assert manager.needs_producer_id
    assert not manager.may_send(sick)
    manager.init_begun()
    assert manager.settle_sequences() == []
    manager.init_succeeded(16, 0)
    assert (sick.producer, sick.base_sequence) == (ProducerIdAndEpoch(16, 0), 0)
    assert (healthy.producer, healthy.base_sequence) == (ProducerIdAndEpoch(15, MAX_EPOCH), 1)
    assert manager.may_send(healthy)
    manager.batch_succeeded(healthy)
    manager.batch_succeeded(sick)
    restarted = sent(manager, P1)
    assert (restarted.producer, restarted.base_sequence) == (ProducerIdAndEpoch(16, 0), 0)
    assert place(sent(manager, P0)) == (0, 1)


def test_while_the_new_id_is_asked_for_failures_wait_for_it() -> None:
    manager = ready(15, MAX_EPOCH)
    acknowledged(manager, P0)
    acknowledged(manager, P1)
    first, second = sent(manager, P0), sent(manager, P1)
    refused(manager, first)
    manager.settle_sequences()
    manager.init_begun()
    refused(manager, second)
    manager.settle_sequences()
    manager.init_succeeded(16, 0)
    assert [(batch.producer.producer_id, batch.base_sequence) for batch in (first, second)] == [(16, 0)] * 2
    assert manager.settle_sequences() == []
    assert manager.producer == ProducerIdAndEpoch(16, 0)


# -- batches that are given up ---


def test_given_up_before_it_had_a_sequence() -> None:
    manager = ready()
    manager.batch_failed(make_batch())
    assert manager.settle_sequences() == []
    assert manager.producer.epoch == 0


def test_given_up_for_good_with_nothing_behind_it() -> None:
    manager = ready()
    acknowledged(manager)
    manager.batch_failed(sent(manager))
    assert manager.settle_sequences() == [P0]
    assert place(sent(manager)) == (1, 0)


def test_of_unknown_fate_and_alone() -> None:
    manager = ready()
    acknowledged(manager)
    batch = sent(manager)
    lose(batch)
    manager.batch_failed(batch)
    assert not manager.may_send(make_batch())
    assert set(manager.settle_sequences()) == {P0}
    assert place(sent(manager)) == (1, 0)


def test_of_unknown_fate_and_acknowledged_late() -> None:
    manager = ready()
    acknowledged(manager)
    batch = sent(manager)
    lose(batch)
    manager.batch_failed(batch)
    manager.batch_succeeded(batch)
    assert manager.settle_sequences() == [P0]
    assert manager.producer.epoch == 0
    assert place(sent(manager)) == (0, 2)


@pytest.mark.parametrize("is_certain", [True, False])
def test_given_up_and_the_last_behind_it_succeeds(is_certain: bool) -> None:
    manager = ready()
    acknowledged(manager)
    first, second, third = (sent(manager) for _ in range(3))
    for batch in (first, second):
        if not is_certain:
            lose(batch)
        manager.batch_failed(batch)
        assert manager.settle_sequences() == []
        assert not manager.may_send(make_batch())
    manager.batch_succeeded(third)
    assert manager.settle_sequences() == [P0]
    assert manager.producer.epoch == 0
    assert place(sent(manager)) == (0, 4)


def test_given_up_and_the_last_behind_it_is_given_up_too() -> None:
    manager = ready()
    acknowledged(manager)
    first, second, third = (sent(manager) for _ in range(3))
    lose(first)
    manager.batch_failed(first)
    manager.batch_succeeded(second)
    assert manager.settle_sequences() == []
    lose(third)
    manager.batch_failed(third)
    assert set(manager.settle_sequences()) == {P0}
    assert place(sent(manager)) == (1, 0)


def test_given_up_and_the_one_right_behind_it_is_refused() -> None:
    manager = ready()
    acknowledged(manager)
    first, second, third = (sent(manager) for _ in range(3))
    lose(first)
    manager.batch_failed(first)
    refused(manager, third)
    assert manager.settle_sequences() == []
    refused(manager, second)
    assert manager.settle_sequences() == [P0]
    assert [place(batch) for batch in (second, third)] == [(1, 0), (1, 1)]


def test_given_up_behind_one_that_the_broker_then_refuses() -> None:
    manager = ready()
    acknowledged(manager)
    first, second, third = (sent(manager) for _ in range(3))
    manager.batch_failed(third)
    manager.batch_failed(first)
    refused(manager, second)
    assert P0 in manager.settle_sequences()
    assert place(second) == (1, 0)


def test_given_up_under_an_epoch_that_is_over() -> None:
    manager = ready()
    acknowledged(manager)
    batch = sent(manager)
    lose(batch)
    manager.batch_failed(batch)
    manager.settle_sequences()
    fresh = sent(manager)
    manager.batch_succeeded(batch)
    manager.batch_failed(batch)
    assert manager.settle_sequences() == []
    manager.batch_succeeded(fresh)
    assert place(sent(manager)) == (1, 1)


def test_two_partitions_with_a_gap_share_one_bump() -> None:
    manager = ready()
    acknowledged(manager, P0)
    acknowledged(manager, P1)
    first, second = sent(manager, P0), sent(manager, P1)
    refused(manager, first)
    refused(manager, second)
    assert manager.settle_sequences() == [P0, P1]
    assert manager.producer.epoch == 1
    assert [place(first), place(second)] == [(1, 0), (1, 0)]
