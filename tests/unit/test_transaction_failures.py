"""What each refusal makes of a transaction: asked again, to be aborted, or the end of the producer.

The cases of Kafka's TransactionManagerTest, at the level of the wire.
"""

from __future__ import annotations

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionsUnavailableError,
)
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from aioproduce.wire import error_codes as codes
from tests.unit.sender_wire import INIT_PRODUCER_ID, TOPIC
from tests.unit.transaction_harness import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    TransactionHarness,
)

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
State = TransactionState
FENCES = pytest.mark.parametrize("code", [codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH])
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return TransactionHarness(version=request.param)


def refused_and_asked_again(h: TransactionHarness, api: int, code: int) -> None:
    """The request that waits is refused, and comes again once its back-off is over."""
    asked = h.count(api)
    h.answer_waiting(api, code)
    assert h.count(api) == asked
    h.advance(0.06)
    assert h.count(api) == asked + 1


def send_offsets_refused(h: TransactionHarness, api: int, code: int) -> BaseException | None:
    """Offsets of a new transaction are refused; why the call failed."""
    h.begin()
    h.held.add(api)
    operation = h.manager.send_offsets(
        {TopicPartition("in", 0): OffsetAndMetadata(7)}, GroupMetadata("group-1"), h.now
    )
    h.run()
    h.answer_waiting(api, code)
    h.held.discard(api)
    assert operation.is_done
    return operation.error


def every_call_is_fenced(h: TransactionHarness) -> None:
    for call in (
        h.manager.init,
        h.manager.begin,
        h.commit,
        h.abort,
        lambda: h.manager.prepare(h.now),
        lambda: h.manager.send_offsets({}, GroupMetadata("group-1"), h.now),
    ):
        with pytest.raises(ProducerFencedError):
            call()


def the_next_one_commits(h: TransactionHarness, place: tuple[int, int]) -> None:
    """A transaction of one record, which has this epoch and sequence."""
    h.held.clear()
    h.begun_with(0)
    assert h.produce().batch().place == place
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED


# -- asked again ---


@VERSIONS
@pytest.mark.parametrize(
    "code",
    [
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.REQUEST_TIMED_OUT,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.CONCURRENT_TRANSACTIONS,
    ],
)
def test_what_may_pass_is_asked_again(version: int, code: int) -> None:
    h = TransactionHarness(version=version, is_initialised=False)
    h.held |= {FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN}
    initialised = h.manager.init()
    h.run()
    refused_and_asked_again(h, FIND_COORDINATOR, code)
    h.unhold(FIND_COORDINATOR)
    refused_and_asked_again(h, INIT_PRODUCER_ID, code)
    h.answer_waiting(INIT_PRODUCER_ID)
    assert initialised.error is None
    (record,) = h.begun_with(0)
    if version == 1:
        refused_and_asked_again(h, ADD_PARTITIONS, code)
        assert h.produces == []
        h.answer_waiting(ADD_PARTITIONS)
    operation = h.commit()
    h.acknowledge_all()
    assert record.offset == 0
    refused_and_asked_again(h, END_TXN, code)
    h.answer_waiting(END_TXN)
    assert (operation.outcome, operation.error) == (COMMITTED, None)
    assert {is_commit for is_commit, _ in h.verdicts} == {True}


# -- fenced ---


@FENCES
def test_fenced_before_there_is_a_producer_id(code: int) -> None:
    h = TransactionHarness(is_initialised=False)
    h.held.add(INIT_PRODUCER_ID)
    operation = h.manager.init()
    h.run()
    h.answer_waiting(INIT_PRODUCER_ID, code)
    assert isinstance(operation.error, ProducerFencedError)
    every_call_is_fenced(h)


@FENCES
@pytest.mark.parametrize("part", ["partitions", "group"])
def test_a_part_is_fenced_and_the_abort_tells_by_whom(part: str, code: int) -> None:
    """Java dies at once; the coordinator's own time-out looks just the same."""
    h = TransactionHarness(version=1)
    if part == "partitions":
        h.held.add(ADD_PARTITIONS)
        (record,) = h.begun_with(0)
        h.answer_waiting(ADD_PARTITIONS, code)
        assert isinstance(record.error, TransactionAbortedError)
        assert not record.error.possibly_written
    else:
        assert isinstance(send_offsets_refused(h, ADD_OFFSETS, code), TransactionFailedError)
    h.held.add(END_TXN)
    operation = h.abort()
    h.described_state = "Ongoing"  # somebody else's
    h.answer_waiting(END_TXN, code)
    assert isinstance(operation.error, ProducerFencedError)
    assert operation.error.outcome is ABORTED
    assert h.produces == []
    every_call_is_fenced(h)


