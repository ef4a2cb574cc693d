"""Transactions as aiokafka's users write them. A test runs on both, or says why not.

A cluster of either `transaction.version` takes what aiokafka sends as version 1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import errors as theirs
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aioproduce import errors as ours
from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer
from aioproduce.compat.aiokafka_errors import translated
from aioproduce.wire.api import ApiKey
from tests.compat.aiokafka_sides import nobody_there, started

if TYPE_CHECKING:
    from aioproduce.testing import FakeCluster

QUICK: dict[str, Any] = {"transactional_id": "orders-1", "retry_backoff_ms": 5, "request_timeout_ms": 4000}
ONE = TopicPartition("one", 0)


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    """The cluster's `transaction.version`."""
    return int(request.param)


@pytest.fixture
def cluster(cluster: FakeCluster, version: int) -> FakeCluster:
    """Of either version."""
    cluster.set_transaction_version(version)
    return cluster


async def committed(cluster: FakeCluster, topic: str = "one") -> list[bytes | None]:
    """What readers of committed records see, once nothing is open any more."""
    while cluster.open_transactions:  # noqa: ASYNC110  # the cluster has no event for it
        await asyncio.sleep(0.005)
    return [record.value for record in cluster.records(topic, isolation="read_committed")]


async def fail_within(producer: Any, *values: bytes) -> None:
    async with producer.transaction():
        for value in values:
            await producer.send_and_wait("one", value)
        raise LookupError("mine")


# -- what a reader sees ---


