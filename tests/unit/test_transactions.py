"""Transactions as brokers see them: which requests go out, in which order and version, and what answers make of
them.
"""

from __future__ import annotations

import pytest

from aioproduce.core.transactions.pause import Pause
from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionTimedOutError,
)
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import PRODUCER_ID
from tests.unit.sender_wire import INIT_PRODUCER_ID, PRODUCE
from tests.unit.transaction_harness import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    DESCRIBE,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    TransactionHarness,
)

COMMITTED, ABORTED, UNKNOWN = (
    TransactionOutcome.COMMITTED,
    TransactionOutcome.ABORTED,
    TransactionOutcome.UNKNOWN,
)
GROUP = GroupMetadata("group-1", 3, "member-1")
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7)}


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return TransactionHarness(version=request.param)


# -- what is sent ---


def test_a_committed_transaction_of_version_2() -> None:
    h = TransactionHarness()
    (record,) = h.begun_with(0)
    request = h.produce()
    assert (request.version, request.body["transactional_id"]) == (13, "orders-1")
    assert request.batch().content[22] & 0x10, "the batch says that it belongs to a transaction"
    assert h.verdicts == []
    operation = h.commit()
    assert not operation.is_done
    h.acknowledge()
    assert record.offset == 0
    assert (operation.outcome, operation.error) == (COMMITTED, None)
    assert h.verdicts == [(True, 0)]
    assert h.apis() == [FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, END_TXN]
    # The end brought the next epoch: sequences begin again.
    h.begun_with(0)
    assert h.produce().batch().place == (1, 0)


def test_a_committed_transaction_of_version_1() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    h.begun_with(0, 1)
    assert h.produces == []
    h.unhold(ADD_PARTITIONS)
    asked = [request for request in h.history if request.api == ADD_PARTITIONS]
    assert {request.version for request in asked} == {3}
    assert {request.version for request in h.produces} == {11}
    h.acknowledge_all()
    operation = h.commit()
    assert operation.outcome is COMMITTED
    # The epoch stays, and the sequences go on.
    h.begun_with(0)
    assert h.produce().batch().place == (0, 1)
    assert h.count(ADD_PARTITIONS) >= 2


def test_nothing_was_sent_so_nothing_is_ended(h: TransactionHarness) -> None:
    for end, outcome in ((h.commit, COMMITTED), (h.abort, ABORTED)):
        h.begin()
        assert end().outcome is outcome
    assert h.verdicts == []


def test_the_commit_waits_for_every_record(h: TransactionHarness) -> None:
    first, second = h.begun_with(0, 1)
    operation = h.commit()
    h.acknowledge()
    assert h.verdicts == []
    assert not operation.is_done
    h.acknowledge_all()
    assert first.is_done
    assert second.is_done
    assert operation.outcome is COMMITTED


def test_an_abort_fails_what_was_not_sent_and_waits_for_what_was(h: TransactionHarness) -> None:
    h.begin()
    sent = h.send(0)
    waiting = h.append(0)
    operation = h.abort()
    assert isinstance(waiting.error, TransactionAbortedError)
    assert not waiting.error.possibly_written
    assert h.verdicts == []
    h.acknowledge()
    assert sent.offset == 0
    assert operation.outcome is ABORTED
    assert h.verdicts == [(False, 0)]


def test_a_failed_record_makes_the_commit_impossible(h: TransactionHarness) -> None:
    first, second = h.begun_with(0, 1)
    operation = h.commit()
    h.answer(h.produces[0], codes.MESSAGE_TOO_LARGE)
    assert isinstance(operation.error, TransactionFailedError)
    assert operation.error.recover == "abort"
    assert operation.error.__cause__ is not None
    with pytest.raises(TransactionFailedError, match="abort it"):
        h.manager.commit(h.now)
    operation = h.abort()
    h.acknowledge_all()
    assert operation.outcome is ABORTED
    assert [verdict for verdict, _ in h.verdicts] == [False]
    assert first.error
    assert second.is_done


def test_what_was_certainly_not_registered_is_not_ended() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    (record,) = h.begun_with(0)
    h.answer_waiting(ADD_PARTITIONS, codes.CONCURRENT_TRANSACTIONS)
    assert h.abort().outcome is ABORTED
    assert record.error
    assert h.verdicts == []
    assert h.manager.state is TransactionState.READY


