"""Errors of brokers and connections as aiokafka tells them; retries, order. A test runs on both or says why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import errors as theirs

from aioproduce import errors as ours
from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer
from aioproduce.compat.aiokafka_errors import translated
from aioproduce.records import TopicPartition
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.compat.aiokafka_sides import started

FINAL = (
    *(-1, 1, 4, 8, 10, 11, 12, 17, 18, 21, 29, 31, 32, 33, 35, 42, 43, 44, 47, 48, 53, 54, 55),
    *(67, 76, 82, 87, 90, 999),
)
"""Codes after which both give up at once."""
RETRIED = (3, 5, 6, 7, 14, 19, 20, 41, 56)
"""Codes after which both send again."""
RETRIED_BY_OURS = (2, 9, 13, 72, 74, 75, 89)
"""Codes that Kafka calls retriable, and aiokafka gives up at; from 70 on it does not know most."""


def error_of(code: int) -> type[Exception]:
    kind: type[Exception] = theirs.ProducerFenced if code == 47 else theirs.for_code(code)
    return kind


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("code", FINAL)
async def test_an_error_that_is_final(
    side: Any, cluster: FakeCluster, code: int, is_idempotent: bool
) -> None:
    cluster.faults.fail_produce(code)
    async with started(side, cluster.bootstrap_servers, enable_idempotence=is_idempotent) as producer:
        with pytest.raises(theirs.KafkaError) as caught:
            await producer.send_and_wait("one", b"x")
    assert type(caught.value) is error_of(code)
    assert cluster.requests.count(ApiKey.PRODUCE) == 1


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("code", RETRIED)
async def test_an_error_that_is_not(side: Any, cluster: FakeCluster, code: int, is_idempotent: bool) -> None:
    fault = cluster.faults.fail_produce(code, times=2)
    arguments = {"enable_idempotence": is_idempotent, "retry_backoff_ms": 5}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        assert (await producer.send_and_wait("one", b"x")).offset == 0
    assert fault.is_spent
    assert len(cluster.records("one")) == 1


@pytest.mark.parametrize("code", RETRIED_BY_OURS)
async def test_an_error_that_ours_survives(cluster: FakeCluster, code: int) -> None:
    """Ours alone, and a difference."""
    cluster.faults.fail_produce(code)
    async with started(OurProducer, cluster.bootstrap_servers, retry_backoff_ms=5) as producer:
        assert (await producer.send_and_wait("one", b"x")).offset == 0


async def test_a_denied_topic_is_named(side: Any, cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(29)
    async with started(side, cluster.bootstrap_servers) as producer:
        with pytest.raises(theirs.TopicAuthorizationFailedError) as caught:
            await producer.send_and_wait("one", b"x")
    assert caught.value.args == ("one",)


async def test_a_repetition_that_the_broker_knows_is_no_error(side: Any, cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(46)  # DUPLICATE_SEQUENCE_NUMBER, without an offset
    async with started(side, cluster.bootstrap_servers, enable_idempotence=True) as producer:
        assert (await producer.send_and_wait("one", b"x")).offset == -1


# -- what is given up when its time is over ---

SHORT = {"request_timeout_ms": 1000, "retry_backoff_ms": 50}
"""Time enough for a slow machine to answer within it."""


@pytest.mark.parametrize("code", [3, 6, 20])
async def test_in_the_end_the_latest_error_is_told(side: Any, cluster: FakeCluster, code: int) -> None:
    # Ours makes one attempt in that time, and has none under way when it is over; aiokafka makes its last one then.
    # Longer than the time-out, also by 20 % of jitter less.
    arguments = {**SHORT, "retry_backoff_ms": 1300}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        await producer.send_and_wait("one", b"x")
        cluster.faults.fail_produce(code, times=None)
        with pytest.raises(error_of(code)):
            await producer.send_and_wait("one", b"x")
        cluster.faults.clear()
        assert (await producer.send_and_wait("one", b"x")).offset == 1


async def test_an_answer_that_does_not_come(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **SHORT) as producer:
        await producer.send_and_wait("one", b"x")
        cluster.faults.drop_answers(times=None, api=ApiKey.PRODUCE)
        with pytest.raises(theirs.RequestTimedOutError):
            await producer.send_and_wait("one", b"x")


async def test_a_partition_without_a_leader(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **SHORT, metadata_max_age_ms=50) as producer:
        await producer.send_and_wait("one", b"x", partition=0)
        cluster.take_leader("one", 0)
        with pytest.raises((theirs.LeaderNotAvailableError, theirs.NotLeaderForPartitionError)):
            await producer.send_and_wait("one", b"x", partition=0)
        cluster.elect_leader("one", 0)
        assert (await producer.send_and_wait("one", b"x", partition=0)).offset == 1


async def test_brokers_that_are_gone(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, **SHORT) as producer:
        await producer.send_and_wait("one", b"x")
        for broker in cluster.ports:
            await cluster.stop_broker(broker)
        # Which of them says more of when it was noticed than of what happened.
        with pytest.raises(theirs.KafkaError) as caught:
            await producer.send_and_wait("one", b"x")
    assert type(caught.value) in (
        theirs.NodeNotReadyError,
        theirs.KafkaConnectionError,
        theirs.RequestTimedOutError,
        theirs.LeaderNotAvailableError,
    )
    assert caught.value.retriable


async def test_a_full_buffer_is_a_time_out(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka's buffer is a batch for each partition, and is full while that one is in flight."""
    arguments = {"request_timeout_ms": 1000, "max_batch_size": 2**20, "max_request_size": 2**20}
    async with started(OurProducer, cluster.bootstrap_servers, **arguments) as producer:
        await producer.send_and_wait("one", b"x")
        cluster.faults.stall(cluster.leader("one", 0))

        async def send_more_than_fits() -> None:
            for _ in range(100):
                await producer.send("one", b"x" * 1_000_000)

        with pytest.raises(theirs.KafkaTimeoutError) as caught:
            await send_more_than_fits()
        assert isinstance(caught.value.__cause__, ours.BufferExhaustedError)
        cluster.faults.resume(cluster.leader("one", 0))


