"""Group commit: many tasks in one transaction after another, each told what became of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    InvalidRecordError,
    ProducerFencedError,
    TransactionError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
)
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import gather, spawn
from tests.drivers.producing import until

if TYPE_CHECKING:
    from aioproduce.producer.group_commit import GroupCommit
    from aioproduce.testing import FakeCluster

QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def producer_of(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id="orders-1", **{**QUICK, **settings})


async def committed(cluster: FakeCluster, topic: str = "one") -> list[bytes | None]:
    await until(lambda: not cluster.open_transactions)
    return [record.value for record in cluster.records(topic, isolation="read_committed")]


async def outcome_of(group: GroupCommit, value: bytes) -> TransactionError | int:
    try:
        return (await group.send("one", value)).offset
    except TransactionError as error:
        return error


async def test_tasks_share_transactions(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    ends = cluster.faults.delay_answers(0.0, api=ApiKey.END_TXN, times=None)
    async with producer_of(cluster) as producer, producer.group_commit(0.02) as group:
        offsets = await gather(*(outcome_of(group, b"%d" % number) for number in range(200)))
    assert sorted(await committed(cluster), key=int) == [b"%d" % number for number in range(200)]  # type: ignore[arg-type]
    by_offset = {record.offset: record.value for record in cluster.records("one")}
    assert [by_offset[offset] for offset in offsets] == [b"%d" % number for number in range(200)]
    assert 1 <= ends.hits <= 20


async def test_a_record_that_fails_aborts_those_beside_it(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    settings = {"max_request_size": 10_000_000, "batch_size": 2_000_000}
    async with producer_of(cluster, **settings) as producer, producer.group_commit(0.05) as group:
        outcomes = await gather(*(outcome_of(group, value) for value in (b"no", bytes(1_500_000), b"no")))
        for outcome in outcomes:
            assert isinstance(outcome, TransactionFailedError)
            assert outcome.outcome is TransactionOutcome.ABORTED
            assert outcome.recover == "begin"
        await group.send("one", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_as_many_records_as_a_transaction_may_have(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer, producer.group_commit(3600, records=3) as group:
        await gather(*(outcome_of(group, b"%d" % number) for number in range(9)))
        assert len(await committed(cluster)) == 9


async def test_who_is_cancelled_takes_nothing_along(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        async with producer.group_commit(3600) as group:
            first, second = spawn(group.send("one", b"cancelled")), spawn(group.send("one", b"yes"))
            await until(lambda: len(cluster.records("one", isolation="read_uncommitted")) == 2)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        await second
    assert sorted(await committed(cluster), key=repr) == [b"cancelled", b"yes"]


async def test_the_end_of_the_group_commits_what_is_open(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        async with producer.group_commit(3600) as group:
            sends = [spawn(group.send("one", b"%d" % number)) for number in range(3)]
            await until(lambda: len(cluster.records("one", isolation="read_uncommitted")) == 3)
        assert await gather(*sends)
        async with producer.transaction() as txn:
            await txn.send("one", b"3")
    assert len(await committed(cluster)) == 4


async def test_more_than_there_is_room_for(cluster: FakeCluster) -> None:
    settings = {"buffer_memory": 40_000, "batch_size": 10_000}
    async with producer_of(cluster, **settings) as producer, producer.group_commit(0.02) as group:
        outcomes = await gather(*(outcome_of(group, b"%d" % number + bytes(5_000)) for number in range(40)))
        assert not [outcome for outcome in outcomes if isinstance(outcome, TransactionError)]
    assert len(await committed(cluster)) == 40


async def test_another_producer_takes_over(cluster: FakeCluster, version: int) -> None:
    cluster.set_transaction_version(version)
    async with producer_of(cluster) as producer, producer.group_commit(3600, records=2) as group:
        first = spawn(outcome_of(group, b"no"))
        await until(lambda: len(cluster.records("one", isolation="read_uncommitted")) == 1)
        async with producer_of(cluster):
            for fenced in (await outcome_of(group, b"no"), await first):
                assert isinstance(fenced, ProducerFencedError)
        assert isinstance(await outcome_of(group, b"no"), ProducerFencedError)
    assert await committed(cluster) == []


async def test_what_does_not_fit(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        for wrong in ({"interval": 0}, {"interval": -1.0}, {"records": 0}):
            with pytest.raises(ValueError, match=r"above 0|1 or more"):
                producer.group_commit(**wrong)
        group = producer.group_commit()
        with pytest.raises(TransactionStateError, match="async with"):
            await group.send("one", b"no")
        async with group:
            with pytest.raises(InvalidRecordError):
                await group.send("one", 17)  # type: ignore[arg-type]  # that is the error
            with pytest.raises(TransactionStateError, match="a group commit uses"):
                await producer.begin_transaction()
            with pytest.raises(TransactionStateError, match="already"):
                await producer.group_commit().__aenter__()
            await group.send("one", b"yes")
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TransactionStateError, match="no transactions"):
            producer.group_commit()
    assert await committed(cluster) == [b"yes"]