@VERSIONS
def test_fenced_by_the_code_of_an_old_epoch_when_it_commits(version: int) -> None:
    h = TransactionHarness(version=version)
    h.held.add(END_TXN)
    (record,) = h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.described_state = "Ongoing"
    h.answer_waiting(END_TXN, codes.INVALID_PRODUCER_EPOCH)
    if version == 2:
        h.answer_waiting(END_TXN, codes.INVALID_PRODUCER_EPOCH)
    assert record.offset == 0
    assert isinstance(operation.error, ProducerFencedError)
    assert operation.error.outcome is ABORTED
    every_call_is_fenced(h)


def test_an_old_epoch_told_by_a_leader_is_aborted_and_followed_by_a_new_one(h: TransactionHarness) -> None:
    h.begun_with(0)
    h.answer(code=codes.INVALID_PRODUCER_EPOCH)
    assert h.manager.state is State.ABORTABLE_ERROR
    asked = h.count(INIT_PRODUCER_ID)
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    assert h.count(INIT_PRODUCER_ID) == asked + 1
    the_next_one_commits(h, (2 if h.version == 2 else 1, 0))


# -- TRANSACTION_ABORTABLE (KIP-1050) ---


def test_an_abortable_refusal_of_an_id_may_be_asked_for_again() -> None:
    """Java wants an abort, of a transaction that there is not."""
    h = TransactionHarness(is_initialised=False)
    h.held.add(INIT_PRODUCER_ID)
    operation = h.manager.init()
    h.run()
    h.answer_waiting(INIT_PRODUCER_ID, codes.TRANSACTION_ABORTABLE)
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert operation.error.recover == "init"
    assert h.manager.wants_init
    h.held.clear()
    operation = h.manager.init()
    h.run()
    assert operation.error is None
    the_next_one_commits(h, (0, 0))


def test_abortable_when_partitions_are_added() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    (record,) = h.begun_with(0)
    h.answer_waiting(ADD_PARTITIONS, codes.TRANSACTION_ABORTABLE)
    assert isinstance(record.error, TransactionAbortedError)
    with pytest.raises(TransactionFailedError, match="TRANSACTION_ABORTABLE"):
        h.commit()
    assert h.abort().outcome is ABORTED


@pytest.mark.parametrize(
    ("version", "api"),
    [
        (1, FIND_COORDINATOR),
        (2, FIND_COORDINATOR),
        (1, ADD_OFFSETS),
        (1, OFFSET_COMMIT),
        (2, OFFSET_COMMIT),
    ],
)
def test_abortable_when_offsets_are_sent(version: int, api: int) -> None:
    h = TransactionHarness(version=version)
    error = send_offsets_refused(h, api, codes.TRANSACTION_ABORTABLE)
    assert isinstance(error, TransactionFailedError)
    assert (error.code, error.recover) == (codes.TRANSACTION_ABORTABLE, "abort")
    with pytest.raises(TransactionFailedError, match="TRANSACTION_ABORTABLE"):
        h.commit()
    assert h.abort().outcome is ABORTED


def test_abortable_when_it_commits(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    (record,) = h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    h.answer_waiting(END_TXN, codes.TRANSACTION_ABORTABLE)
    assert record.offset == 0
    assert isinstance(operation.error, TransactionFailedError)
    assert operation.error.recover == "abort"
    h.held.clear()
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(True, 0), (False, 0)]
    the_next_one_commits(h, (1, 0) if h.version == 2 else (0, 1))


def test_abortable_when_it_aborts_is_the_end(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    h.begun_with(0)
    h.acknowledge_all()
    committing = h.commit()
    h.answer_waiting(END_TXN, codes.TRANSACTION_ABORTABLE)
    assert isinstance(committing.error, TransactionFailedError)
    operation = h.abort()
    h.answer_waiting(END_TXN, codes.TRANSACTION_ABORTABLE)
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert operation.error.recover == "new producer"
    assert h.manager.state is State.FATAL_ERROR


@pytest.mark.parametrize("code", [codes.INVALID_TXN_STATE, codes.TRANSACTION_ABORTABLE])
def test_abortable_when_told_by_a_leader(h: TransactionHarness, code: int) -> None:
    (record,) = h.begun_with(0)
    h.answer(code=code)
    assert record.error.code == code
    assert h.manager.state is State.ABORTABLE_ERROR
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    h.begun_with(0)
    assert len(h.produces) == 1


# -- what is aborted ---


def test_a_topic_that_may_not_be_written_leaves_nothing_to_end() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    (record,) = h.begun_with(0)
    h.answer_waiting(ADD_PARTITIONS, codes.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(record.error, TransactionAbortedError)
    assert h.manager.transaction is not None
    assert TopicPartition(TOPIC, 0) not in h.manager.transaction.partitions
    assert h.manager.state is State.ABORTABLE_ERROR
    assert h.abort().outcome is ABORTED
    assert (h.verdicts, h.produces) == ([], [])
    the_next_one_commits(h, (0, 0))


def test_a_group_that_may_not_be_read_leaves_nothing_to_end() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_OFFSETS)
    h.begin()
    h.manager.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(7)}, GroupMetadata("group-1"), h.now)
    operation = h.abort()
    # An abort that comes before the request went out asks for nothing; this one comes after it.
    assert operation.is_done
    h.begin()
    h.manager.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(7)}, GroupMetadata("group-1"), h.now)
    h.run()
    operation = h.abort()
    assert not operation.is_done
    h.answer_waiting(ADD_OFFSETS, codes.GROUP_AUTHORIZATION_FAILED)
    assert operation.outcome is ABORTED
    assert h.verdicts == []
    assert h.manager.state is State.READY


