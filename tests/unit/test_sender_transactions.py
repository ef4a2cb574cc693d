"""Records of a transaction as the Sender sends them: lingering, retried, expired, split, and at a close.

The cases of Kafka's SenderTest and TransactionManagerTest, at the level of the wire.
"""

from __future__ import annotations

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    DeliveryTimeoutError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionOutcome,
)
from aioproduce.wire import error_codes as codes
from tests.unit.sender_wire import INIT_PRODUCER_ID, METADATA, PRODUCE
from tests.unit.transaction_harness import (
    ADD_PARTITIONS,
    END_TXN,
    FIND_COORDINATOR,
    TransactionHarness,
)

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
State = TransactionState
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return TransactionHarness(version=request.param)


def two_brokers(version: int) -> TransactionHarness:
    """The records' leader is node 0, the coordinator node 1."""
    h = TransactionHarness(version=version, brokers=2, is_initialised=False)
    h.coordinator = h.group_coordinator = 1
    operation = h.manager.init()
    h.run()
    assert operation.error is None
    return h


# -- before there is an id ---


def test_the_id_comes_while_metadata_is_asked_for_over_the_only_connection() -> None:
    h = TransactionHarness(
        is_bootstrapped=False, is_initialised=False, max_in_flight_requests_per_connection=1
    )
    h.held.add(METADATA)
    h.want("test")
    operation = h.manager.init()
    h.run()
    assert h.count(METADATA) == 1
    assert h.count(FIND_COORDINATOR) == 0
    h.unhold(METADATA)
    assert (operation.is_done, operation.error) == (True, None)


def test_a_throttled_coordinator_is_waited_for() -> None:
    h = TransactionHarness(version=1)
    h.begun_with(0)
    h.answer(throttle=0.7)
    h.send(1)
    assert h.count(ADD_PARTITIONS) == 1
    h.advance(0.69)
    assert h.count(ADD_PARTITIONS) == 1
    h.advance(0.02)
    assert h.count(ADD_PARTITIONS) == 2
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED


# -- linger, and the end ---


@VERSIONS
def test_a_commit_sends_what_lingers_at_once_and_the_next_transaction_lingers_again(version: int) -> None:
    h = TransactionHarness(version=version, linger_ms=50)
    h.begin()
    first, second = h.append(0), h.append(0)
    h.run()
    assert h.produces == []
    operation = h.commit()
    assert len(h.produce().batch().values) == 2
    assert h.verdicts == []
    h.acknowledge()
    assert (first.offset, second.offset) == (0, 1)
    assert operation.outcome is COMMITTED
    h.begin()
    h.append(0)
    h.advance(0.049)
    assert h.produces == []
    h.advance(0.001)
    assert len(h.produces) == 1


@VERSIONS
def test_a_commit_waits_for_what_is_queued_behind_what_is_on_its_way(version: int) -> None:
    h = TransactionHarness(version=version, linger_ms=50)
    h.begin()
    sent = h.append(0)
    h.advance(0.05)
    assert len(h.produces) == 1
    queued = h.append(0)
    operation = h.commit()
    h.acknowledge(offset=0)
    assert h.verdicts == []
    h.acknowledge(offset=1)
    assert (sent.offset, queued.offset) == (0, 1)
    assert operation.outcome is COMMITTED
    assert h.apis()[-1] == END_TXN


def test_an_abort_of_what_was_never_sent_sends_nothing(h: TransactionHarness) -> None:
    h.begin()
    record = h.append(0)
    asked = len(h.history)
    operation = h.manager.abort(h.now)
    h.run()
    assert operation.outcome is ABORTED
    assert isinstance(record.error, TransactionAbortedError)
    assert record.error.__cause__ is None
    assert len(h.history) == asked
    assert h.manager.state is State.READY


# -- records that fail ---


@pytest.mark.parametrize("is_committing", [True, False], ids=["committing", "open"])
def test_a_sequence_that_is_refused_leads_to_an_abort(h: TransactionHarness, is_committing: bool) -> None:
    (record,) = h.begun_with(0)
    operation = h.commit() if is_committing else None
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(record.error, TransactionAbortedError)
    cause = record.error.__cause__
    assert isinstance(cause, TransactionFailedError)
    assert cause.code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert h.manager.state is State.ABORTABLE_ERROR
    if operation is not None:
        assert operation.error is cause
    assert h.verdicts == []
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    assert h.next_place() == (1, 0)


def test_a_record_that_fails_while_it_is_aborted_changes_nothing(h: TransactionHarness) -> None:
    (record,) = h.begun_with(0)
    operation = h.abort()
    assert h.manager.state is State.ABORTING
    h.held.add(END_TXN)
    h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert record.error.code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not operation.is_done
    assert h.manager.state is State.ABORTING
    h.answer_waiting(END_TXN)
    assert (operation.outcome, operation.error) == (ABORTED, None)
    assert h.next_place() == (1, 0)


def test_an_abort_does_not_wait_for_another_attempt(h: TransactionHarness) -> None:
    """Java sends the batch once more; here it fails, as nobody would see it."""
    (record,) = h.begun_with(0)
    h.answer(code=codes.REQUEST_TIMED_OUT)
    assert not record.is_done
    assert h.abort().outcome is ABORTED
    assert isinstance(record.error, TransactionAbortedError)
    assert record.error.possibly_written
    h.advance(1.0)
    assert h.count(PRODUCE) == 1
    assert h.verdicts == [(False, 0)]
    assert h.next_place() == (1, 0)  # by version 1, too: it may still arrive


