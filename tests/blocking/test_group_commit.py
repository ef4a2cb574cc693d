"""Threads that share transactions, against a FakeCluster: what is committed, what each thread is told, the ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.core.transactions.transaction_states import TransactionState
from aioproduce.errors import (
    LoopThreadError,
    ProducerClosedError,
    ProducerError,
    TransactionError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
)
from aioproduce.wire.api import ApiKey
from tests.blocking.test_room import until
from tests.blocking.test_transactions import committed, interrupt_when, producer_of, written
from tests.blocking.threads import Caller, in_threads

if TYPE_CHECKING:
    from aioproduce import BlockingProducer
    from aioproduce.blocking.group_commit import BlockingGroupCommit
    from tests.blocking.threads import ThreadedCluster


def state_of(producer: BlockingProducer) -> TransactionState:
    status = producer.transaction_status()
    assert status is not None
    return status.state


def outcome_of(group: BlockingGroupCommit, value: bytes) -> TransactionError | int:
    """The record's offset, or what its thread is told."""
    try:
        return group.send("one", value).offset
    except TransactionError as error:
        return error


def test_threads_share_transactions(cluster: ThreadedCluster) -> None:
    ends = cluster.call(lambda it: it.faults.delay_answers(0.0, api=ApiKey.END_TXN, times=None))
    values = [b"%d" % number for number in range(40)]
    with producer_of(cluster) as producer, producer.group_commit(0.02) as group:
        offsets = in_threads(partial(outcome_of, group, value) for value in values)
    assert committed(cluster, "one") == sorted(values)
    by_offset = {record.offset: record.value for record in cluster.records("one")}
    assert [by_offset[offset] for offset in offsets] == values
    assert 1 <= ends.hits <= 20


def test_a_record_that_fails_aborts_those_of_other_threads(cluster: ThreadedCluster) -> None:
    settings = {"max_request_size": 10_000_000, "batch_size": 2_000_000}
    with producer_of(cluster, **settings) as producer, producer.group_commit(3600, records=3) as group:
        outcomes = in_threads(
            partial(outcome_of, group, value) for value in (b"no", bytes(1_500_000), b"not")
        )
        for outcome in outcomes:
            assert isinstance(outcome, TransactionFailedError)
            assert outcome.outcome is TransactionOutcome.ABORTED
    assert committed(cluster, "one") == []


def test_ctrl_c_ends_one_wait_and_no_transaction(cluster: ThreadedCluster) -> None:
    with producer_of(cluster) as producer:
        with producer.group_commit(3600) as group:
            other = Caller(partial(group.send, "one", b"other"))
            until(lambda: len(written(cluster, "one")) == 1)
            interrupting = interrupt_when(lambda: len(written(cluster, "one")) == 2)
            with pytest.raises(KeyboardInterrupt):
                group.send("one", b"interrupted")
            interrupting.outcome()
        other.outcome()
    assert committed(cluster, "one") == [b"interrupted", b"other"]


def test_an_interrupted_begin_leaves_no_group(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproduce.blocking.session import Session

    call = Session.call

    def interrupted(self: Session, *arguments: Any) -> Any:
        call(self, *arguments)
        raise KeyboardInterrupt

    with producer_of(cluster) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(Session, "call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.group_commit().__enter__()
        with producer.transaction() as txn:
            txn.send("t", b"yes")
    assert committed(cluster) == [b"yes"]


def test_a_group_that_is_not_open_sends_nothing(cluster: ThreadedCluster) -> None:
    with producer_of(cluster) as producer:
        group = producer.group_commit()
        with pytest.raises(TransactionStateError, match="not open"):
            group.send("one", b"no")
        with group:
            with pytest.raises(TransactionStateError, match="group commit"):
                producer.begin_transaction()
            with pytest.raises(TransactionStateError, match="group commit"):
                producer.group_commit().__enter__()
    with pytest.raises(ProducerClosedError):
        group.send("one", b"no")
    assert written(cluster, "one") == []


@pytest.mark.parametrize("arguments", [{"interval": 0}, {"records": 0}])
def test_bounds_are_above_zero(cluster: ThreadedCluster, arguments: dict[str, Any]) -> None:
    with producer_of(cluster) as producer, pytest.raises(ValueError, match="give"):
        producer.group_commit(**arguments)


def test_a_close_tells_each_thread_what_became_of_its_record(cluster: ThreadedCluster) -> None:
    producer = producer_of(cluster)
    producer.start()
    with producer.group_commit(3600) as group:
        callers = [Caller(partial(group.send, "one", b"%d" % number)) for number in range(3)]
        until(lambda: len(written(cluster, "one")) == 3)
        producer.close()
        for caller in callers:
            with pytest.raises(ProducerError):
                caller.outcome()
    assert committed(cluster, "one") == []


def test_a_callback_in_the_loop_thread_may_not_wait(cluster: ThreadedCluster) -> None:
    raised: list[BaseException] = []
    with producer_of(cluster) as producer:
        group = producer.group_commit()

        def on_delivery(*_: Any) -> None:
            try:
                group.send("one", b"no")
            except LoopThreadError as error:
                raised.append(error)

        with producer.transaction() as txn:
            txn.send("one", b"yes", on_delivery=on_delivery)
            producer.flush()
    assert len(raised) == 1
    assert committed(cluster, "one") == [b"yes"]


def test_the_state_of_its_transactions(cluster: ThreadedCluster) -> None:
    producer = producer_of(cluster)
    assert state_of(producer) is TransactionState.UNINITIALIZED
    with producer:
        assert state_of(producer) is TransactionState.READY
        with producer.transaction():
            assert state_of(producer) is TransactionState.IN_TRANSACTION
        assert state_of(producer) is TransactionState.READY
    status = producer.transaction_status()
    assert status is not None
    assert status.transactional_id == "orders-1"
