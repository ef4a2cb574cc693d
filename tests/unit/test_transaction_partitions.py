"""The partitions of a transaction: when the coordinator hears of them, and what its answers make of their records.

Scenarios of Java's TransactionManagerTest (tests/README.md says which test stands for which).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    TransactionAbortedError,
    TransactionError,
    TransactionFailedError,
    TransactionOutcome,
)
from aioproduce.records import TopicPartition
from aioproduce.wire import error_codes as codes
from tests.unit.sender_wire import INIT_PRODUCER_ID, PRODUCE, TOPIC
from tests.unit.transaction_harness import ADD_PARTITIONS, END_TXN, FIND_COORDINATOR, TransactionHarness

if TYPE_CHECKING:
    from tests.unit.sender_wire import Request

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED


def of_two_brokers(version: int, **settings: Any) -> TransactionHarness:
    """One leads every partition, the other one coordinates: their answers do not wait for each other."""
    h = TransactionHarness(version=version, brokers=2, is_initialised=False, **settings)
    h.coordinator = 1
    h.manager.init()
    h.run()
    return h


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return of_two_brokers(request.param)


def holding(**settings: Any) -> TransactionHarness:
    """Version 1; a transaction is open, and AddPartitionsToTxn is answered by the test."""
    h = of_two_brokers(1, **settings)
    h.held.add(ADD_PARTITIONS)
    h.begin()
    return h


def partitions_of(request: Request) -> list[int]:
    (topic,) = request.body["v3_and_below_topics"]
    assert topic["name"] == TOPIC
    return list(topic["partitions"])


def answer_each(h: TransactionHarness, **of_partition: int) -> None:
    """Answer AddPartitionsToTxn with a code for each partition (`p0`, `p1`), in this order."""
    (request,) = h.waiting(ADD_PARTITIONS)
    results = [
        {"partition_index": int(name[1:]), "partition_error_code": code}
        for name, code in of_partition.items()
    ]
    topics = [{"name": TOPIC, "results_by_partition": results}]
    h.reply(request, h.body(request, results_by_topic_v3_and_below=topics))


def commits_the_next(h: TransactionHarness) -> None:
    """The producer goes on: another transaction is committed."""
    h.held.clear()
    (record,) = h.begun_with(0)
    operation = h.commit()
    h.acknowledge_all()
    assert record.error is None
    assert operation.outcome is COMMITTED


# -- asked for once, and first ---


def test_with_version_1_a_partition_is_added_before_its_first_record_and_once() -> None:
    h = holding()
    first = h.send(0)
    assert partitions_of(h.waiting(ADD_PARTITIONS)[0]) == [0]
    assert h.produces == []
    h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge()
    second = h.send(0)
    h.acknowledge()
    assert first.is_done
    assert second.is_done
    assert h.count(ADD_PARTITIONS) == 1


def test_with_version_2_nothing_is_asked_for() -> None:
    h = TransactionHarness()
    h.begun_with(0, 1)
    assert [request.partitions for request in h.produces] == [[0], [1]]
    h.acknowledge_all()
    h.send(0)
    h.acknowledge()
    assert h.commit().outcome is COMMITTED
    assert h.count(ADD_PARTITIONS) == 0


def test_a_second_partition_is_added_while_the_first_is_sent_to() -> None:
    h = holding()
    first = h.send(0)
    h.answer_waiting(ADD_PARTITIONS)
    second, third = h.send(1), h.append(0)
    assert partitions_of(h.waiting(ADD_PARTITIONS)[0]) == [1]
    assert [request.partitions for request in h.produces] == [[0]]
    assert not h.manager.records.admits(TopicPartition(TOPIC, 1))
    h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge_all()
    assert [first.is_done, second.is_done, third.is_done] == [True, True, True]


def test_a_commit_flushes_in_order_partitions_records_the_end() -> None:
    h = holding()
    record = h.append(0)
    operation = h.commit()
    assert h.apis()[2:] == [ADD_PARTITIONS]
    h.answer_waiting(ADD_PARTITIONS)
    assert h.apis()[2:] == [ADD_PARTITIONS, PRODUCE]
    assert record.outcomes == []
    h.acknowledge()
    assert record.error is None
    assert h.apis()[2:] == [ADD_PARTITIONS, PRODUCE, END_TXN]
    assert operation.outcome is COMMITTED


# -- asked again ---


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(codes.CONCURRENT_TRANSACTIONS, 0.02), (codes.COORDINATOR_NOT_AVAILABLE, 0.05)],
    ids=["CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_how_long_to_wait_before_asking_again(code: int, seconds: float, *, is_first: bool) -> None:
    """Where partitions are added already, too: what stands in the way is the same."""
    h = holding()
    if not is_first:
        h.send(1)
        h.answer_waiting(ADD_PARTITIONS)
        h.acknowledge()
    h.send(0)
    h.answer_waiting(ADD_PARTITIONS, code)
    h.advance(seconds - 0.001)
    assert h.waiting(ADD_PARTITIONS) == []
    h.advance(0.002)
    h.answer_waiting(ADD_PARTITIONS)
    assert h.produce().partitions == [0]


def test_a_partition_that_is_not_there_yet_keeps_out_another_and_both_are_asked_for_again() -> None:
    """The coordinator attempts none where it does not know one: the others are not the cause."""
    h = holding()
    h.append(0)
    h.append(1)
    h.run()
    answer_each(h, p0=codes.OPERATION_NOT_ATTEMPTED, p1=codes.UNKNOWN_TOPIC_OR_PARTITION)
    assert h.manager.state is TransactionState.IN_TRANSACTION
    h.advance(0.051)
    assert partitions_of(h.waiting(ADD_PARTITIONS)[0]) == [0, 1]
    h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge_all()
    assert h.commit().outcome is COMMITTED


# -- refused ---


@pytest.mark.parametrize("is_first", [True, False])
def test_a_topic_that_may_not_be_written_is_told_as_the_cause(*, is_first: bool) -> None:
    h = holding()
    records = [h.append(0), h.append(1)]
    h.run()
    refused = {"p0": codes.TOPIC_AUTHORIZATION_FAILED}
    other = {"p1": codes.OPERATION_NOT_ATTEMPTED}
    answer_each(h, **(refused | other if is_first else other | refused))
    assert h.manager.state is TransactionState.ABORTABLE_ERROR
    for record in records:
        assert isinstance(record.error, TransactionAbortedError)
        cause = record.error.__cause__
        assert isinstance(cause, TransactionFailedError)
        assert (cause.code, cause.recover) == (codes.TOPIC_AUTHORIZATION_FAILED, "abort")
        assert "test-0" in str(cause)
        assert "grant Write on the topic" in str(cause)
    assert h.produces == []


def test_a_topic_that_may_not_be_written_ends_the_commit_that_waits_for_it() -> None:
    h = holding()
    records = [h.append(0), h.append(1)]
    operation = h.commit()
    assert not operation.is_done
    answer_each(h, p0=codes.TOPIC_AUTHORIZATION_FAILED, p1=codes.OPERATION_NOT_ATTEMPTED)
    assert isinstance(operation.error, TransactionFailedError)
    assert operation.error.code == codes.TOPIC_AUTHORIZATION_FAILED
    for record in records:
        assert isinstance(record.error, TransactionAbortedError)
        assert record.error.__cause__ is operation.error
    assert h.verdicts == []


def test_after_a_refusal_of_the_only_partition_nothing_is_ended_and_the_next_is_committed() -> None:
    h = holding()
    record = h.send(0)
    h.answer_waiting(ADD_PARTITIONS, codes.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(record.error, TransactionAbortedError)
    assert h.abort().outcome is ABORTED
    assert h.verdicts == []
    assert h.outstanding == 0
    commits_the_next(h)


def test_after_a_refusal_of_a_second_partition_the_abort_is_sent_and_the_next_is_committed() -> None:
    h = holding()
    first = h.send(0)
    h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge()
    unsent = h.send(1)
    h.answer_waiting(ADD_PARTITIONS, codes.TOPIC_AUTHORIZATION_FAILED)
    assert first.error is None
    assert isinstance(unsent.error, TransactionAbortedError)
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    assert h.outstanding == 0
    commits_the_next(h)


def test_what_waits_for_another_attempt_when_a_part_fails_is_not_sent_again() -> None:
    """Java sends it again and may tell that it is in the log; here an aborted record fails at once."""
    h = holding()
    retried = h.send(0)
    h.answer_waiting(ADD_PARTITIONS)
    h.answer(code=codes.REQUEST_TIMED_OUT)
    refused = h.send(1)
    assert not retried.is_done
    h.answer_waiting(ADD_PARTITIONS, codes.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(retried.error, TransactionAbortedError)
    assert retried.error.possibly_written, "the broker that timed out may have written it"
    assert isinstance(refused.error, TransactionAbortedError)
    assert not refused.error.possibly_written
    h.advance(0.2)
    assert h.count(PRODUCE) == 1
    assert h.abort().outcome is ABORTED
    # It may still be written, late: the next transaction has an epoch that it has not.
    assert h.count(INIT_PRODUCER_ID) == 2
    commits_the_next(h)
    assert [request.batch().epoch for request in h.history if request.api == PRODUCE] == [0, 1]


@pytest.mark.parametrize(
    "code",
    [
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.INVALID_TXN_STATE,
        codes.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_refusals_that_the_next_transaction_would_meet_too_end_the_producer(code: int) -> None:
    h = holding()
    record = h.send(0)
    h.answer_waiting(ADD_PARTITIONS, code)
    error = h.manager.error
    assert error is not None
    assert (error.code, error.recover) == (code, "new producer")
    assert isinstance(record.error, TransactionAbortedError)
    assert record.error.__cause__ is error
    with pytest.raises(type(error)):
        h.manager.abort(h.now)
    assert h.outstanding == 0


# -- what a failure leaves to be sent ---


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (codes.MESSAGE_TOO_LARGE, TransactionState.ABORTABLE_ERROR),
        (codes.INVALID_PRODUCER_ID_MAPPING, TransactionState.FATAL_ERROR),
    ],
    ids=["abortable", "fatal"],
)
def test_after_a_failure_nothing_is_sent_to_partitions_that_wait_to_be_added(
    code: int, state: TransactionState
) -> None:
    h = holding(partitions=3)
    h.send(0)
    h.answer_waiting(ADD_PARTITIONS)
    asked_for, waiting = h.send(1), h.send(2)
    (request,) = h.waiting(ADD_PARTITIONS)
    assert partitions_of(request) == [1]
    h.answer(code=code)
    assert h.manager.state is state
    assert isinstance(asked_for.error, TransactionAbortedError)
    assert isinstance(waiting.error, TransactionAbortedError)
    h.answer_waiting(ADD_PARTITIONS)
    h.advance(0.2)
    assert h.produces == []
    assert h.count(ADD_PARTITIONS) == 2
    assert h.manager.state is state


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (codes.MESSAGE_TOO_LARGE, TransactionState.ABORTABLE_ERROR),
        (codes.INVALID_PRODUCER_ID_MAPPING, TransactionState.FATAL_ERROR),
    ],
    ids=["abortable", "fatal"],
)
def test_after_a_failure_nothing_is_sent_to_partitions_that_were_added(
    h: TransactionHarness, code: int, state: TransactionState
) -> None:
    """What is on its way is waited for; Java lets batches of added partitions go on after an abortable error."""
    failed, on_its_way = h.begun_with(0, 1)
    unsent = h.append(0)
    h.answer(h.produces[0], code)
    assert h.manager.state is state
    assert failed.error.code == code
    assert isinstance(unsent.error, TransactionAbortedError)
    assert isinstance(unsent.error.__cause__, TransactionError)
    assert unsent.error.__cause__.is_fatal is (state is TransactionState.FATAL_ERROR)
    h.acknowledge_all()
    assert on_its_way.error is None
    h.advance(0.2)
    assert h.count(PRODUCE) == 2


def test_a_partition_that_is_not_added_is_not_sent_to() -> None:
    h = holding()
    h.append(0)
    assert not h.manager.records.admits(TopicPartition(TOPIC, 0))
    h.run()
    assert h.produces == []
    h.answer_waiting(ADD_PARTITIONS)
    assert h.manager.records.admits(TopicPartition(TOPIC, 0))
    assert not h.manager.records.admits(TopicPartition(TOPIC, 1))


def test_a_lost_coordinator_is_asked_for_partitions_again() -> None:
    h = holding()
    record = h.send(0)
    h.lose(1)
    h.advance(0.2)
    assert h.count(FIND_COORDINATOR) == 2
    h.answer_waiting(ADD_PARTITIONS)
    h.acknowledge()
    assert record.error is None
    assert h.commit().outcome is COMMITTED