def test_a_transaction_that_has_failed_sends_nothing_more(h: TransactionHarness) -> None:
    """Java still sends to partitions that it had added; here those records fail with their transaction."""
    h.begin()
    retried = h.send(0)
    failed = h.send(1)
    h.answer(code=codes.NOT_LEADER_OR_FOLLOWER)
    queued = h.append(0)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    assert failed.error.code == codes.MESSAGE_TOO_LARGE
    for record in (retried, queued):
        assert isinstance(record.error, TransactionAbortedError)
        assert record.error.__cause__ is not None
    h.advance(1.0)
    assert h.count(PRODUCE) == 2
    assert not h.manager.is_open


def test_after_the_end_of_the_producer_a_refused_sequence_asks_for_no_new_epoch(
    h: TransactionHarness,
) -> None:
    h.begin()
    first, second = h.append(0), h.append(1)
    h.run()
    h.answer(codes={0: codes.CLUSTER_AUTHORIZATION_FAILED, 1: codes.OUT_OF_ORDER_SEQUENCE_NUMBER})
    assert h.manager.state is State.FATAL_ERROR
    assert first.error
    assert second.error
    h.advance(1.0)
    assert h.count(INIT_PRODUCER_ID) == 1
    assert h.manager.state is State.FATAL_ERROR


# -- expiry ---


@VERSIONS
@pytest.mark.parametrize("is_committing", [True, False], ids=["committing", "open"])
def test_records_that_expire_unsent_lead_to_an_abort(version: int, is_committing: bool) -> None:
    h = two_brokers(version)
    h.begun_with(0, 1)
    h.acknowledge_all()
    h.lose(0)
    h.down.add(0)
    expired = [h.send(0), h.send(1)]
    operation = h.commit() if is_committing else None
    h.advance(1.6)
    for record in expired:
        assert isinstance(record.error, (DeliveryTimeoutError, TransactionAbortedError))
    assert any(isinstance(record.error, DeliveryTimeoutError) for record in expired)
    assert h.manager.state is State.ABORTABLE_ERROR
    if operation is not None:
        assert isinstance(operation.error, TransactionFailedError)
        assert isinstance(operation.error.__cause__, DeliveryTimeoutError)
    assert h.verdicts == []
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]


@VERSIONS
@pytest.mark.parametrize("is_retried", [True, False], ids=["in retry", "in flight"])
def test_what_expires_and_may_be_written_leads_to_an_abort_and_a_new_epoch(
    version: int, is_retried: bool
) -> None:
    h = two_brokers(version)
    h.begin()
    h.send_acknowledged(0)
    record = h.send(0)
    if is_retried:
        h.answer(code=codes.REQUEST_TIMED_OUT)
        operation = h.commit()
    h.down.add(0)
    h.lose(0)
    h.advance(1.6)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert record.error.possibly_written
    assert h.manager.state is State.ABORTABLE_ERROR
    if is_retried:
        assert isinstance(operation.error, TransactionFailedError)
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    h.down.clear()
    h.advance(0.1)
    assert h.next_place() == (1, 0)


def test_a_late_answer_to_what_has_expired_changes_nothing() -> None:
    h = TransactionHarness(delivery_timeout_ms=500, request_timeout_ms=500)
    h.held.add(END_TXN)
    (record,) = h.begun_with(0)
    h.holds_closes = True
    h.advance(0.51)
    assert isinstance(record.error, DeliveryTimeoutError)
    assert h.manager.state is State.ABORTABLE_ERROR
    request = h.produces[0]
    operation = h.abort()
    h.answer(request, codes.INVALID_TXN_STATE)
    h.finish_closes()
    h.advance(0.1)
    assert not operation.is_done
    h.answer_waiting(END_TXN)
    assert operation.outcome is ABORTED
    assert h.next_place() == (1, 0)


# -- partitions that are added ---


def test_only_partitions_that_records_are_sent_to_are_added() -> None:
    h = TransactionHarness(version=1, partitions=8)
    h.begin()
    h.append(None)
    h.append(None)
    h.append(5)
    h.run()
    added = {
        partition
        for request in h.history
        if request.api == ADD_PARTITIONS
        for topic in request.body["v3_and_below_topics"]
        for partition in topic["partitions"]
    }
    sent: set[int] = set()
    while h.produces:
        sent.update(h.produces[0].partitions)
        h.acknowledge()
    assert added == sent
    assert 5 in sent
    assert len(sent) == 2


# -- close ---


def test_a_close_lets_a_commit_end(h: TransactionHarness) -> None:
    (record,) = h.begun_with(0)
    operation = h.manager.commit(h.now)
    h.sender.begin_close(h.now)
    h.run()
    assert not h.is_closed()
    h.acknowledge_all()
    assert record.offset == 0
    assert operation.outcome is COMMITTED
    assert h.verdicts == [(True, 0)]
    assert h.is_closed()


def test_a_close_after_the_end_of_the_producer(h: TransactionHarness) -> None:
    h.begun_with(0)
    h.answer(code=codes.CLUSTER_AUTHORIZATION_FAILED)
    assert h.manager.state is State.FATAL_ERROR
    h.sender.begin_close(h.now)
    h.run()
    assert h.is_closed()
    assert h.verdicts == []
