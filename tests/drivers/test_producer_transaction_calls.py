"""The calls of a transactional producer, one by one: what they refuse, what a close does to them, what they take.

The cases of Kafka's KafkaProducerTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.errors import (
    InvalidTopicError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionError,
    TransactionOutcome,
    TransactionUnconfirmedError,
)
from aioproduce.records import GroupMetadata
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import gather, spawn, within
from tests.drivers.producing import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproduce.testing import FakeCluster

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}
SHORT_MS = 300


def producer_of(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id="orders-1", **{**QUICK, **settings})


async def committed(cluster: FakeCluster, topic: str = "t") -> list[bytes | None]:
    """What a reader of committed records sees, once nothing is open any more."""
    await until(lambda: not cluster.open_transactions)
    return sorted((record.value for record in cluster.records(topic, isolation="read_committed")), key=repr)


async def error_of(awaited: Awaitable[object]) -> BaseException | None:
    """What it raises."""
    [outcome] = await gather(awaited, return_exceptions=True)
    return outcome if isinstance(outcome, BaseException) else None


# -- init ---


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID], ids=lambda api: api.name)
async def test_a_start_that_gets_no_id_in_time_is_the_end_of_that_producer(
    cluster: FakeCluster, api: ApiKey
) -> None:
    """In Java the same call again waits on; here `start()` closes what it could not start."""
    held = cluster.faults.drop_answers(api=api, times=None)
    producer = producer_of(cluster, max_block_ms=SHORT_MS)
    with pytest.raises(TransactionUnconfirmedError):
        await producer.start()
    for call in (producer.init_transactions, producer.begin_transaction):
        with pytest.raises(ProducerClosedError):
            await call()
    held.cancel()
    async with producer_of(cluster) as later, later.transaction() as txn:
        await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_a_start_while_the_coordinator_throttles(cluster: FakeCluster) -> None:
    cluster.faults.throttle(0.05, api=ApiKey.FIND_COORDINATOR)
    async with producer_of(cluster) as producer, producer.transaction() as txn:
        await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID], ids=lambda api: api.name)
async def test_a_close_ends_a_start_that_waits(cluster: FakeCluster, api: ApiKey) -> None:
    held = cluster.faults.drop_answers(api=api, times=None)
    producer = producer_of(cluster)
    starting = spawn(producer.start())
    await until(lambda: cluster.requests.count(api))
    async with within(PATIENCE):
        await producer.close(0.02)
        error = await error_of(starting)
    assert isinstance(error, (TransactionError, ProducerClosedError))
    held.cancel()


# -- calls after the end ---


CALLS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "init": lambda producer: producer.init_transactions(),
    "begin": lambda producer: producer.begin_transaction(),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
    "offsets": lambda producer: producer.send_offsets_to_transaction({("one", 0): 1}, "group-1"),
    "send": lambda producer: producer.send("t", b"no"),
}


@pytest.mark.parametrize("is_open", [True, False], ids=["in a transaction", "between"])
async def test_no_call_does_anything_after_a_close(cluster: FakeCluster, is_open: bool) -> None:
    async with producer_of(cluster) as producer:
        if is_open:
            await producer.begin_transaction()
    opened = cluster.connections_opened
    for call in CALLS.values():
        with pytest.raises((ProducerClosedError, TransactionError)):
            await call(producer)
    assert cluster.connections_opened == opened
    assert cluster.records("t") == []


@pytest.mark.parametrize("api", [ApiKey.TXN_OFFSET_COMMIT, ApiKey.FIND_COORDINATOR], ids=lambda api: api.name)
async def test_a_close_ends_offsets_that_wait(cluster: FakeCluster, api: ApiKey) -> None:
    producer = producer_of(cluster)
    await producer.start()
    txn = await producer.begin_transaction()
    cluster.faults.drop_answers(api=api, times=None)
    asked = cluster.requests.count(api)
    sending = spawn(txn.send_offsets({("one", 0): 1}, "group-1"))
    await until(lambda: cluster.requests.count(api) > asked)
    async with within(PATIENCE):
        await producer.close(0.02)
        error = await error_of(sending)
    assert isinstance(error, TransactionError)
    assert cluster.committed_offset("group-1", "one", 0) is None


# -- records that are refused ---


REFUSED: dict[str, tuple[dict[str, Any], type[BaseException]]] = {
    "too large": ({"topic": "t", "value": bytes(2_000)}, RecordTooLargeError),
    "missing topic": ({"topic": "missing", "value": b"no"}, MetadataTimeoutError),
    "partition out of range": ({"topic": "one", "value": b"no", "partition": 7}, PartitionOutOfRangeError),
    "invalid topic": ({"topic": "topic abc", "value": b"no"}, InvalidTopicError),
}


@pytest.mark.parametrize(("record", "expected"), REFUSED.values(), ids=REFUSED)
async def test_a_record_that_is_refused_aborts_the_body_that_it_leaves(
    cluster: FakeCluster, record: dict[str, Any], expected: type[BaseException]
) -> None:
    # Only the missing topic is waited for so long.
    async with producer_of(cluster, max_request_size=1_000, max_block_ms=1_000) as producer:
        failed = producer.transaction()

        async def work() -> None:
            async with failed:
                await failed.send_and_wait("t", b"no")
                await failed.send(**record)

        with pytest.raises(expected):
            await work()
        assert failed.outcome is ABORTED
        # A caller that handles it may commit the rest: nothing of it was accepted (Java's send() hides it in a
        # future, and so its commit fails).
        async with producer.transaction() as txn:
            await txn.send("t", b"yes")
            with pytest.raises(expected):
                await txn.send(**record)
        assert txn.outcome is COMMITTED
    assert await committed(cluster) == [b"yes"]


# -- what they take ---


async def test_an_abort_of_nothing(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        txn = await producer.begin_transaction()
        await producer.abort_transaction()
        assert txn.outcome is ABORTED
        assert cluster.requests.count(ApiKey.END_TXN) == 0


@pytest.mark.parametrize("group", ["group-1", GroupMetadata("group-1")], ids=["name", "metadata"])
async def test_no_offsets_ask_for_nothing(cluster: FakeCluster, group: GroupMetadata | str) -> None:
    async with producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send_offsets({}, group)
        assert txn.outcome is COMMITTED
    assert cluster.requests.count(ApiKey.TXN_OFFSET_COMMIT) == 0


@pytest.mark.parametrize(
    ("group", "error"),
    [(None, TypeError), (GroupMetadata("group-1", 2), ValueError)],
    ids=["none", "no member"],
)
async def test_a_group_that_is_none_leaves_the_transaction_as_it_is(
    cluster: FakeCluster, group: Any, error: type[Exception]
) -> None:
    async with producer_of(cluster) as producer, producer.transaction() as txn:
        with pytest.raises(error):
            await txn.send_offsets({}, group)
        await txn.send("t", b"yes")
    assert await committed(cluster) == [b"yes"]


# -- measured ---


async def test_the_time_of_each_call_adds_up(cluster: FakeCluster) -> None:
    for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN):
        cluster.faults.delay_answers(0.003, api=api, times=None)  # uvloop's clock has whole milliseconds
    async with producer_of(cluster) as producer:
        before = dict.fromkeys(("send-offsets", "commit", "abort"), 0.0)
        for _ in range(2):
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({("one", 0): 1}, "group-1")
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"no")
            await producer.abort_transaction()
            for call, earlier in before.items():
                before[call] = producer.metrics().value(f"txn-{call}-time-ns-total")
                assert before[call] > earlier
        assert producer.metrics().value("txn-init-time-ns-total") > 0
    assert await committed(cluster) == []
