"""An audited producer with transactions, on asyncio, uvloop and trio: what its marks promise to readers of
committed records, held against the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.audit import Auditor
from aioproduce.errors import ProducerFencedError, SenderDiedError, TransactionOutcome
from aioproduce.producer.life import open_producers
from aioproduce.wire.api import ApiKey
from tests.drivers.breaking import break_core
from tests.drivers.concurrency import is_trio, spawn
from tests.drivers.producing import until
from tests.drivers.test_producer_audit import marks, stamp, with_audit_topic

if TYPE_CHECKING:
    from aioproduce.audit import Mark
    from aioproduce.testing import FakeCluster

QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


class Body(Exception):
    """What leaves the body of a transaction."""


def producer_of(cluster: FakeCluster, auditor: Auditor, **settings: Any) -> Producer:
    return Producer(
        with_audit_topic(cluster).bootstrap_servers,
        transactional_id="orders-1",
        interceptors=[auditor],
        **{**QUICK, **settings},
    )


def committed_numbers(cluster: FakeCluster) -> list[int]:
    """The numbers that a reader of committed records finds, duplicates and all."""
    return sorted(stamp(record)[1] for record in cluster.records("t", isolation="read_committed"))


def lost(cluster: FakeCluster, mark: Mark) -> set[int]:
    """What a mark promises and neither the log has for such a reader nor the mark excuses."""
    excused = {number for first, last in mark.failed for number in range(first, last + 1)}
    return set(range(mark.next)) - excused - set(committed_numbers(cluster))


async def commit(producer: Producer, *values: bytes) -> None:
    async with producer.transaction() as txn:
        for value in values:
            await txn.send("t", value)


async def abort(producer: Producer, *values: bytes) -> None:
    """An exception leaves the body."""

    async def body() -> None:
        async with producer.transaction() as txn:
            for value in values:
                await (await txn.send("t", value))
            raise Body

    with pytest.raises(Body):
        await body()


@pytest.mark.parametrize("version", [1, 2])
async def test_aborted_numbers_are_excused(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    auditor = Auditor()
    async with producer_of(cluster, auditor) as producer:
        await commit(producer, b"0", b"1")
        await abort(producer, b"2", b"3", b"4")
        await commit(producer, b"5")
        await abort(producer)
        assert (auditor.numbered, auditor.acknowledged, auditor.failed) == (6, 3, 3)
    (closing,) = marks(cluster)
    assert (closing.kind, closing.next, closing.acknowledged) == ("closing", 6, 3)
    assert closing.failed == ((2, 4),)
    assert closing.topics == {"t": 3}
    assert committed_numbers(cluster) == [0, 1, 5]
    assert not lost(cluster, closing)
    # They are in the log all the same, for who reads all.
    assert len(cluster.records("t")) == 6


async def test_an_open_transaction_promises_nothing_yet(cluster: FakeCluster) -> None:
    auditor = Auditor(heartbeat_ms=5)
    async with producer_of(cluster, auditor) as producer:
        await commit(producer, b"0")
        async with producer.transaction() as txn:
            await (await txn.send("t", b"1"))
            await until(lambda: marks(cluster))
            open_mark = auditor.mark()
            assert (open_mark.next, open_mark.acknowledged) == (1, 1)
            assert all(mark.next <= 1 for mark in marks(cluster))
        assert auditor.mark().next == 2
    *_, closing = marks(cluster)
    assert (closing.kind, closing.next, closing.acknowledged) == ("closing", 2, 2)


async def test_a_close_aborts_what_is_open_and_excuses_it(cluster: FakeCluster) -> None:
    producer = producer_of(cluster, Auditor())
    await producer.start()
    await commit(producer, b"0")
    txn = await producer.begin_transaction()
    await (await txn.send("t", b"1"))
    await producer.close()
    assert txn.outcome is TransactionOutcome.ABORTED
    (closing,) = marks(cluster)
    assert (closing.kind, closing.next, closing.failed) == ("closing", 2, ((1, 1),))
    assert not lost(cluster, closing)


async def test_an_unknown_outcome_leaves_its_numbers_undecided(cluster: FakeCluster) -> None:
    auditor = Auditor()
    producer = producer_of(cluster, auditor)
    await producer.start()
    await commit(producer, b"0")
    txn = await producer.begin_transaction()
    await txn.send("t", b"1")
    resets = cluster.faults.reset_connections_on(ApiKey.END_TXN, times=None, after_processing=False)
    committing = spawn(txn.commit())
    await until(lambda: resets.hits >= 1)
    async with Producer(cluster.bootstrap_servers, transactional_id="orders-1", **QUICK):
        pass
    resets.cancel()
    with pytest.raises(ProducerFencedError):
        await committing
    assert txn.outcome is TransactionOutcome.UNKNOWN
    await producer.close()
    # No closing mark: after one, a number that is missing counts as lost.
    (last,) = marks(cluster)
    assert (last.kind, last.next, last.acknowledged, last.failed) == ("heartbeat", 1, 1, ())
    assert not lost(cluster, last)
    assert auditor.numbered == 2


async def test_a_fenced_producer_tells_that_its_records_are_aborted(cluster: FakeCluster) -> None:
    producer = producer_of(cluster, Auditor())
    await producer.start()
    txn = await producer.begin_transaction()
    await (await txn.send("t", b"0"))
    async with Producer(cluster.bootstrap_servers, transactional_id="orders-1", **QUICK):
        pass
    with pytest.raises(ProducerFencedError):
        await txn.commit()
    await producer.close()
    (closing,) = marks(cluster)
    assert (closing.kind, closing.next, closing.acknowledged, closing.failed) == ("closing", 1, 0, ((0, 0),))
    assert not lost(cluster, closing)


async def test_what_is_prepared_and_ended_elsewhere_is_undecided(cluster: FakeCluster) -> None:
    producer = producer_of(cluster, Auditor())
    await producer.start()
    await commit(producer, b"0")
    txn = await producer.begin_transaction()
    await txn.send("t", b"1")
    prepared = await txn.prepare()
    await producer.close(0)
    await prepared.commit(cluster.bootstrap_servers)
    assert all(mark.next <= 1 for mark in marks(cluster))


async def test_a_forced_close_leaves_nothing_behind(cluster: FakeCluster) -> None:
    producer = producer_of(cluster, Auditor())
    await producer.start()
    await commit(producer, b"0")
    await producer.close(0)
    assert marks(cluster) == []


async def test_a_cancelled_close_leaves_nothing_behind(cluster: FakeCluster) -> None:
    producer = producer_of(cluster, Auditor())
    await producer.start()
    await commit(producer, b"0")
    stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    closing = spawn(producer.close())
    await until(lambda: stuck.hits >= 1)  # the closing mark's request
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert producer.abandoned_records == 0


async def test_a_close_that_is_thrown_away_leaves_no_producer_open(cluster: FakeCluster) -> None:
    before = open_producers()  # what other tests of this process have left, to die with their loops
    producer = producer_of(cluster, Auditor())
    await producer.start()
    assert len([life for life in open_producers() if life not in before]) == 2
    await commit(producer, b"0")
    closing = producer.close()
    if is_trio():
        await producer.close(0)  # a task of trio's is not thrown away
    else:
        closing.send(None)
    closing.close()
    assert [life for life in open_producers() if life not in before] == []
    await until(lambda: not cluster.connections)


async def test_after_the_senders_death_an_end_does_not_wait(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers any more; `max.block.ms` is a minute."""

    class Bug(Exception):
        pass

    producer = producer_of(cluster, Auditor())
    await producer.start()
    txn = await producer.begin_transaction()
    await (await txn.send("t", b"0"))
    break_core(producer._life.sender, Bug("of the core"))
    producer._life.driver.wake()
    await until(lambda: producer._life.is_over)
    for end in (txn.commit, txn.abort, txn.prepare):
        with pytest.raises(SenderDiedError):
            await end()
    await producer.close()
    assert all(mark.next == 0 for mark in marks(cluster))
