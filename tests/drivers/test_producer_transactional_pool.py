"""A pool of transactional producers: one transaction each, in the order of coming, whole again after a fence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer, TransactionalPool
from aioproduce.errors import ConfigError, MaxBlockTimeoutError, ProducerFencedError, ProducerStateError
from tests.drivers.concurrency import gather, spawn
from tests.drivers.producing import until

if TYPE_CHECKING:
    from aioproduce.testing import FakeCluster

QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


def pool_of(cluster: FakeCluster, size: int = 2, **settings: Any) -> TransactionalPool:
    return TransactionalPool(
        cluster.bootstrap_servers, transactional_id_prefix="orders", size=size, **{**QUICK, **settings}
    )


async def committed(cluster: FakeCluster) -> list[bytes | None]:
    await until(lambda: not cluster.open_transactions)
    return sorted((record.value for record in cluster.records("one", isolation="read_committed")), key=repr)


async def test_more_tasks_than_producers(cluster: FakeCluster) -> None:
    open_now = most = 0

    async def work(pool: TransactionalPool, number: int) -> None:
        nonlocal open_now, most
        async with pool.transaction() as txn:
            open_now += 1
            most = max(most, open_now)
            await txn.send_and_wait("one", b"%d" % number)
            open_now -= 1

    async with pool_of(cluster) as pool:
        assert pool.free == 2
        await gather(*(work(pool, number) for number in range(9)))
        assert pool.free == 2
    assert most == 2
    assert await committed(cluster) == [b"%d" % number for number in range(9)]
    assert {transaction.transactional_id for transaction in cluster.transactions} == {"orders-0", "orders-1"}


async def test_who_comes_first_is_served_first(cluster: FakeCluster) -> None:
    served = []

    async def work(pool: TransactionalPool, number: int) -> None:
        async with pool.transaction():
            served.append(number)

    async with pool_of(cluster, size=1) as pool:
        async with pool.transaction():
            waiting = [spawn(work(pool, number)) for number in range(4)]
            await until(lambda: len(pool._waiting) == 4)
            waiting[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[1]
        await gather(*(task for number, task in enumerate(waiting) if number != 1))
        assert served == [0, 2, 3]
        assert pool.free == 1


async def test_none_comes_free(cluster: FakeCluster) -> None:
    async with pool_of(cluster, size=1, max_block_ms=300) as pool, pool.transaction() as txn:
        with pytest.raises(MaxBlockTimeoutError, match="make the pool larger"):
            async with pool.transaction():
                pass
        await txn.send("one", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_a_producer_that_was_fenced_is_made_anew(cluster: FakeCluster) -> None:
    async with pool_of(cluster, size=1) as pool:
        lost = pool.transaction()
        txn = await lost.__aenter__()
        await txn.send_and_wait("one", b"no")
        async with Producer(cluster.bootstrap_servers, transactional_id="orders-0", **QUICK):
            with pytest.raises(ProducerFencedError):
                await lost.__aexit__(None, None, None)
        async with pool.transaction() as txn:
            await txn.send("one", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_what_does_not_fit(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        pool_of(cluster, size=0)
    with pytest.raises(ConfigError):
        pool_of(cluster, acks=0)
    pool = pool_of(cluster)
    with pytest.raises(ProducerStateError, match="async with"):
        async with pool.transaction():
            pass
    async with pool:
        held = pool.transaction(), pool.transaction()
        for each in held:
            await each.__aenter__()
        waiting = spawn(pool.transaction().__aenter__())
        await until(lambda: len(pool._waiting) == 1)
    with pytest.raises(ProducerStateError, match="was closed"):
        await waiting
    with pytest.raises(ProducerStateError, match="opened once"):
        await pool.__aenter__()
    assert await committed(cluster) == []