def test_what_may_be_registered_is_ended_and_a_new_epoch_follows() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    h.begun_with(0)
    h.lose(0)
    operation = h.abort()
    h.advance(0.2)
    assert operation.outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    assert h.count(INIT_PRODUCER_ID) == 2
    assert h.manager.state is TransactionState.READY


def test_an_abort_waits_for_the_answer_of_what_registers() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    h.begun_with(0)
    operation = h.abort()
    assert h.verdicts == []
    h.answer_waiting(ADD_PARTITIONS)
    assert operation.outcome is ABORTED
    assert h.verdicts == [(False, 0)]


# -- offsets ---


def test_offsets_go_to_the_groups_own_coordinator(h: TransactionHarness) -> None:
    h.begin()
    operation = h.manager.send_offsets(OFFSETS, GROUP, h.now)
    h.run()
    assert operation.is_done
    (request,) = [request for request in h.history if request.api == OFFSET_COMMIT]
    assert request.version == (4 if h.version == 1 else 5)
    assert request.body["member_id"] == "member-1"
    assert h.count(ADD_OFFSETS) == (1 if h.version == 1 else 0)
    assert h.commit().outcome is COMMITTED
    assert h.verdicts == [(True, 0)]


def test_offsets_of_a_member_that_has_lost_its_partitions(h: TransactionHarness) -> None:
    h.begin()
    h.held.add(OFFSET_COMMIT)
    operation = h.manager.send_offsets(OFFSETS, GROUP, h.now)
    h.run()
    h.answer_waiting(OFFSET_COMMIT, codes.ILLEGAL_GENERATION)
    assert isinstance(operation.error, TransactionFailedError)
    assert "rebalanced" in str(operation.error)
    assert h.abort().outcome is ABORTED
    # Nothing of it goes with the next transaction.
    h.held.clear()
    h.begin()
    assert h.commit().outcome is COMMITTED
    assert h.count(OFFSET_COMMIT) == 1


