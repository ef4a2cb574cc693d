"""Transactions by the Producer against a FakeCluster: what committed readers see, who may send in one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionTimedOutError,
    TransactionUnconfirmedError,
)
from aioproduce.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import gather, sleep, spawn
from tests.drivers.producing import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproduce.producer.transactions import Transaction
    from aioproduce.testing import FakeCluster

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


def outcome_of(txn: Transaction) -> TransactionOutcome | None:
    """Read again each time, for type checkers."""
    return txn.outcome


def state_of(producer: Producer) -> str:
    """By its name, as a health check would tell it."""
    status = producer.transaction_status()
    assert status is not None
    assert status.transactional_id == "orders-1"
    return status.state.name


class Body(Exception):
    """What leaves the body of a transaction."""


def producer_of(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id="orders-1", **{**QUICK, **settings})


async def fail_after(txn: Transaction, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
    """Do this in the transaction, then let an exception leave its body."""
    async with txn:
        await work(*arguments)
        raise Body


async def committed(cluster: FakeCluster, topic: str = "t") -> list[bytes | None]:
    """What a reader of committed records sees, once nothing is open any more."""
    await until(lambda: not cluster.open_transactions)
    return sorted((record.value for record in cluster.records(topic, isolation="read_committed")), key=repr)


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# -- what a reader sees ---


async def test_committed_and_aborted(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        for number in range(3):
            async with producer.transaction() as txn:
                await txn.send("t", b"yes %d" % number)
                assert outcome_of(txn) is None
            assert outcome_of(txn) is COMMITTED
            failed = producer.transaction()
            with pytest.raises(Body):
                await fail_after(failed, failed.send_and_wait, "t", b"no")
            assert outcome_of(failed) is ABORTED
    assert await committed(cluster) == [b"yes 0", b"yes 1", b"yes 2"]


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_a_coordinator_that_cannot_be_asked_for_markers(
    cluster: FakeCluster, version: int, end: str
) -> None:
    """Kafka before 3.0. The second transaction asked for nothing, where the pause was over as that was learned."""
    cluster.set_transaction_version(version)
    cluster.set_api_versions({ApiKey.DESCRIBE_TRANSACTIONS: None})
    async with producer_of(cluster, max_block_ms=3000) as producer:
        assert producer._transactions is not None
        producer._transactions.manager.pause.seconds = 0.0
        async with producer.transaction() as txn:
            await txn.send("t", b"yes")
        txn = await producer.begin_transaction()
        delivery = await txn.send("t", b"second")
        if end == "commit":
            await delivery
            await txn.commit()
        else:
            await txn.abort()
            with pytest.raises(TransactionAbortedError):
                await delivery
    assert await committed(cluster) == ([b"second", b"yes"] if end == "commit" else [b"yes"])


async def test_every_way_of_sending(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await (await txn.send("t", b"1"))
            await txn.send_and_wait("t", b"2")
            txn.try_send("t", b"3")
            await txn.send_many("t", [b"4", b"5"])
            batch = txn.create_batch()
            batch.append(b"6")
            await txn.send_batch(batch, "t")
            await producer.send("t", b"7")
            producer.try_send("t", b"8")
            await producer.send_many("t", [b"9"])
        assert outcome_of(txn) is COMMITTED
    assert await committed(cluster) == [b"%d" % number for number in range(1, 10)]


async def test_the_flat_calls(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"yes")
        await producer.send_offsets_to_transaction({("one", 0): 7}, "group-1")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"no")
        await producer.abort_transaction()
    assert await committed(cluster) == [b"yes"]
    assert cluster.committed_offset("group-1", "one", 0) == 7


async def test_offsets_are_committed_with_the_records_or_not_at_all(
    cluster: FakeCluster, version: int
) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send_offsets({TopicPartition("one", 0): OffsetAndMetadata(5)}, GroupMetadata("group-1"))
        failed = producer.transaction()
        with pytest.raises(Body):
            await fail_after(failed, failed.send_offsets, {("one", 0): 9}, "group-1")
        await until(lambda: not cluster.open_transactions)
    assert cluster.committed_offset("group-1", "one", 0) == 5


# -- who may send ---


async def test_another_tasks_records_do_not_slip_in(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer, producer.transaction() as txn:
        for call in (producer.send("t", b"no"), producer.send_many("t", [b"no"])):
            with pytest.raises(TransactionStateError, match=r"txn\.send"):
                await spawn(call)
        # The holder of the transaction sends in it.
        await gather(spawn(txn.send("t", b"yes")), spawn(txn.send_many("t", [b"and yes"])))
    assert await committed(cluster) == [b"and yes", b"yes"]


async def test_outside_of_a_transaction_nothing_is_sent(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            await producer.send("t", b"no")
        async with producer.transaction() as txn:
            pass
        with pytest.raises(TransactionStateError, match="has ended"):
            await txn.send("t", b"no")
        with pytest.raises(TransactionStateError, match="is not begun"):
            await producer.transaction().send("t", b"no")
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            producer.try_send("t", b"no")
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TransactionStateError, match="no transactions"):
            producer.transaction()
    assert cluster.records("t") == []


async def test_who_waited_for_room_is_not_let_into_the_next_one(cluster: FakeCluster) -> None:
    settings = {"buffer_memory": 20_000, "batch_size": 10_000}
    async with producer_of(cluster, **settings) as producer:
        cluster.faults.delay_answers(0.2, api=ApiKey.PRODUCE)
        txn = producer.transaction()
        waiting: list[Any] = []

        async def fill() -> None:
            for _ in range(2):
                await txn.send("one", bytes(9_000))
            waiting.append(spawn(txn.send("one", bytes(9_000))))
            await until(lambda: producer.waiting_sends)

        with pytest.raises(Body):
            await fail_after(txn, fill)
        async with producer.transaction() as following:
            with pytest.raises(TransactionStateError, match=r"has ended|outcome of an abort is awaited"):
                await waiting[0]
            await following.send("one", b"yes")
    assert await committed(cluster, "one") == [b"yes"]


# -- ends ---


async def test_a_cancelled_body_is_aborted(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        begun = []

        async def work() -> None:
            async with producer.transaction() as txn:
                begun.append(txn)
                await txn.send_and_wait("t", b"no")
                await sleep(60)

        task = spawn(work())
        await until(lambda: cluster.records("t"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert outcome_of(begun[0]) is ABORTED
        async with producer.transaction() as txn:
            await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_a_cancelled_commit_goes_on(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        held = cluster.faults.delay_answers(0.2, api=ApiKey.END_TXN)
        begun = []

        async def work() -> None:
            async with producer.transaction() as txn:
                begun.append(txn)
                await txn.send("t", b"yes")

        task = spawn(work())
        await until(lambda: begun and producer.metrics() and not begun[0].is_open)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert outcome_of(begun[0]) is None
        with pytest.raises(TransactionStateError, match="outcome of a commit is awaited"):
            await begun[0].abort()
        await begun[0].commit()
        assert outcome_of(begun[0]) is COMMITTED
        held.cancel()
    assert await committed(cluster) == [b"yes"]


async def test_a_commit_without_an_answer_in_time(cluster: FakeCluster) -> None:
    async with producer_of(cluster, max_block_ms=300, request_timeout_ms=500) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait("t", b"yes")
        held = cluster.faults.drop_answers(api=ApiKey.END_TXN, times=None)
        with pytest.raises(TransactionUnconfirmedError, match="make the same call again"):
            await txn.commit()
        held.cancel()
        while txn.outcome is None:
            try:
                await txn.commit()
            except TransactionUnconfirmedError:
                continue
        assert outcome_of(txn) is COMMITTED
    assert await committed(cluster) == [b"yes"]


async def test_a_failed_record_aborts_its_transaction(cluster: FakeCluster) -> None:
    async with producer_of(cluster, max_request_size=10_000_000, batch_size=2_000_000) as producer:
        with pytest.raises(TransactionFailedError, match="a record of the transaction failed") as caught:
            async with producer.transaction() as txn:
                await txn.send("t", bytes(1_500_000))
        assert caught.value.outcome is ABORTED
        assert outcome_of(txn) is ABORTED
        async with producer.transaction() as txn:
            await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_what_was_not_sent_fails_with_the_abort(cluster: FakeCluster) -> None:
    async with producer_of(cluster, linger_ms=60_000) as producer:
        deliveries = []
        txn = producer.transaction()

        async def send() -> None:
            deliveries.append(await txn.send("t", b"no"))

        with pytest.raises(Body):
            await fail_after(txn, send)
        with pytest.raises(TransactionAbortedError) as caught:
            await deliveries[0]
        assert not caught.value.possibly_written


async def test_another_producer_takes_over(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait("t", b"no")
        async with producer_of(cluster) as successor:
            with pytest.raises(ProducerFencedError) as caught:
                await txn.commit()
            assert caught.value.outcome is ABORTED
            with pytest.raises(ProducerFencedError):
                await producer.begin_transaction()
            async with successor.transaction() as txn:
                await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_the_coordinators_time_out_is_recovered_from(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster, transaction_timeout_ms=300) as producer:
        late = producer.transaction()

        async def outlive() -> None:
            async with late:
                await late.send_and_wait("t", b"no")
                # The producer's own clock is a little behind: it is not asked before the commit.
                await until(lambda: not cluster.open_transactions)

        with pytest.raises(TransactionTimedOutError) as caught:
            await outlive()
        assert caught.value.outcome is ABORTED
        if caught.value.recover == "init":
            await producer.init_transactions()
        async with producer.transaction() as txn:
            await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_a_close_aborts_what_is_open(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait("t", b"no")
    assert [each.state for each in cluster.transactions] != ["Ongoing"]
    assert await committed(cluster) == []


async def test_what_is_measured(cluster: FakeCluster) -> None:
    for api in (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
    ):
        cluster.faults.delay_answers(0.003, api=api)  # uvloop's clock has whole milliseconds
    cluster.faults.delay_answers(0.003, api=ApiKey.PRODUCE, times=None)
    async with producer_of(cluster) as producer:
        for _ in range(2):
            async with producer.transaction() as txn:
                await txn.send_and_wait("t", b"yes")
                await txn.send_offsets({("one", 0): 1}, "group-1")
        metrics = producer.metrics()
        for call in ("init", "send-offsets", "commit"):
            assert metrics.value(f"txn-{call}-time-ns-total") > 0
        assert metrics.value("txn-abort-time-ns-total") == 0
        assert metrics.value("txn-pause") > 0
        assert metrics.value("txn-first-produce-wait") > 0


async def test_outcomes_are_counted_and_the_status_is_told(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)

    def counted() -> list[float]:
        metrics = producer.metrics()
        return [metrics.value(f"txn-{name}-total") for name in ("committed", "aborted", "unknown")]

    producer = producer_of(cluster)
    assert state_of(producer) == "UNINITIALIZED"
    async with producer:
        assert (state_of(producer), counted()) == ("READY", [0, 0, 0])
        for _ in range(2):
            async with producer.transaction() as txn:
                await txn.send("t", b"yes")
        txn = await producer.begin_transaction()
        await txn.send_and_wait("t", b"no")
        await sleep(0.003)  # uvloop's clock has whole milliseconds
        assert state_of(producer) == "IN_TRANSACTION"
        assert producer.metrics().value("txn-open-time") > 0
        await txn.abort()
        assert (state_of(producer), counted()) == ("READY", [2, 1, 0])
        assert producer.metrics().value("txn-open-time") == 0
        fenced = await producer.begin_transaction()
        await fenced.send_and_wait("t", b"no")
        async with producer_of(cluster):
            with pytest.raises(ProducerFencedError):
                await fenced.commit()
        status = producer.transaction_status()
        assert status is not None
        assert isinstance(status.error, ProducerFencedError)
        assert state_of(producer) == "FATAL_ERROR"
        assert status.open_for == 0, "it has its outcome"
    assert counted() == [2, 2, 0]
    assert outcome_of(fenced) is ABORTED


def test_without_a_transactional_id_there_is_no_status() -> None:
    assert Producer("localhost:9092").transaction_status() is None
