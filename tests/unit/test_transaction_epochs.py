"""Sequences and epochs of transactional records: where the next transaction continues, and where it starts again.

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
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from aioproduce.wire import error_codes as codes
from tests.unit.sender_harness import PRODUCER_ID
from tests.unit.sender_wire import INIT_PRODUCER_ID, PRODUCE
from tests.unit.transaction_harness import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    OldBrokers,
    TransactionHarness,
)

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
State = TransactionState
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def h(request: pytest.FixtureRequest) -> TransactionHarness:
    return TransactionHarness(version=request.param)


@pytest.mark.parametrize(
    "code", [codes.TOPIC_AUTHORIZATION_FAILED, codes.INVALID_RECORD, codes.MESSAGE_TOO_LARGE]
)
def test_a_sequence_that_a_refusal_leaves_unused_is_followed_by_a_new_epoch(
    h: TransactionHarness, code: int
) -> None:
    h.begin()
    h.send_acknowledged(0)
    h.send_acknowledged(0, offset=1)
    record = h.send(0)
    h.answer(code=code)
    assert record.error.code == code
    assert h.abort().outcome is ABORTED
    assert h.next_place() == (1, 0)
    assert h.count(INIT_PRODUCER_ID) == (2 if h.version == 1 else 1)


@pytest.mark.parametrize(
    "code", [codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NOT_ENOUGH_REPLICAS, codes.CONCURRENT_TRANSACTIONS]
)
@VERSIONS
def test_retriable_refusals_that_never_end_lead_to_an_abort(version: int, code: int) -> None:
    h = TransactionHarness(version=version, retries=1)
    (record,) = h.begun_with(0)
    h.answer(code=code)
    h.advance(0.06)
    assert h.count(PRODUCE) == 2
    h.answer(code=code)
    assert record.error.code == code
    assert h.manager.state is State.ABORTABLE_ERROR
    with pytest.raises(TransactionFailedError) as caught:
        h.commit()
    assert getattr(caught.value.__cause__, "code", None) == code
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]


def test_markers_that_a_first_produce_meets_are_waited_for() -> None:
    """With version 2 the broker holds such a Produce back for a while, and then says so."""
    h = TransactionHarness()
    (record,) = h.begun_with(0)
    for _ in range(3):
        h.answer(code=codes.CONCURRENT_TRANSACTIONS)
        assert h.produces == []
        h.advance(0.06)
        assert h.places() == [(0, 0)]
    operation = h.commit()
    h.acknowledge()
    assert record.offset == 0
    assert operation.outcome is COMMITTED


def test_batches_follow_the_first_one_at_once_where_brokers_check_beginnings() -> None:
    h = TransactionHarness(version=2)
    h.begun_with(0, 0, 0)
    assert h.places() == [(0, 0), (0, 1), (0, 2)]
    operation = h.commit()
    h.acknowledge_all()
    assert operation.outcome is COMMITTED
    assert h.next_place() == (1, 0)


def test_batches_wait_for_the_first_one_where_brokers_do_not() -> None:
    h = TransactionHarness(version=1)
    h.begun_with(0, 0, 0)
    assert h.places() == [(0, 0)]
    h.acknowledge()
    h.send(0)
    assert h.places() == [(0, 1), (0, 3)]


@pytest.mark.parametrize("code", [codes.CONCURRENT_TRANSACTIONS, codes.NOT_LEADER_OR_FOLLOWER])
def test_a_first_batch_that_is_refused_is_repeated_before_those_that_followed(code: int) -> None:
    """Kafka appends none of these: the beginning of the epoch is missing."""
    h = TransactionHarness(version=2)
    records = h.begun_with(0, 0, 0)
    h.answer(code=code)
    for _ in range(2):
        h.answer(code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
    operation = h.commit()
    expected = [(0, 0), (0, 1), (0, 2)]
    sent: list[tuple[int, int]] = []
    while not operation.is_done:
        h.advance(0.2)
        sent += h.places()[:1]
        h.acknowledge()
    assert sent == expected
    assert [record.error for record in records] == [None, None, None]
    assert operation.outcome is COMMITTED


@pytest.mark.parametrize("log_start_offset", [0, 1010])
def test_a_leader_that_forgot_the_producer_leads_to_an_abort(
    h: TransactionHarness, log_start_offset: int
) -> None:
    """Java sends again from sequence 0 where retention took the records: of the same transaction, at its epoch."""
    h.begin()
    h.send_acknowledged(0, offset=1000)
    h.send_acknowledged(1)
    record = h.send(0)
    h.answer(code=codes.UNKNOWN_PRODUCER_ID, log_start_offset=log_start_offset)
    assert isinstance(record.error, TransactionAbortedError)
    assert h.manager.state is State.ABORTABLE_ERROR
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    assert h.next_place() == (1, 0)
    h.acknowledge()
    h.send(1)
    assert h.places(1) == [(1, 0)]


def test_a_coordinator_that_does_not_know_the_producer_gives_it_a_new_epoch() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_PARTITIONS)
    h.begun_with(0)
    h.answer_waiting(ADD_PARTITIONS, codes.UNKNOWN_PRODUCER_ID)
    assert h.abort().outcome is ABORTED
    assert h.verdicts == []
    assert h.next_place() == (1, 0)


def test_a_coordinator_that_does_not_know_the_producer_of_offsets_gives_it_a_new_epoch() -> None:
    h = TransactionHarness(version=1)
    h.held.add(ADD_OFFSETS)
    h.begin()
    h.send_acknowledged(0)
    operation = h.manager.send_offsets(
        {TopicPartition("in", 0): OffsetAndMetadata(7)}, GroupMetadata("group-1"), h.now
    )
    h.run()
    h.answer_waiting(ADD_OFFSETS, codes.UNKNOWN_PRODUCER_ID)
    assert isinstance(operation.error, TransactionFailedError)
    assert h.abort().outcome is ABORTED
    assert h.verdicts == [(False, 0)]
    assert h.next_place() == (1, 0)


def test_old_brokers_give_a_new_epoch_to_whoever_asks_for_an_id() -> None:
    """In Java such a producer is at its end where it needs a new epoch."""
    h = OldBrokers(version=0)
    (record,) = h.begun_with(0)
    h.lose(0)
    h.down.add(0)
    h.advance(1.6)
    assert isinstance(record.error, DeliveryTimeoutError)
    h.down.clear()
    operation = h.abort()
    h.advance(0.5)
    assert operation.outcome is ABORTED
    assert h.next_place() == (1, 0)
    assert {request.version for request in h.history if request.api == INIT_PRODUCER_ID} == {1}


def test_a_batch_that_is_too_large_is_halved_and_committed(h: TransactionHarness) -> None:
    h.begin()
    records = [h.append(0, b"%d" % number) for number in range(4)]
    h.run()
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    assert h.places() == [(0, 0)]
    operation = h.commit()
    h.acknowledge(offset=10)
    assert h.places() == [(0, 2)]
    assert h.verdicts == []
    h.acknowledge(offset=12)
    assert [record.offset for record in records] == [10, 11, 12, 13]
    assert operation.outcome is COMMITTED
    assert h.outstanding == 0


@VERSIONS
def test_the_next_id_where_the_epochs_are_used_up(version: int) -> None:
    h = TransactionHarness(version=version)
    h.held.add(END_TXN)
    h.begun_with(0)
    h.acknowledge_all()
    operation = h.commit()
    more = {"producer_id": PRODUCER_ID + 1, "producer_epoch": 0} if version == 2 else {}
    h.answer_waiting(END_TXN, **more)
    assert operation.outcome is COMMITTED
    h.held.clear()
    h.begun_with(0)
    batch = h.produce().batch()
    if version == 2:
        assert (batch.producer_id, batch.place) == (PRODUCER_ID + 1, (0, 0))
    else:
        assert (batch.producer_id, batch.place) == (PRODUCER_ID, (0, 1))


def test_an_abort_brings_the_next_epoch() -> None:
    h = TransactionHarness()
    h.begun_with(0)
    h.acknowledge_all()
    assert h.abort().outcome is ABORTED
    assert h.next_place() == (1, 0)
    assert h.count(INIT_PRODUCER_ID) == 1


def test_halves_that_expire_lead_to_an_abort(h: TransactionHarness) -> None:
    h.begin()
    records = [h.append(0), h.append(0)]
    h.run()
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    h.acknowledge(offset=1)
    h.down.add(0)
    h.lose(0)
    h.advance(1.6)
    assert records[0].offset == 1
    assert isinstance(records[1].error, DeliveryTimeoutError)
    assert h.manager.state is State.ABORTABLE_ERROR
    h.down.clear()
    operation = h.abort()
    h.advance(0.1)
    assert operation.outcome is ABORTED
    assert h.next_place() == (1, 0)
    h.acknowledge_all()
    assert h.outstanding == 0