@pytest.mark.parametrize(
    ("api", "right"), [(FIND_COORDINATOR, "grant Describe and Read"), (OFFSET_COMMIT, "grant Read")]
)
def test_a_group_that_is_refused_is_named(h: TransactionHarness, api: int, right: str) -> None:
    h.begin()
    h.held.add(api)
    operation = h.manager.send_offsets(OFFSETS, GROUP, h.now)
    h.run()
    h.answer_waiting(api, codes.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(operation.error, TransactionFailedError)
    assert operation.error.recover == "abort"
    assert "'group-1'" in str(operation.error)
    assert right in str(operation.error)
    assert h.abort().outcome is ABORTED


def test_offsets_of_a_partition_that_is_not_there_end_with_their_cause_while_the_call_waits() -> None:
    h = TransactionHarness(max_block_ms=5_000)
    h.begin()
    h.held.add(OFFSET_COMMIT)
    begun = h.now
    operation = h.manager.send_offsets(OFFSETS, GROUP, h.now)
    h.run()
    while not operation.is_done:
        if h.waiting(OFFSET_COMMIT):
            h.answer_waiting(OFFSET_COMMIT, codes.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            h.advance(0.01)
    assert begun + 2.5 < h.now < begun + 5
    assert operation.error is not None
    assert operation.error.code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert "in-0" in str(operation.error)
    assert h.abort().outcome is ABORTED


# -- the end is never the opposite ---


def test_a_commit_without_an_answer_is_asked_again_and_nothing_else_is(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.lose(0)
    h.advance(0.2)
    assert not operation.is_done
    with pytest.raises(TransactionStateError, match="outcome of a commit is awaited"):
        h.manager.abort(h.now)
    assert h.manager.commit(h.now) is operation
    h.answer_waiting(END_TXN)
    assert operation.outcome is COMMITTED
    assert h.verdicts == [(True, 0), (True, 0)]


def test_version_1_takes_a_new_epoch_after_an_unconfirmed_end() -> None:
    h = TransactionHarness(version=1)
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.lose(0)
    h.advance(0.2)
    h.answer_waiting(END_TXN)
    assert operation.outcome is COMMITTED
    assert h.history[-1].api == INIT_PRODUCER_ID
    assert h.history[-1].body["producer_id"] == PRODUCER_ID
    h.begun_with(0)
    assert h.produce().batch().place == (1, 0)


@pytest.mark.parametrize("code", [codes.INVALID_TXN_STATE, codes.PRODUCER_FENCED])
def test_the_coordinators_time_out_is_told_from_a_fence_by_a_probe(code: int) -> None:
    h = TransactionHarness()
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.answer_waiting(END_TXN, code)
    assert not operation.is_done
    h.answer_waiting(END_TXN)
    assert isinstance(operation.error, TransactionTimedOutError)
    assert (operation.outcome, operation.error.outcome, operation.error.recover) == (
        ABORTED,
        ABORTED,
        "begin",
    )
    assert h.verdicts == [(True, 0), (False, 0)]
    # The same producer commits the next, with an epoch that nobody else can have been given.
    h.held.clear()
    assert h.history[-1].api == INIT_PRODUCER_ID
    assert h.history[-1].body["producer_epoch"] == 1
    h.begun_with(0)
    assert h.produce().batch().place == (2, 0)
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED


def test_who_was_fenced_may_be_given_the_epoch_of_who_fenced_it() -> None:
    """With version 1 an end does not raise the epoch, and an abort of version 2 takes it for its own."""
    h = TransactionHarness()
    h.held.add(END_TXN)
    h.begun_with(0)
    h.answer(code=codes.INVALID_PRODUCER_EPOCH)
    operation = h.abort()
    h.answer_waiting(END_TXN)
    assert operation.outcome is ABORTED
    assert h.history[-1].api == INIT_PRODUCER_ID
    assert h.history[-1].body["producer_epoch"] == 1
    h.begun_with(0)
    assert h.produce().batch().place == (2, 0)


def test_the_probe_finds_that_an_earlier_attempt_committed() -> None:
    h = TransactionHarness()
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    h.answer_waiting(END_TXN, codes.INVALID_TXN_STATE)
    assert (operation.error, operation.outcome) == (None, COMMITTED)
    assert h.history[-1].api == INIT_PRODUCER_ID


@pytest.mark.parametrize(("is_lost", "outcome"), [(False, ABORTED), (True, UNKNOWN)])
def test_really_fenced(is_lost: bool, outcome: TransactionOutcome) -> None:
    h = TransactionHarness()
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    if is_lost:
        h.lose(0)
        h.advance(0.2)
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    assert isinstance(operation.error, ProducerFencedError)
    assert operation.error.is_fatal
    assert operation.error.outcome is outcome
    assert h.manager.outcomes == {outcome: 1}
    with pytest.raises(ProducerFencedError):
        h.manager.begin()
    # A close has nothing more to tell: what is known of it stays, and is not counted again.
    h.sender.begin_close(h.now)
    h.run()
    assert h.is_closed()
    assert h.manager.transaction is not None
    assert h.manager.transaction.outcome is outcome
    assert h.manager.outcomes == {outcome: 1}


def test_a_fence_of_version_1_stands_where_brokers_cannot_be_asked() -> None:
    """Before Kafka 3.0 there is no DescribeTransactions."""
    h = TransactionHarness(version=1, has_describe=False)
    h.held.add(END_TXN)
    h.begin()
    h.advance(0.01)
    h.send(0)
    h.acknowledge_all()
    operation = h.commit()
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    assert isinstance(operation.error, ProducerFencedError)
    assert (operation.error.outcome, operation.error.recover) == (ABORTED, "new producer")


def test_with_version_1_the_coordinator_is_asked_whose_epoch_it_is() -> None:
    h = TransactionHarness(version=1)
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    assert h.count(DESCRIBE) == 1
    assert isinstance(operation.error, TransactionTimedOutError)
    assert operation.error.recover == "init"
    assert h.manager.state is TransactionState.UNINITIALIZED
    h.held.clear()
    operation = h.manager.init()
    h.run()
    assert operation.error is None
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED


@pytest.mark.parametrize(
    ("state", "is_ours"), [("CompleteAbort", True), ("Empty", False), ("Ongoing", False)], ids=str
)
def test_a_late_request_has_opened_a_transaction_before_the_new_epoch_came(state: str, is_ours: bool) -> None:
    h = TransactionHarness(version=1)
    h.held |= {END_TXN, INIT_PRODUCER_ID}
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.lose(0)
    h.advance(0.2)
    h.answer_waiting(END_TXN)
    assert operation.outcome is COMMITTED
    # A late AddPartitionsToTxn was there first. The coordinator has aborted what it opened, by an epoch of its own.
    h.described_state = state
    h.answer_waiting(INIT_PRODUCER_ID, codes.PRODUCER_FENCED)
    assert h.count(DESCRIBE) == 1
    if not is_ours:
        assert isinstance(h.manager.error, ProducerFencedError)
        return
    assert h.answer_waiting(INIT_PRODUCER_ID).body["producer_epoch"] == -1
    h.held.clear()
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED


# -- coordinators ---


def test_a_coordinator_that_moved_is_found(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.answer_waiting(END_TXN, codes.NOT_COORDINATOR)
    h.advance(0.1)
    assert h.count(FIND_COORDINATOR) == 2
    h.answer_waiting(END_TXN)
    assert operation.outcome is COMMITTED


def test_a_coordinator_that_cannot_be_connected_to_is_looked_up_anew() -> None:
    h = TransactionHarness(brokers=2, is_initialised=False)
    h.coordinator = 1
    h.down.add(1)
    operation = h.manager.init()
    h.run()
    h.advance(0.5)
    assert h.count(FIND_COORDINATOR) >= 2
    assert not operation.is_done
    h.coordinator = 0
    h.advance(0.5)
    assert operation.is_done


def test_markers_are_being_written() -> None:
    h = TransactionHarness(is_initialised=False)
    h.held.add(INIT_PRODUCER_ID)
    operation = h.manager.init()
    h.run()
    for _ in range(3):
        h.answer_waiting(INIT_PRODUCER_ID, codes.CONCURRENT_TRANSACTIONS)
        h.advance(1.0)
    h.answer_waiting(INIT_PRODUCER_ID)
    assert operation.is_done


# -- time and close ---


def test_one_that_is_open_for_too_long_is_aborted_here(h: TransactionHarness) -> None:
    h.begun_with(0)
    h.acknowledge_all()
    h.advance(60.1)
    assert h.manager.state is TransactionState.ABORTABLE_ERROR
    assert h.abort().outcome is ABORTED


def after_a_commit(h: TransactionHarness) -> None:
    """The next transaction is open, and has a record."""
    h.begun_with(0)
    h.acknowledge_all()
    assert h.commit().outcome is COMMITTED
    h.manager.begin()
    h.send(0)


def test_the_next_transaction_waits_until_the_markers_are_written(h: TransactionHarness) -> None:
    h.held.add(DESCRIBE)
    after_a_commit(h)
    for _ in range(3):
        h.described_state = "PrepareCommit"
        h.answer_waiting(DESCRIBE)
        assert h.produces == []
        assert h.count(ADD_PARTITIONS) == (1 if h.version == 1 else 0)
    h.advance(0.001)
    h.described_state = "CompleteCommit"
    h.answer_waiting(DESCRIBE)
    assert len(h.produces) == 1
    assert h.manager.pause.seconds == pytest.approx(0.001)


def test_markers_are_not_waited_for_for_ever(h: TransactionHarness) -> None:
    h.held.add(DESCRIBE)
    after_a_commit(h)
    assert h.produces == []
    h.advance(0.0049)
    assert h.produces == []
    h.advance(0.0002)
    h.described_state = "PrepareCommit"
    h.answer_waiting(DESCRIBE)
    assert len(h.produces) == 1


def test_the_questions_about_markers_have_an_end(h: TransactionHarness) -> None:
    h.held.add(DESCRIBE)
    after_a_commit(h)
    h.described_state = "PrepareAbort"
    for _ in range(16):
        h.answer_waiting(DESCRIBE)
    assert h.waiting(DESCRIBE) == []
    assert h.produces == []
    h.advance(0.0051)
    assert len(h.produces) == 1


def test_a_coordinator_that_does_not_tell_of_markers(h: TransactionHarness) -> None:
    h.held.add(DESCRIBE)
    after_a_commit(h)
    h.answer_waiting(DESCRIBE, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert h.produces == []
    h.advance(0.0011)
    h.acknowledge_all()
    assert h.commit().outcome is COMMITTED
    # It is not asked any more.
    h.manager.begin()
    h.send(0)
    assert h.waiting(DESCRIBE) == []
    h.advance(0.0011)
    assert len(h.produces) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_brokers_without_a_way_to_ask_for_markers(version: int) -> None:
    h = TransactionHarness(version=version, has_describe=False)
    after_a_commit(h)
    assert h.produces == []
    h.advance(0.0011)
    assert len(h.produces) == 1


def test_a_pause_that_is_learned() -> None:
    pause = Pause()
    now = 0.0
    pause.ended(now)
    pause.answered_question(None, now)
    assert pause.until == 0.001

    def first_produce(wait: float) -> float:
        nonlocal now
        pause.begun()
        pause.produced(now)
        pause.produced(now + 1)
        now += wait
        pause.answered(now)
        pause.answered(now + 1)
        pause.ended(now)
        return float(pause.until - now)

    assert first_produce(0.021) == pytest.approx(0.002)
    assert first_produce(0.021) == pytest.approx(0.004)
    assert [first_produce(0.001) for _ in range(32)][-1] == pytest.approx(0.0032)
    assert first_produce(0.021) == pytest.approx(0.005)
    assert first_produce(0.021) == 0.0  # of no use: something else takes so long
    assert [first_produce(0.021) for _ in range(64)][-1] == pytest.approx(0.001)


def test_a_close_aborts_what_is_open(h: TransactionHarness) -> None:
    h.begun_with(0)
    h.sender.begin_close(h.now)
    h.run()
    h.acknowledge_all()
    assert h.verdicts == [(False, 0)]
    assert h.is_closed()


def test_a_close_does_not_wait_for_ever_for_an_end(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.sender.begin_close(h.now)
    h.advance(61)
    assert h.is_closed()
    assert operation.error is not None
    assert operation.error.outcome is UNKNOWN


def test_a_forced_close_tells_whoever_waits(h: TransactionHarness) -> None:
    h.begun_with(0)
    operation = h.commit()
    h.sender.abort(h.now)
    h.run()
    assert operation.is_done
    assert operation.error is not None


# -- versions ---


def test_the_newest_agreement_counts_and_a_transaction_ends_as_it_began() -> None:
    h = TransactionHarness(version=1)
    h.begun_with(0)
    h.acknowledge_all()
    h.sender.connections.features.told({"transaction.version": (2, 2)}, 9)
    h.sender.connections.features.told({"transaction.version": (1, 1)}, 8)
    operation = h.commit()
    assert operation.outcome is COMMITTED
    (end,) = [request for request in h.history if request.api == END_TXN]
    assert end.version == 4
    # One new epoch by the client, then version 2.
    assert h.history[-1].api == INIT_PRODUCER_ID
    h.begun_with(0)
    assert h.produce().version == 13
    assert h.produce().batch().place == (1, 0)


# -- what seeds of the simulation found ---


def test_a_part_that_is_fenced_while_the_transaction_is_aborted_changes_nothing(
    h: TransactionHarness,
) -> None:
    h.held.add(OFFSET_COMMIT)
    h.begin()
    h.manager.send_offsets(dict(OFFSETS), GROUP, h.now)
    h.run()
    operation = h.abort()
    h.answer_waiting(OFFSET_COMMIT, codes.INVALID_PRODUCER_EPOCH)
    h.run()
    assert operation.outcome is ABORTED
    assert h.manager.state is TransactionState.READY


def test_with_version_1_a_fenced_group_is_asked_about() -> None:
    h = TransactionHarness(version=1)
    h.held |= {ADD_OFFSETS, END_TXN}
    h.begin()
    h.manager.send_offsets(dict(OFFSETS), GROUP, h.now)
    h.run()
    h.answer_waiting(ADD_OFFSETS, codes.PRODUCER_FENCED)
    h.abort()
    h.answer_waiting(END_TXN, codes.PRODUCER_FENCED)
    h.run()
    assert h.count(DESCRIBE) == 1
    assert h.manager.state is TransactionState.UNINITIALIZED


def test_records_of_two_partitions_that_expire_together(h: TransactionHarness) -> None:
    h.held.add(ADD_PARTITIONS)
    first, second = h.begun_with(0, 1)
    h.advance(130.0)
    assert first.is_done
    assert second.is_done
    assert h.manager.state is TransactionState.ABORTABLE_ERROR