async def test_a_lost_connection_is_a_retry(side: Any, cluster: FakeCluster) -> None:
    async with started(
        side, cluster.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=5, request_timeout_ms=2000
    ) as producer:
        await producer.send_and_wait("one", b"0")
        # Appended, and the answer lost: with idempotence it is not appended again.
        cluster.faults.reset_connections_on(ApiKey.PRODUCE)
        assert (await producer.send_and_wait("one", b"1")).offset == 1
        assert (await producer.send_and_wait("one", b"2")).offset == 2
    assert [record.value for record in cluster.records("one")] == [b"0", b"1", b"2"]


async def test_what_the_death_of_the_sender_means(cluster: FakeCluster) -> None:
    """Ours alone: aiokafka's users wait for ever where its task is cancelled, as some frameworks' tests do."""
    async with started(OurProducer, cluster.bootstrap_servers, linger_ms=3_600_000) as producer:
        waiting = asyncio.ensure_future(producer.send_and_wait("one", b"x"))
        pending = await producer.send("one", b"x")
        (task,) = [each for each in asyncio.all_tasks() if each.get_name().startswith("aioproduce sender")]
        task.cancel()
        for call in (waiting, pending, asyncio.ensure_future(producer.flush())):
            with pytest.raises(
                theirs.KafkaError, match=r"Unexpected error during batch delivery|sender task died"
            ):
                await call
        for call in (producer.send("one", b"x"), producer.send_and_wait("one", b"x")):
            with pytest.raises(theirs.KafkaError, match="Unexpected error during batch delivery"):
                await call


# -- order ---


async def test_one_request_is_in_flight(side: Any, cluster: FakeCluster) -> None:
    """Without idempotence: nothing may overtake what is sent again."""
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", b"0")
        cluster.requests.clear()
        cluster.faults.delay_answers(0.1, times=1, api=ApiKey.PRODUCE)
        counts: list[int] = []
        first = await producer.send("one", b"1")
        first.add_done_callback(lambda _: counts.append(cluster.requests.count(ApiKey.PRODUCE)))
        while not cluster.requests.count(ApiKey.PRODUCE):  # noqa: ASYNC110  # the cluster has no event for it
            await asyncio.sleep(0)
        second = await producer.send("one", b"2")
        assert [(await future).offset for future in (first, second)] == [1, 2]
    assert counts == [1]
    assert cluster.requests.count(ApiKey.PRODUCE) == 2


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("code", [3, 6, 7])
async def test_order_survives_retries(
    side: Any, cluster: FakeCluster, code: int, is_idempotent: bool
) -> None:
    arguments = {"enable_idempotence": is_idempotent, "retry_backoff_ms": 5, "max_batch_size": 200}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        await producer.partitions_for("one")
        cluster.faults.fail_produce(code, times=3)
        futures = [await producer.send("one", b"%04d" % number) for number in range(300)]
        offsets = [(await future).offset for future in futures]
    assert offsets == list(range(300))
    assert [record.value for record in cluster.records("one")] == [b"%04d" % number for number in range(300)]
    assert len(cluster.log("one")) > 10