async def test_committed_and_aborted(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        for number in range(3):
            async with producer.transaction():
                futures = [await producer.send("one", b"%d.%d" % (number, part)) for part in range(2)]
            assert [future.done() for future in futures] == [True, True]
            with pytest.raises(LookupError, match="mine"):
                await fail_within(producer, b"no")
    assert await committed(cluster) == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0", b"2.1"]


async def test_the_flat_calls(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        assert await producer.begin_transaction() is None
        await producer.send("one", b"yes")
        assert await producer.commit_transaction() is None
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"no")
        assert await producer.abort_transaction() is None
        for end in (producer.commit_transaction, producer.abort_transaction):  # of nothing
            await producer.begin_transaction()
            await end()
    assert await committed(cluster) == [b"yes"]


async def test_any_task_sends(side: Any, cluster: FakeCluster) -> None:
    """Unlike `Producer.send()`, which has to be called by the task that began it."""
    serializers = {"value_serializer": lambda value: value}  # each record goes the long way, too
    for arguments in ({}, serializers):
        async with started(side, cluster.bootstrap_servers, **QUICK, **arguments) as producer:
            await asyncio.ensure_future(producer.begin_transaction())
            await asyncio.gather(*(asyncio.ensure_future(producer.send("one", b"yes")) for _ in range(3)))
            batch = producer.create_batch()
            batch.append(key=None, value=b"batched", timestamp=None)
            await asyncio.ensure_future(producer.send_batch(batch, "one", partition=0))
            await asyncio.ensure_future(producer.commit_transaction())
    assert await committed(cluster) == [b"yes", b"yes", b"yes", b"batched"] * 2


async def test_offsets_come_with_the_transaction(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({ONE: OffsetAndMetadata(5, "so far")}, "group-1")
            await producer.send_offsets_to_transaction({TopicPartition("t", 1): 7}, "group-1")
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({ONE: (9, "")}, "group-1")
        await producer.abort_transaction()
    await committed(cluster)
    assert cluster.committed_offset("group-1", "one", 0) == 5
    assert cluster.committed_offset("group-1", "t", 1) == 7


# -- calls that do not fit ---


async def test_outside_of_a_transaction(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"batched", timestamp=None)

        async def refused() -> None:
            with pytest.raises(theirs.IllegalOperation):
                await producer.send("one", b"no")
            with pytest.raises(theirs.IllegalOperation):
                await producer.send_batch(batch, "one", partition=0)
            with pytest.raises(theirs.IllegalOperation, match="Not in the middle of a transaction"):
                await producer.send_offsets_to_transaction({}, group_id=None)
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(AssertionError, match="Invalid state transition"):
                    await call()

        await refused()
        async with producer.transaction():
            await producer.send("one", b"yes")
            with pytest.raises(AssertionError, match="Invalid state transition"):
                await producer.begin_transaction()
        await refused()
        async with producer.transaction():
            await producer.send_batch(batch, "one", partition=0)
    assert await committed(cluster) == [b"yes", b"batched"]


async def test_while_it_is_committed_nothing_is_sent(side: Any, cluster: FakeCluster) -> None:
    cluster.faults.delay_answers(0.1, api=ApiKey.END_TXN)
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        await producer.begin_transaction()
        await producer.send("one", b"yes")
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0.001)
        with pytest.raises(theirs.IllegalOperation):
            await producer.send("one", b"no")
        with pytest.raises(AssertionError, match="Invalid state transition"):
            await producer.abort_transaction()
        await committing
    assert await committed(cluster) == [b"yes"]


@pytest.mark.parametrize(
    ("offsets", "group", "kind"),
    [
        ({}, "group-1", ValueError),
        ([(ONE, 1)], "group-1", ValueError),
        ({ONE: 1}, "", ValueError),
        ({ONE: 1}, b"group-1", ValueError),
        ({ONE: None}, "group-1", ValueError),
        ({ONE: (1, b"bytes")}, "group-1", TypeError),
        ({("one", 0): 1}, "group-1", TypeError),
    ],
)
async def test_offsets_that_are_none(
    side: Any, cluster: FakeCluster, offsets: Any, group: Any, kind: type[Exception]
) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer, producer.transaction():
        with pytest.raises(kind):
            await producer.send_offsets_to_transaction(offsets, group)


async def test_a_cancelled_commit_goes_on(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        await producer.begin_transaction()
        await producer.send("one", b"yes")
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        while not await committed(cluster):  # noqa: ASYNC110  # aiokafka may not have begun to send
            await asyncio.sleep(0.005)
    assert await committed(cluster) == [b"yes"]


async def test_the_next_one_waits_for_a_cancelled_end(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: aiokafka asserts until the end has come, and a second commit, too."""
    cluster.faults.delay_answers(0.1, api=ApiKey.END_TXN)
    async with started(OurProducer, cluster.bootstrap_servers, **QUICK) as producer:
        for again in (producer.begin_transaction, producer.commit_transaction):
            if again == producer.begin_transaction:
                await producer.begin_transaction()
            await producer.send("one", b"yes")
            committing = asyncio.ensure_future(producer.commit_transaction())
            await asyncio.sleep(0)
            committing.cancel()
            await asyncio.wait([committing])
            await again()
    assert await committed(cluster) == [b"yes", b"yes"]


# -- failures ---


async def test_a_denied_group(side: Any, cluster: FakeCluster) -> None:
    cluster.deny_group("group-2")
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        with pytest.raises(theirs.GroupAuthorizationFailedError):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({ONE: 1}, "group-2")
        await producer.begin_transaction()
        with pytest.raises(theirs.GroupAuthorizationFailedError):
            await producer.send_offsets_to_transaction({ONE: 1}, "group-2")
        with pytest.raises(theirs.IllegalOperation):
            await producer.send("one", b"no")
        with pytest.raises(theirs.GroupAuthorizationFailedError):
            await producer.commit_transaction()
        with pytest.raises(AssertionError, match="Invalid state transition"):
            await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("one", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_a_denied_id(side: Any, cluster: FakeCluster) -> None:
    cluster.deny_transactional_id("orders-1")
    producer = side(bootstrap_servers=cluster.bootstrap_servers, **QUICK)
    with pytest.raises(theirs.TransactionalIdAuthorizationFailed):
        await producer.start()
    await producer.stop()


async def test_a_time_out_that_is_too_long(side: Any, cluster: FakeCluster) -> None:
    arguments = {**QUICK, "transaction_timeout_ms": 2_000_000_000}
    producer = side(bootstrap_servers=cluster.bootstrap_servers, **arguments)
    with pytest.raises(theirs.InvalidTransactionTimeout):
        await producer.start()
    await producer.stop()


async def test_without_a_broker(side: Any) -> None:
    with nobody_there() as nobody:
        producer = side(bootstrap_servers=nobody, **QUICK)
        with pytest.raises(theirs.KafkaConnectionError):
            await producer.start()
        await producer.stop()


async def test_another_producer_takes_over(side: Any, cluster: FakeCluster) -> None:
    async with (
        started(side, cluster.bootstrap_servers, **QUICK) as first,
        started(side, cluster.bootstrap_servers, **QUICK) as second,
    ):
        with pytest.raises(theirs.ProducerFenced):
            async with first.transaction():
                await first.send_and_wait("one", b"no")
        async with second.transaction():
            await second.send("one", b"yes")
        async with started(side, cluster.bootstrap_servers, **QUICK):
            await second.begin_transaction()
            with pytest.raises(theirs.ProducerFenced):
                await second.send_and_wait("one", b"no")
    assert await committed(cluster) == [b"yes"]


async def test_a_commit_finds_that_another_has_taken_over(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **QUICK) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"no")
        async with started(side, cluster.bootstrap_servers, **QUICK) as successor:
            with pytest.raises(theirs.ProducerFenced):
                await producer.commit_transaction()
            # Nothing more comes of this one, by whichever class it says so.
            for call in (producer.begin_transaction, producer.abort_transaction):
                with pytest.raises((theirs.ProducerFenced, AssertionError)):
                    await call()
            with pytest.raises((theirs.ProducerFenced, theirs.IllegalOperation)):
                await producer.send("one", b"no")
            async with successor.transaction():
                await successor.send("one", b"yes")
    assert await committed(cluster) == [b"yes"]


async def test_the_coordinators_time_out(side: Any, cluster: FakeCluster) -> None:
    arguments = {**QUICK, "transaction_timeout_ms": 200}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"no")
        assert await committed(cluster) == []
        with pytest.raises(theirs.ProducerFenced):
            await producer.commit_transaction()


async def test_what_comes_after_a_time_out(cluster: FakeCluster, version: int) -> None:
    """Ours alone: aiokafka's producer ends by it. With version 2 ours goes on, and says so in the cause."""
    arguments = {**QUICK, "transaction_timeout_ms": 200}
    async with started(OurProducer, cluster.bootstrap_servers, **arguments) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"no")
        await committed(cluster)
        with pytest.raises(theirs.ProducerFenced) as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value.__cause__, ours.TransactionTimedOutError)
        if version == 2:
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("one", b"yes")
        else:
            with pytest.raises(theirs.ProducerFenced):
                await producer.abort_transaction()
            with pytest.raises(theirs.ProducerFenced, match="create another one"):
                await producer.begin_transaction()
    assert await committed(cluster) == ([b"yes"] if version == 2 else [])


async def test_a_failed_record_is_never_left_out(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: aiokafka commits what is left."""
    async with started(OurProducer, cluster.bootstrap_servers, **QUICK) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"no")
        cluster.faults.fail_produce(87, topic="one")  # INVALID_RECORD
        failed = await producer.send("one", b"bad")
        with pytest.raises(theirs.UnknownError, match="INVALID_RECORD") as caught:
            await producer.commit_transaction()
        assert isinstance(caught.value.__cause__, ours.TransactionFailedError)
        with pytest.raises(theirs.UnknownError, match="INVALID_RECORD"):
            await failed
        await producer.abort_transaction()
    assert await committed(cluster) == []


async def test_what_was_not_sent_fails_with_the_abort(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: aiokafka sends it first."""
    async with started(OurProducer, cluster.bootstrap_servers, **QUICK, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        future = await producer.send("one", b"no")
        await producer.abort_transaction()
        with pytest.raises(theirs.KafkaError, match="were not sent") as caught:
            await future
        assert isinstance(caught.value.__cause__, ours.TransactionAbortedError)
    assert cluster.records("one") == []


async def test_a_body_that_ended_its_transaction(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: with aiokafka the error that leaves is not the body's."""

    async def end_it() -> None:
        async with producer.transaction():
            await producer.send("one", b"yes")
            await producer.commit_transaction()
            raise LookupError("mine")

    async with started(OurProducer, cluster.bootstrap_servers, **QUICK) as producer:
        with pytest.raises(LookupError, match="mine"):
            await end_it()
    assert await committed(cluster) == [b"yes"]


async def test_a_stop_aborts_what_is_open(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: aiokafka leaves it open till its time-out."""
    async with started(OurProducer, cluster.bootstrap_servers, **QUICK) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"no")
    assert [each.state for each in cluster.transactions] != ["Ongoing"]
    assert await committed(cluster) == []


async def test_a_commit_without_an_answer(cluster: FakeCluster) -> None:
    """Ours alone, and a difference: aiokafka waits for ever."""
    arguments = {**QUICK, "request_timeout_ms": 300}
    async with started(OurProducer, cluster.bootstrap_servers, **arguments) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("one", b"yes")
        held = cluster.faults.drop_answers(api=ApiKey.END_TXN, times=None)
        with pytest.raises(theirs.KafkaTimeoutError):
            await producer.commit_transaction()
        held.cancel()
        while True:
            try:
                await producer.commit_transaction()
            except theirs.KafkaTimeoutError:
                continue
            break
    assert await committed(cluster) == [b"yes"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ours.ProducerFencedError("x", recover="new producer"), theirs.ProducerFenced),
        (ours.TransactionTimedOutError("x", recover="begin"), theirs.ProducerFenced),
        (ours.TransactionUnconfirmedError("x", recover="call again"), theirs.KafkaTimeoutError),
        (ours.TransactionStateError("x", recover="begin"), theirs.IllegalOperation),
        (ours.TransactionError("x", recover="new producer"), theirs.KafkaError),
        (ours.TransactionFailedError("x", recover="abort", code=45), theirs.OutOfOrderSequenceNumber),
        (ours.TransactionFailedError("x", recover="abort", code=29), theirs.TopicAuthorizationFailedError),
        (ours.TransactionFailedError("x", recover="abort", code=90), theirs.ProducerFenced),
        (
            ours.TransactionsUnavailableError("x", recover="new producer", code=49),
            theirs.InvalidProducerIdMapping,
        ),
        (ours.TransactionError("x", recover="begin", code=48), theirs.InvalidTxnState),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_what_ours_becomes(error: Exception, kind: type[Exception]) -> None:
    their = translated(error)
    assert type(their) is kind
    assert their.__cause__ is error
    assert "x" in str(their)