def test_an_abort_hears_of_a_group_whose_refusal_is_the_end() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_OFFSETS)
    h.begin()
    h.manager.send_offsets({TopicPartition("in", 0): OffsetAndMetadata(7)}, GroupMetadata("group-1"), h.now)
    h.run()
    operation = h.abort()
    h.answer_waiting(ADD_OFFSETS, codes.UNKNOWN_SERVER_ERROR)
    assert isinstance(operation.error, TransactionsUnavailableError)
    assert h.manager.state is State.FATAL_ERROR


def test_an_abort_does_not_ask_again_for_partitions() -> None:
    """Java asks once more; here what may be registered is ended at once."""
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    (record,) = h.begun_with(0)
    h.answer_waiting(ADD_PARTITIONS, codes.UNKNOWN_TOPIC_OR_PARTITION)
    assert not record.is_done
    assert h.abort().outcome is ABORTED
    assert h.count(ADD_PARTITIONS) == 1
    assert h.verdicts == [(False, 0)]
    assert isinstance(record.error, TransactionAbortedError)


def test_a_coordinator_that_moved_is_found_by_the_abort() -> None:
    """Java looks for it while the transaction has failed; here nothing is asked for before the abort."""
    h = TransactionHarness(version=1)
    h.begun_with(0)
    h.held.add(ADD_PARTITIONS)
    h.send(1)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    assert h.manager.state is State.ABORTABLE_ERROR
    found = h.count(FIND_COORDINATOR)
    h.answer_waiting(ADD_PARTITIONS, codes.NOT_COORDINATOR)
    assert h.manager.state is State.ABORTABLE_ERROR
    assert h.abort().outcome is ABORTED
    assert h.count(FIND_COORDINATOR) == found + 1


# -- calls ---


def test_an_abort_without_an_answer_is_asked_again_and_nothing_else_is(h: TransactionHarness) -> None:
    h.held.add(END_TXN)
    h.begun_with(0)
    h.acknowledge_all()
    operation = h.abort()
    h.lose(0)
    h.advance(0.2)
    assert not operation.is_done
    with pytest.raises(TransactionStateError, match="outcome of an abort is awaited"):
        h.manager.commit(h.now)
    assert h.manager.abort(h.now) is operation
    h.answer_waiting(END_TXN)
    assert (operation.outcome, operation.error) == (ABORTED, None)
    assert h.verdicts == [(False, 0), (False, 0)]


def test_a_call_that_does_not_fit_changes_nothing(h: TransactionHarness) -> None:
    fresh = TransactionHarness(version=h.version, is_initialised=False)
    for call in (fresh.manager.begin, fresh.commit, fresh.abort):
        with pytest.raises(TransactionStateError, match="init_transactions"):
            call()
    assert fresh.manager.state is State.UNINITIALIZED
    for call in (h.commit, h.abort, h.manager.init):
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            call()
    assert h.manager.state is State.READY
    h.begin()
    with pytest.raises(TransactionStateError, match="a transaction is open"):
        h.manager.begin()
    h.send(0)
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED


@pytest.mark.parametrize("code", [codes.TRANSACTION_ABORTABLE, codes.UNKNOWN_PRODUCER_ID])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_may_be_carried_out_is_never_told_as_aborted(version: int, code: int) -> None:
    """Its first answer is lost; the next attempt meets a code that elsewhere asks for an abort."""
    h = TransactionHarness(version=version)
    h.held.add(END_TXN)
    h.begun_with(0)
    h.acknowledge_all()
    operation = h.commit()
    h.lose(0)
    h.advance(0.2)
    h.answer_waiting(END_TXN, code)
    assert operation.error is not None
    assert operation.outcome is TransactionOutcome.UNKNOWN
    assert h.count(END_TXN) == 2, "no abort follows"
    with pytest.raises(TransactionsUnavailableError):
        h.manager.abort(h.now)
