"""Transactions that one producer prepares and another process ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import PreparedTransaction, Producer
from aioproduce.audit import Auditor
from aioproduce.core.transactions.transaction_manager import TransactionManager
from aioproduce.errors import (
    ProducerFencedError,
    TransactionError,
    TransactionOutcome,
    TransactionStateError,
    TransactionsUnavailableError,
    TransactionTimedOutError,
)
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import sleep, spawn
from tests.drivers.producing import until

if TYPE_CHECKING:
    from aioproduce.core.transactions.operation import Operation
    from aioproduce.testing import FakeCluster

QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def producer_of(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id="orders-1", **{**QUICK, **settings})


async def prepared_by(cluster: FakeCluster, **settings: Any) -> PreparedTransaction:
    """A transaction with one record, and its producer closed."""
    async with producer_of(cluster, **settings) as producer:
        txn = await producer.begin_transaction()
        delivery = await txn.send("one", b"yes")
        prepared = await txn.prepare()
        assert delivery.done()
        with pytest.raises(TransactionStateError, match="prepared"):
            await txn.send("one", b"no")
    assert cluster.open_transactions
    return PreparedTransaction.from_bytes(prepared.to_bytes())


async def committed(cluster: FakeCluster) -> list[bytes | None]:
    await until(lambda: not cluster.open_transactions)
    return [record.value for record in cluster.records("one", isolation="read_committed")]


async def test_committed_elsewhere_and_again(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster)
    assert (prepared.transactional_id, prepared.transaction_version) == ("orders-1", version)
    for _ in range(2):
        await prepared.commit(cluster.bootstrap_servers, **QUICK)
    await until(lambda: not cluster.open_transactions)
    assert await committed(cluster) == [b"yes"]
    async with producer_of(cluster) as producer, producer.transaction() as txn:
        await txn.send("one", b"next")
    assert await committed(cluster) == [b"yes", b"next"]


async def test_aborted_elsewhere(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster)
    await prepared.abort({"bootstrap.servers": cluster.bootstrap_servers})
    await until(lambda: not cluster.open_transactions)
    assert await committed(cluster) == []


async def test_ended_by_its_own_producer(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send("one", b"yes")
            await txn.prepare()
        assert not txn.is_open
        await txn.commit()
        assert txn.outcome is TransactionOutcome.COMMITTED
    assert await committed(cluster) == [b"yes"]


async def test_too_late(cluster: FakeCluster) -> None:
    prepared = await prepared_by(cluster, transaction_timeout_ms=100)
    await until(lambda: not cluster.open_transactions)
    with pytest.raises(TransactionTimedOutError) as caught:
        await prepared.commit(cluster.bootstrap_servers, **QUICK)
    assert caught.value.outcome is TransactionOutcome.ABORTED
    assert await committed(cluster) == []


async def test_the_opposite_of_what_was_done(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster)
    await prepared.commit(cluster.bootstrap_servers, **QUICK)
    with pytest.raises(TransactionError, match="already committed") as caught:
        await prepared.abort(cluster.bootstrap_servers, **QUICK)
    assert caught.value.outcome is TransactionOutcome.COMMITTED
    assert await committed(cluster) == [b"yes"]


@pytest.mark.parametrize("verdict", ["commit", "abort"])
@pytest.mark.parametrize("is_committed", [False, True], ids=["open", "committed before"])
async def test_somebody_initialised_its_id(
    cluster: FakeCluster, version: int, verdict: str, is_committed: bool
) -> None:
    """What had become of it by then nobody can tell: not its own answer, and not the epoch."""
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster)
    if is_committed:
        await prepared.commit(cluster.bootstrap_servers, **QUICK)
    async with producer_of(cluster):
        with pytest.raises(ProducerFencedError, match="is unknown") as caught:
            await getattr(prepared, verdict)(cluster.bootstrap_servers, **QUICK)
    assert caught.value.outcome is TransactionOutcome.UNKNOWN
    assert await committed(cluster) == ([b"yes"] if is_committed else [])


@pytest.mark.parametrize("verdict", ["commit", "abort"])
@pytest.mark.parametrize("is_committed", [False, True], ids=["open", "committed before"])
async def test_whoever_took_over_has_aborted_one_of_its_own(
    cluster: FakeCluster, version: int, verdict: str, is_committed: bool
) -> None:
    """With version 1 that looks like a time-out of the one that was prepared."""
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster)
    if is_committed:
        await prepared.commit(cluster.bootstrap_servers, **QUICK)
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait("one", b"no")
        await txn.abort()
    await until(lambda: not cluster.open_transactions)
    with pytest.raises(TransactionError, match="is unknown") as caught:
        await getattr(prepared, verdict)(cluster.bootstrap_servers, **QUICK)
    assert caught.value.outcome is TransactionOutcome.UNKNOWN
    assert await committed(cluster) == ([b"yes"] if is_committed else [])


async def test_a_prepare_that_was_cancelled_is_given_by_the_next_call(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        cluster.faults.delay_answers(0.1, api=ApiKey.PRODUCE)
        await txn.send("one", b"yes")
        first = spawn(txn.prepare())
        await sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await producer.flush()
        transactions = producer._transactions
        assert transactions is not None
        await until(lambda: transactions.manager._operation.operation is None)
        prepared = await txn.prepare()
    await prepared.commit(cluster.bootstrap_servers, **QUICK)
    assert await committed(cluster) == [b"yes"]


async def test_a_prepare_that_nobody_heard_of_is_aborted_by_close(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        cluster.faults.delay_answers(0.1, api=ApiKey.PRODUCE)
        await txn.send("one", b"no")
        first = spawn(txn.prepare())
        await sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    assert txn.outcome is TransactionOutcome.ABORTED
    assert await committed(cluster) == []


async def outcome(cluster: FakeCluster, prepared: PreparedTransaction) -> TransactionOutcome | None:
    before = cluster.transactions
    found = await prepared.outcome(cluster.bootstrap_servers, **QUICK)
    assert cluster.transactions == before
    return found


async def test_the_outcome_of_one_that_is_open_and_then_ended(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    for verdict in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED):
        prepared = await prepared_by(cluster)
        assert await outcome(cluster, prepared) is None
        end = prepared.commit if verdict is TransactionOutcome.COMMITTED else prepared.abort
        await end(cluster.bootstrap_servers, **QUICK)
        assert (
            await prepared.outcome(cluster.bootstrap_servers, **QUICK) is verdict
        )  # also before the markers
        await until(lambda: not cluster.open_transactions)
        assert await outcome(cluster, prepared) is verdict


@pytest.mark.parametrize("is_committed", [False, True], ids=["open", "committed before"])
async def test_the_outcome_after_somebody_took_over(
    cluster: FakeCluster, version: int, is_committed: bool
) -> None:
    """It is hidden from the moment on that the id is initialised, and it stays so whatever the rival does."""
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster)
    if is_committed:
        await prepared.commit(cluster.bootstrap_servers, **QUICK)
    async with producer_of(cluster) as producer:
        assert await outcome(cluster, prepared) is TransactionOutcome.UNKNOWN
        for commits in (False, True):
            txn = await producer.begin_transaction()
            await txn.send_and_wait("one", b"rival")
            assert await outcome(cluster, prepared) is TransactionOutcome.UNKNOWN
            await (txn.commit() if commits else txn.abort())
            await until(lambda: not cluster.open_transactions)
            assert await outcome(cluster, prepared) is TransactionOutcome.UNKNOWN


async def test_the_outcome_after_its_time_is_over(cluster: FakeCluster, version: int) -> None:
    """With version 1 a rival that aborts after somebody's commit leaves the same."""
    cluster.set_transaction_version(version)
    prepared = await prepared_by(cluster, transaction_timeout_ms=100)
    await until(lambda: not cluster.open_transactions)
    expected = TransactionOutcome.ABORTED if version == 2 else TransactionOutcome.UNKNOWN
    assert await outcome(cluster, prepared) is expected


