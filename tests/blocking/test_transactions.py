"""Transactions of threads against a FakeCluster: what committed readers see, whose records are in, the ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import BlockingProducer
from aioproduce.errors import (
    BufferExhaustedError,
    ConfigError,
    LoopThreadError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionUnconfirmedError,
)
from aioproduce.wire import error_codes as codes
from tests.blocking.test_end import exit_in_callback, kill_sender, stop_loop
from tests.blocking.test_room import until
from tests.blocking.threads import Caller, in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.blocking.transactions import BlockingTransaction
    from tests.blocking.threads import ThreadedCluster

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


class Body(Exception):
    """What leaves the body of a transaction."""


def producer_of(cluster: ThreadedCluster, **settings: Any) -> BlockingProducer[Any, Any]:
    return BlockingProducer(cluster.bootstrap_servers, transactional_id="orders-1", **{**QUICK, **settings})


def outcome_of(txn: BlockingTransaction) -> TransactionOutcome | None:
    """Read again each time, for type checkers."""
    return txn.outcome


def fail_after(
    txn: BlockingTransaction,
    work: Callable[..., object],
    *arguments: object,
    error: type[BaseException] = Body,
) -> None:
    """Do this in the transaction, then let an exception leave its body."""
    with txn:
        work(*arguments)
        raise error


def committed(cluster: ThreadedCluster, topic: str = "t") -> list[bytes]:
    """What a reader of committed records sees, once nothing is open any more."""
    until(lambda: not cluster.call(lambda it: it.open_transactions))
    found = cluster.call(lambda it: it.records(topic, isolation="read_committed"))
    return sorted(record.value for record in found)


def written(cluster: ThreadedCluster, topic: str = "t") -> list[bytes]:
    """What is in the log, committed or not."""
    return sorted(record.value for record in cluster.records(topic))


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def versioned(request: pytest.FixtureRequest, cluster: ThreadedCluster) -> ThreadedCluster:
    """The cluster, with either version of transactions."""
    cluster.call(lambda it: it.set_transaction_version(int(request.param)))
    return cluster


# -- what a reader sees ---


def test_committed_and_aborted(versioned: ThreadedCluster) -> None:
    with producer_of(versioned) as producer:
        for number in range(3):
            with producer.transaction() as txn:
                txn.send("t", b"yes %d" % number)
                assert outcome_of(txn) is None
            assert outcome_of(txn) is COMMITTED
            failed = producer.transaction()
            with pytest.raises(Body):
                fail_after(failed, failed.send_and_wait, "t", b"no")
            assert outcome_of(failed) is ABORTED
    assert committed(versioned) == [b"yes 0", b"yes 1", b"yes 2"]
    assert written(versioned).count(b"no") == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_leaves_the_body_aborts(cluster: ThreadedCluster, error: type[BaseException]) -> None:
    with producer_of(cluster) as producer:
        txn = producer.transaction()
        with pytest.raises(error):
            fail_after(txn, txn.send_and_wait, "t", b"no", error=error)
        assert outcome_of(txn) is ABORTED
    assert committed(cluster) == []
    assert written(cluster) == [b"no"]


def test_every_way_of_sending(versioned: ThreadedCluster) -> None:
    with producer_of(versioned) as producer:
        with producer.transaction() as txn:
            txn.send("t", b"1").result()
            txn.send_and_wait("t", b"2", headers=[("h", b"v")])
            txn.send_many("t", [b"3", b"4"])
            producer.send("t", b"5")
            producer.send_and_wait("t", b"6")
            producer.send_many("t", [b"7"])
            producer.flush()
            assert len(written(versioned)) == 7
        assert outcome_of(txn) is COMMITTED
    assert committed(versioned) == [b"%d" % number for number in range(1, 8)]


def test_serializers_and_interceptors_are_heeded(cluster: ThreadedCluster) -> None:
    with producer_of(cluster, value_serializer=str.encode) as producer, producer.transaction() as txn:
        txn.send("t", "one")
        producer.send("t", "two")
        txn.send_many("t", ["three"])
    assert committed(cluster) == [b"one", b"three", b"two"]


def test_the_flat_calls_and_offsets(versioned: ThreadedCluster) -> None:
    with producer_of(versioned) as producer:
        producer.begin_transaction()
        producer.send("t", b"yes")
        producer.send_offsets_to_transaction({("one", 0): 7}, "group-1")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send_and_wait("t", b"no")
        producer.send_offsets_to_transaction({("one", 0): 9}, "group-1")
        producer.abort_transaction()
    assert committed(versioned) == [b"yes"]
    assert versioned.call(lambda it: it.committed_offset("group-1", "one", 0)) == 7


def test_a_commit_takes_along_what_waits_in_front_of_the_batches(cluster: ThreadedCluster) -> None:
    """The buffer holds a few records: most are in the hand-over when the commit is asked for."""
    with producer_of(cluster, buffer_memory=32_768, batch_size=4_096, linger_ms=60_000) as producer:
        for turn in range(3):
            with producer.transaction() as txn:
                for number in range(400):
                    txn.send("one", b"%d %0200d" % (turn, number))
            assert outcome_of(txn) is COMMITTED
    values = [record.value for record in cluster.records("one")]
    assert values == [b"%d %0200d" % (turn, number) for turn in range(3) for number in range(400)]
    assert len(committed(cluster, "one")) == 1200


def test_a_prepared_transaction_is_ended_elsewhere(cluster: ThreadedCluster) -> None:
    with producer_of(cluster) as producer:
        with producer.transaction() as txn:
            txn.send("t", b"yes")
            prepared = txn.prepare()
            with pytest.raises(TransactionStateError):
                txn.send("t", b"too late")
        assert written(cluster) == [b"yes"]
        assert outcome_of(txn) is None
        asyncio.run(prepared.commit(cluster.bootstrap_servers, **QUICK))
    assert committed(cluster) == [b"yes"]


# -- whose records are in it ---


def test_a_thread_sends_in_its_own_transaction_only(cluster: ThreadedCluster) -> None:
    with producer_of(cluster) as producer:
        with producer.transaction() as txn:
            for call in (
                partial(producer.send, "t", b"slips in"),
                partial(producer.send_many, "t", [b"slips in"]),
                partial(producer.send_offsets_to_transaction, {("one", 0): 1}, "group"),
                producer.commit_transaction,
                producer.abort_transaction,
            ):
                with pytest.raises(TransactionStateError, match="another thread's"):
                    Caller(call).outcome()
            in_threads([partial(txn.send_and_wait, "t", b"handed on %d" % number) for number in range(3)])
            producer.send("t", b"its own")
        with pytest.raises(TransactionStateError, match="begin"):
            Caller(partial(producer.send, "t", b"late")).outcome()
    assert committed(cluster) == [b"handed on 0", b"handed on 1", b"handed on 2", b"its own"]


def test_without_an_open_transaction_nothing_is_sent(cluster: ThreadedCluster) -> None:
    call: Callable[[], object]
    with producer_of(cluster) as producer:
        for call in (partial(producer.send, "t", b"no"), producer.commit_transaction):
            with pytest.raises(TransactionStateError, match="no transaction"):
                call()
        txn = producer.transaction()
        for call in (partial(txn.send, "t", b"no"), txn.commit, txn.abort, txn.prepare):
            with pytest.raises(TransactionStateError, match="not begun"):
                call()
        with txn:
            with pytest.raises(TransactionStateError, match="transaction is open"):
                producer.begin_transaction()
            with pytest.raises(TransactionStateError, match="begun only once"):
                txn.begin()
        for call in (partial(txn.send, "t", b"no"), partial(producer.send, "t", b"no"), txn.abort):
            with pytest.raises(TransactionStateError):
                call()
    assert written(cluster) == []


def test_none_of_a_racing_thread_gets_into_the_next_one(cluster: ThreadedCluster) -> None:
    """A thread sends by the first until it is refused: what it was promised is in there, the second has none."""
    sent: list[bytes] = []
    has_begun = threading.Event()

    def send_on(txn: BlockingTransaction) -> None:
        while True:
            value = b"first %06d" % len(sent)
            try:
                txn.send("one", value)
            except TransactionStateError:
                return
            sent.append(value)
            if len(sent) == 100:
                has_begun.set()

    with producer_of(cluster, linger_ms=5) as producer:
        txn = producer.begin_transaction()
        caller = Caller(partial(send_on, txn))
        has_begun.wait()
        txn.commit()
        with pytest.raises(Body):
            fail_after(producer.transaction(), caller.outcome)
    assert committed(cluster, "one") == sent


def test_a_producer_without_an_id_has_no_transactions(cluster: ThreadedCluster) -> None:
    with BlockingProducer(cluster.bootstrap_servers, **QUICK) as producer:
        for call in (
            producer.transaction,
            producer.begin_transaction,
            producer.commit_transaction,
            producer.init_transactions,
        ):
            with pytest.raises(TransactionStateError, match=r"no transactional\.id"):
                call()


# -- failures ---


def test_a_record_that_came_into_no_batch_fails_the_transaction(cluster: ThreadedCluster) -> None:
    """`send()` had returned, so a commit without the record would be torn."""
    with producer_of(cluster, buffer_memory=32_768, batch_size=16_384, max_block_ms=50) as producer:
        producer.begin_transaction()
        producer.send_and_wait("one", b"known")
        txn = producer._mine()
        with cluster.stalled():
            sent = [txn.send("one", b"%020000d" % number) for number in range(2)]
            errors = [delivery.exception() for delivery in sent[1:]]
        assert [type(error) for error in errors] == [BufferExhaustedError]
        with pytest.raises(TransactionFailedError) as raised:
            txn.commit()
        assert isinstance(raised.value.__cause__, BufferExhaustedError)
        txn.abort()
    assert committed(cluster, "one") == []


def test_an_abort_refuses_what_is_in_no_batch(cluster: ThreadedCluster) -> None:
    with producer_of(cluster, buffer_memory=32_768, batch_size=16_384) as producer:
        txn = producer.begin_transaction()
        txn.send_and_wait("one", b"known")
        with cluster.stalled():
            sent = [txn.send("one", b"%020000d" % number) for number in range(2)]
            aborting = Caller(txn.abort)
            assert isinstance(sent[1].exception(), TransactionAbortedError)
        aborting.outcome()
        assert outcome_of(txn) is ABORTED
        with producer.transaction():
            producer.send("one", b"next")
    assert committed(cluster, "one") == [b"next"]


def test_a_failed_record_aborts_at_the_end_of_the_body(cluster: ThreadedCluster) -> None:
    with producer_of(cluster) as producer:
        cluster.call(lambda it: it.faults.fail_produce(codes.INVALID_RECORD))
        txn = producer.transaction()
        with pytest.raises(TransactionFailedError) as raised, txn:
            txn.send("one", b"no")
        assert raised.value.outcome is outcome_of(txn) is ABORTED
        assert raised.value.recover == "begin"
        with producer.transaction():
            producer.send("one", b"next")
    assert committed(cluster, "one") == [b"next"]


def test_fenced_by_another_producer(versioned: ThreadedCluster) -> None:
    with producer_of(versioned) as producer:
        txn = producer.begin_transaction()
        txn.send_and_wait("t", b"no")
        with producer_of(versioned) as rival, rival.transaction():
            rival.send("t", b"yes")
        with pytest.raises(ProducerFencedError):
            txn.commit()
    assert committed(versioned) == [b"yes"]


# -- ends that are interrupted ---


def tasks_of(session: Any) -> list[asyncio.Task[Any]]:
    """What runs in the loop thread."""
    tasks: list[asyncio.Task[Any]] = session.read(lambda: list(asyncio.all_tasks(session._thread.loop)))
    return tasks


def interrupt_when(is_due: Callable[[], bool]) -> Caller:
    """Ctrl-C, for the calling thread, which is to wait for something."""
    main = threading.get_ident()

    def interrupt() -> None:
        until(is_due)
        signal.pthread_kill(main, signal.SIGINT)

    return Caller(interrupt)


def test_a_commit_that_ctrl_c_interrupts_goes_on(versioned: ThreadedCluster) -> None:
    with producer_of(versioned) as producer:
        txn = producer.begin_transaction()
        txn.send_and_wait("t", b"yes")
        with versioned.stalled():
            interrupting = interrupt_when(lambda: not txn.is_open)
            with pytest.raises(KeyboardInterrupt):
                txn.commit()
            interrupting.outcome()
            with pytest.raises(TransactionStateError, match="commit"):
                txn.abort()
            assert outcome_of(txn) is None
        txn.commit()
        assert outcome_of(txn) is COMMITTED
        with pytest.raises(TransactionStateError):
            txn.commit()
    assert committed(versioned) == [b"yes"]


def test_ctrl_c_while_records_wait_for_room_leaves_the_commit_going(cluster: ThreadedCluster) -> None:
    with producer_of(cluster, buffer_memory=32_768, batch_size=16_384) as producer:
        txn = producer.transaction()

        def commit_full() -> None:
            txn.send_and_wait("one", b"known")
            with cluster.stalled():
                for number in range(2):
                    txn.send("one", b"%020000d" % number)
                interrupting = interrupt_when(lambda: not txn.is_open)
                try:
                    txn.commit()
                finally:
                    interrupting.outcome()

        with pytest.raises(KeyboardInterrupt):
            fail_after(txn, commit_full)
        txn.commit()
    assert outcome_of(txn) is COMMITTED
    assert len(committed(cluster, "one")) == 3


def test_a_begin_that_ctrl_c_interrupts_leaves_nothing_open(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come when the transaction is open already, and nobody has been told."""
    from aioproduce.blocking.session import Session

    call = Session.call

    def interrupted(self: Session, function: Callable[..., Any], *arguments: Any) -> Any:
        call(self, function, *arguments)
        raise KeyboardInterrupt

    with producer_of(cluster) as producer:
        unheard = producer.transaction()
        with monkeypatch.context() as patched:
            patched.setattr(Session, "call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                unheard.begin()
        with producer.transaction():
            producer.send("t", b"next")
        assert outcome_of(unheard) is ABORTED
    assert committed(cluster) == [b"next"]


def test_an_interrupted_begin_behind_a_commit_leaves_the_commit_alone(cluster: ThreadedCluster) -> None:
    with producer_of(cluster) as producer:
        first = producer.begin_transaction()
        first.send_and_wait("t", b"yes")
        with cluster.stalled():
            committing = Caller(first.commit)
            until(lambda: not first.is_open)
            second = producer.transaction()
            session: Any = producer._session
            interrupting = interrupt_when(lambda: any("begin" in it.get_name() for it in tasks_of(session)))
            with pytest.raises(KeyboardInterrupt):
                second.begin()
            interrupting.outcome()
        committing.outcome()
        assert outcome_of(first) is COMMITTED
        assert not second.is_open
        with producer.transaction():
            producer.send("t", b"next")
    assert committed(cluster) == [b"next", b"yes"]


def test_a_commit_without_an_answer_is_called_again(cluster: ThreadedCluster) -> None:
    with producer_of(cluster, max_block_ms=50) as producer:
        txn = producer.begin_transaction()
        txn.send_and_wait("t", b"yes")
        with cluster.stalled(), pytest.raises(TransactionUnconfirmedError) as raised:
            txn.commit()
        assert raised.value.recover == "call again"
        while outcome_of(txn) is None:
            with contextlib.suppress(TransactionUnconfirmedError):
                txn.commit()
    assert committed(cluster) == [b"yes"]


def test_nothing_waits_in_the_loop_thread(cluster: ThreadedCluster) -> None:
    raised: list[BaseException] = []
    with producer_of(cluster) as producer:
        txn = producer.transaction()

        def on_delivery(*_: Any) -> None:
            for call in (txn.commit, txn.abort, producer.begin_transaction):
                try:
                    call()
                except LoopThreadError as error:
                    raised.append(error)
            txn.send("one", b"from a callback")

        with txn:
            txn.send("one", b"yes", on_delivery=on_delivery)
            producer.flush()
    assert len(raised) == 3
    assert committed(cluster, "one") == [b"from a callback", b"yes"]


# -- the end of the producer ---


def test_close_aborts_what_is_open(versioned: ThreadedCluster) -> None:
    producer = producer_of(versioned)
    producer.start()
    txn = producer.begin_transaction()
    txn.send_and_wait("t", b"no")
    producer.close()
    assert outcome_of(txn) is ABORTED
    for call in (partial(txn.send, "t", b"no"), txn.commit):
        with pytest.raises(ProducerClosedError):
            call()
    assert committed(versioned) == []


def test_close_with_records_that_wait_for_room_is_bounded(cluster: ThreadedCluster) -> None:
    producer = producer_of(cluster, buffer_memory=32_768, batch_size=16_384)
    producer.start()
    txn = producer.begin_transaction()
    txn.send_and_wait("one", b"no")
    with cluster.stalled():
        sent = [txn.send("one", b"%020000d" % number) for number in range(2)]
        producer.close(0.01)
        assert all(delivery.exception() is not None for delivery in sent)
    assert outcome_of(txn) is ABORTED
    with producer_of(cluster):
        assert committed(cluster, "one") == []


@pytest.mark.parametrize("count", [0, 2], ids=["all is in batches", "a record waits for room"])
def test_close_lets_a_commit_end(cluster: ThreadedCluster, count: int) -> None:
    producer = producer_of(cluster, buffer_memory=32_768, batch_size=16_384)
    producer.start()
    session: Any = producer._session
    txn = producer.begin_transaction()
    txn.send_and_wait("one", b"yes")
    with cluster.stalled():
        for number in range(count):
            txn.send("one", b"%020000d" % number)
        committing = Caller(txn.commit)
        until(lambda: not txn.is_open)
        closing = Caller(producer.close)
        until(lambda: not session.hand_over.is_open)
    closing.outcome()
    committing.outcome()
    assert outcome_of(txn) is COMMITTED
    assert len(committed(cluster, "one")) == 1 + count


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("death", [exit_in_callback, stop_loop, kill_sender])
def test_whatever_ends_the_loop_thread_ends_the_transaction(
    cluster: ThreadedCluster, death: Callable[[Any], None]
) -> None:
    producer = producer_of(cluster, buffer_memory=32_768, batch_size=16_384)
    producer.start()
    txn = producer.begin_transaction()
    txn.send_and_wait("one", b"no")
    with cluster.stalled():
        sent = [txn.send("one", b"%020000d" % number) for number in range(2)]
        committing = Caller(txn.commit)
        until(lambda: not txn.is_open)
        death(producer)
        with pytest.raises(Exception):  # noqa: B017  # which one depends on the death
            committing.outcome()
        assert all(delivery.exception() is not None for delivery in sent)
        producer.close(0)
    with producer_of(cluster):
        assert committed(cluster, "one") == []


def test_a_child_may_not_fence_its_parent(cluster: ThreadedCluster) -> None:
    with pytest.raises(ConfigError, match="restart_after_fork"):
        producer_of(cluster, restart_after_fork=True)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_commit_that_a_close_overtakes_is_told_so(cluster: ThreadedCluster, turns: int) -> None:
    """It is not told as committed without the records that the close has refused."""
    producer = producer_of(cluster)
    producer.start()
    txn = producer.transaction().begin()
    txn.send("t", b"first").result()
    session = producer._session
    assert session is not None
    late: list[Any] = []

    async def race() -> None:
        late.extend(txn.send("t", b"late %d" % number) for number in range(5))

        async def commit() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            ending = await txn._join("commit")
            await ending.task

        closing, committing = asyncio.create_task(session._close(None)), asyncio.create_task(commit())
        await asyncio.wait([closing, committing])
        error = None if committing.cancelled() else committing.exception()
        assert committing.cancelled() or isinstance(error, TransactionStateError)

    session._thread.call(race)
    assert outcome_of(txn) is ABORTED
    assert all(isinstance(delivery.exception(), TransactionAbortedError) for delivery in late)
    assert cluster.call(lambda it: it.records("t", isolation="read_committed")) == []
    producer.close()