async def test_order_survives_a_leader_that_moves(side: Any, cluster: FakeCluster) -> None:
    arguments = {"retry_backoff_ms": 5, "max_batch_size": 200}
    async with started(side, cluster.bootstrap_servers, **arguments) as producer:
        futures = []
        for number in range(200):
            futures.append(await producer.send("one", b"%04d" % number))
            if number % 50 == 25:
                cluster.move_leader("one", 0, 1 - cluster.leader("one", 0))
        await asyncio.gather(*futures)
    assert [record.value for record in cluster.records("one")] == [b"%04d" % number for number in range(200)]


# -- the table ---

WHERE = TopicPartition("t", 0)
DELIVERY: dict[str, Any] = {
    "topic_partition": WHERE,
    "possibly_written": True,
    "attempts": 3,
    "retriable": True,
}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ours.NotStartedError("x"), theirs.IllegalStateError),
        (ours.ProducerClosedError("x"), theirs.ProducerClosed),
        (ours.WrongEventLoopError("x"), theirs.IllegalStateError),
        (ours.ForkedProcessError("x"), theirs.IllegalStateError),
        (ours.SenderDiedError("x"), theirs.KafkaError),
        (ours.BufferExhaustedError("x", waited=1, needed=1, available=0), theirs.KafkaTimeoutError),
        (ours.MetadataTimeoutError("x", waited=1, topic="t"), theirs.UnknownTopicOrPartitionError),
        (ours.FlushTimeoutError("x"), theirs.KafkaTimeoutError),
        (ours.BrokerConnectionError("x"), theirs.KafkaConnectionError),
        (ours.NoBrokerAvailableError("x", causes={}), theirs.KafkaConnectionError),
        (ours.ProtocolError("x"), theirs.KafkaProtocolError),
        (
            ours.UnsupportedVersionError("x", api="a", broker_versions=None, client_versions=(0, 1)),
            theirs.IncompatibleBrokerVersion,
        ),
        (ours.DisconnectedError("x", **DELIVERY), theirs.KafkaConnectionError),
        (ours.ForcedCloseError("x", **DELIVERY), theirs.ProducerClosed),
        (ours.DeliveryError("x", **DELIVERY), theirs.KafkaError),
        (ours.DeliveryTimeoutError("x", **DELIVERY), theirs.NodeNotReadyError),
        (ours.DeliveryTimeoutError("x", **DELIVERY, code=7), theirs.RequestTimedOutError),
        (ours.DeliveryTimeoutError("x", **DELIVERY, code=13), theirs.KafkaConnectionError),
        (ours.BrokerRejectedError("x", code=999, name="?", **DELIVERY), theirs.UnknownError),
        (ours.ProducerFatalError("x", code=31, name="?", **DELIVERY), theirs.ClusterAuthorizationFailedError),
        (ours.ClientInstanceIdError("x"), theirs.KafkaError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_what_ours_becomes(error: Exception, kind: type[Exception]) -> None:
    their = translated(error)
    assert type(their) is kind
    assert their.__cause__ is error
    assert "x" in str(their)


def test_what_is_nobodys_stays_what_it_is() -> None:
    error = RuntimeError("mine")
    assert translated(error) is error


def every(kind: type) -> list[type]:
    found = [kind]
    below: list[type] = kind.__subclasses__()
    for each in below:
        found += every(each)
    return found


def test_every_error_of_ours_has_a_place() -> None:
    """What is not in the table itself has a parent there that is more than the root."""
    from aioproduce.compat import aiokafka_errors

    generic = {
        kind.__name__
        for kind in every(ours.ProducerError)
        if kind.__module__ == "aioproduce.errors"
        and next(each for each in kind.__mro__ if each in aiokafka_errors._TABLE) is ours.ProducerError
    }
    # What no call of the drop-in raises.
    assert {"ProducerError", "PartialSendError", "ClientInstanceIdError", "ListenError"} <= generic
    assert not {name for name in generic if name.startswith(("Broker", "Delivery", "Record", "Invalid"))} - {
        "InvalidDeadlineError"
    }