@pytest.mark.parametrize("versions", [(1, 1), (2, 2), (1, 2), (2, 1)])
async def test_its_own_producer_goes_on_with_another_epoch(
    cluster: FakeCluster, versions: tuple[int, int]
) -> None:
    """Otherwise a holder of its bytes takes the next one's end for its own, or ends the next one."""
    cluster.set_transaction_version(versions[0])
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        await txn.send("one", b"yes")
        prepared = await txn.prepare()
        cluster.set_transaction_version(versions[1])
        await producer.partitions_for("one", 1)
        await txn.commit()
        other = await producer.begin_transaction()
        await other.send_and_wait("one", b"no")
        assert await outcome(cluster, prepared) is TransactionOutcome.UNKNOWN
        with pytest.raises(TransactionError) as caught:
            await prepared.commit(cluster.bootstrap_servers, **QUICK)
        assert caught.value.outcome is TransactionOutcome.UNKNOWN
        await other.abort()
        await until(lambda: not cluster.open_transactions)
        assert await outcome(cluster, prepared) is TransactionOutcome.UNKNOWN
    assert await committed(cluster) == [b"yes"]


async def test_the_outcome_of_an_id_that_is_denied(cluster: FakeCluster) -> None:
    prepared = await prepared_by(cluster)
    cluster.deny_transactional_id("orders-1")
    with pytest.raises(TransactionsUnavailableError, match="grant"):
        await prepared.outcome(cluster.bootstrap_servers, **QUICK)


async def test_the_outcome_by_brokers_that_do_not_tell(cluster: FakeCluster) -> None:
    prepared = await prepared_by(cluster)
    cluster.set_api_versions({ApiKey.DESCRIBE_TRANSACTIONS: None})
    with pytest.raises(TransactionsUnavailableError, match=r"Kafka 3\.0 or later report"):
        await prepared.outcome(cluster.bootstrap_servers, **QUICK)


async def test_the_outcome_of_an_id_that_nobody_knows(cluster: FakeCluster) -> None:
    prepared = PreparedTransaction("nobody-s", 4000, 7, 2)
    assert await outcome(cluster, prepared) is TransactionOutcome.UNKNOWN


async def test_nothing_was_sent(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        prepared = await (await producer.begin_transaction()).prepare()
    await prepared.commit("nobody.invalid:9092")
    assert await prepared.outcome("nobody.invalid:9092") is None
    assert cluster.transactions[0].state == "Empty"


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b'{"transactional_id": 1, "producer_id": 2, "producer_epoch": 3}', b"\xff"]
)
def test_bytes_that_are_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a prepared transaction"):
        PreparedTransaction.from_bytes(data)


async def test_what_is_aborted_meanwhile_is_not_given_out(
    cluster: FakeCluster, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core has it prepared, and another task aborts it before `prepare()` goes on."""
    real = TransactionManager.prepare

    def prepare(self: TransactionManager, now: float) -> Operation:
        def abort() -> None:
            self.abort(now)

        operation = real(self, now)
        operation.when_done(abort)
        return operation

    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        await txn.send("t", b"v")
        monkeypatch.setattr(TransactionManager, "prepare", prepare)
        with pytest.raises(TransactionStateError, match=r"prepare\(\) cannot be called now"):
            await txn.prepare()
        await until(lambda: txn.outcome is TransactionOutcome.ABORTED)


async def test_ending_one_leaves_its_producers_audit_alone(cluster: FakeCluster) -> None:
    cluster.create_topic("aioproduce.audit", 1)
    auditor = Auditor()
    async with producer_of(cluster, interceptors=[auditor]) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"v")
            prepared = await txn.prepare()
        identity = auditor.producer_id
        await prepared.commit(producer.config)
        assert (auditor.producer_id, auditor.numbered) == (identity, 1)
