"""Transactions as confluent-kafka's users write them.

On both sides against librdkafka's mock cluster, which has no readers of committed messages; ours against
FakeCluster, which has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from aioproduce import errors as ours
from aioproduce.compat.confluent import AIOProducer as OurProducer
from aioproduce.compat.confluent_errors import ConfluentNotSupportedError, transaction_exception
from aioproduce.compat.confluent_waiting import WaitingMessage
from aioproduce.compat.confluent_way import Way
from aioproduce.records import RecordMetadata
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.compat.confluent_sides import SIDES, code_of, mock_cluster, nobody_there, outcome, produced
from tests.mock_cluster import Api, MockCluster

ID: dict[str, Any] = {"transactional.id": "orders-1", "retry.backoff.ms": 5}
END = ("commit_transaction", "abort_transaction")


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic("t", 2)
        yield cluster


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    """Two brokers; no topic is created by asking for it."""
    async with FakeCluster(2, topics={"one": 1}, auto_create_topics=False) as cluster:
        yield cluster
    assert cluster.connections == []


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Any:
    return SIDES[request.param]


@pytest.fixture(scope="module")
def group() -> Any:
    """A consumer group's metadata, as confluent-kafka has it."""
    consumer = Consumer({"bootstrap.servers": "", "group.id": "group-1"})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def conf(cluster: Any, **options: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **ID, **options}


async def refused(awaitable: Any) -> KafkaError:
    """The KafkaError of a call that raises one."""
    with pytest.raises(KafkaException) as raised:
        await awaitable
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def said(error: KafkaError) -> tuple[str, bool, bool, bool]:
    """What tells a program what to do."""
    return error.name(), error.retriable(), error.txn_requires_abort(), error.fatal()


async def committed(cluster: FakeCluster, topic: str = "one") -> list[bytes | None]:
    """What readers of committed messages see, once nothing is open any more."""
    while cluster.open_transactions:  # noqa: ASYNC110  # the cluster has no event for it
        await asyncio.sleep(0.005)
    return [record.value for record in cluster.records(topic, isolation="read_committed")]


# -- both sides ---


async def test_calls_in_their_order(side: Any, mock: MockCluster, group: Any) -> None:
    async with side(conf(mock)) as producer:
        assert await producer.init_transactions(30) is None
        for end in END:
            assert await producer.begin_transaction() is None
            future = await producer.produce("t", b"v")
            await producer.flush()
            positions = [TopicPartition("t", 0, 5), TopicPartition("t", 1)]
            assert await producer.send_offsets_to_transaction(positions, group, 30) is None
            assert await producer.send_offsets_to_transaction([], group) is None
            assert await getattr(producer, end)(30) is None
            assert isinstance(await future, Message)
        for end in END:  # of nothing
            await producer.begin_transaction()
            assert await getattr(producer, end)() is None


async def test_calls_out_of_order(side: Any, mock: MockCluster, group: Any) -> None:
    state = ("_STATE", False, False, False)
    async with side(conf(mock)) as producer:

        async def refuses(*calls: str) -> None:
            for call in calls:
                args = ([TopicPartition("t", 0, 1)], group) if call.startswith("send") else ()
                assert said(await refused(getattr(producer, call)(*args))) == state, call

        needs_one = ("send_offsets_to_transaction", *END)
        await refuses("begin_transaction", *needs_one)
        assert code_of(await produced(producer, "t", b"too early")) == KafkaError._STATE
        await producer.init_transactions()
        await refuses("init_transactions", *needs_one)
        assert code_of(await produced(producer, "t", b"outside")) == KafkaError._STATE
        await producer.begin_transaction()
        await refuses("begin_transaction", "init_transactions")
        await producer.produce("t", b"v")
        await producer.commit_transaction()
        await refuses("init_transactions", *needs_one)
        assert code_of(await produced(producer, "t", b"outside")) == KafkaError._STATE


async def test_without_an_id(side: Any, mock: MockCluster, group: Any) -> None:
    async with side({"bootstrap.servers": mock.bootstrap_servers}) as producer:
        for call in ("init_transactions", "begin_transaction", *END):
            assert said(await refused(getattr(producer, call)())) == ("_NOT_CONFIGURED", False, False, False)
        error = await refused(producer.send_offsets_to_transaction([], group))
        assert code_of(error) == KafkaError._NOT_CONFIGURED


@pytest.mark.parametrize(("positions", "has_group"), [({}, True), ([("t", 0)], True), ([], False)])
async def test_offsets_that_are_none(
    side: Any, mock: MockCluster, group: Any, positions: Any, has_group: bool
) -> None:
    async with side(conf(mock)) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(TypeError):
            await producer.send_offsets_to_transaction(positions, group if has_group else None)


async def test_a_message_that_failed(side: Any, mock: MockCluster, group: Any) -> None:
    abort = ("INVALID_RECORD", False, True, False)
    async with side(conf(mock)) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        mock.push_errors(Api.PRODUCE, KafkaError.INVALID_RECORD)
        assert code_of(await produced(producer, "t", b"bad")) == KafkaError.INVALID_RECORD
        assert code_of(await produced(producer, "t", b"after it")) == KafkaError._STATE
        positions = [TopicPartition("t", 0, 1)]
        assert said(await refused(producer.send_offsets_to_transaction(positions, group))) == abort
        assert said(await refused(producer.commit_transaction())) == abort
        assert said(await refused(producer.commit_transaction())) == abort
        await producer.abort_transaction()
        await producer.begin_transaction()


async def test_a_group_that_is_denied(side: Any, mock: MockCluster, group: Any) -> None:
    abort = ("GROUP_AUTHORIZATION_FAILED", False, True, False)
    async with side(conf(mock)) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        mock.push_errors(ApiKey.TXN_OFFSET_COMMIT, KafkaError.GROUP_AUTHORIZATION_FAILED)
        positions = [TopicPartition("t", 0, 1)]
        assert said(await refused(producer.send_offsets_to_transaction(positions, group))) == abort
        assert said(await refused(producer.commit_transaction())) == abort
        await producer.abort_transaction()
        await producer.begin_transaction()


@pytest.mark.parametrize(
    "code", [KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.INVALID_TRANSACTION_TIMEOUT]
)
async def test_an_id_that_is_denied(
    side: Any, mock: MockCluster, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")  # theirs logs what its close() raises
    producer = side(conf(mock))
    mock.push_errors(Api.INIT_PRODUCER_ID, code)
    error = await refused(producer.init_transactions(30))
    assert (error.code(), *said(error)[1:]) == (code, False, False, True)
    if side is OurProducer:
        await producer.close()
    else:
        assert (await refused(producer.close())).fatal()


async def test_no_answer_in_time(side: Any) -> None:
    with nobody_there() as nobody:
        async with side({"bootstrap.servers": nobody, **ID}) as producer:
            for _ in range(2):
                error = await refused(producer.init_transactions(0.02))
                assert said(error) == ("_TIMED_OUT", True, False, False)
            assert said(await refused(producer.begin_transaction())) == ("_CONFLICT", True, False, False)


@pytest.mark.parametrize(
    ("options", "is_taken"),
    [
        ({"acks": 1}, False),
        ({"enable.idempotence": False}, False),
        ({"max.in.flight": 6}, False),
        ({"retries": 0}, False),
        ({"transaction.timeout.ms": 999}, False),
        ({"message.timeout.ms": 60_001}, False),
        ({"message.timeout.ms": 60_000}, True),
        ({"message.timeout.ms": 0}, True),
        ({"transaction.timeout.ms": 1000}, True),
        ({"transactional.id": "", "enable.idempotence": False}, True),
    ],
    ids=lambda value: (
        ",".join(f"{name}={it}" for name, it in value.items()) if value.__class__ is dict else ""
    ),
)
async def test_options(side: Any, mock: MockCluster, options: dict[str, Any], is_taken: bool) -> None:
    if is_taken:
        async with side(conf(mock) | options):
            return
    with pytest.raises(KafkaException) as raised:
        side(conf(mock) | options)
    assert code_of(raised.value.args[0]) == KafkaError._INVALID_ARG


# -- what a reader of ours sees ---


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
async def producer(request: pytest.FixtureRequest, fake: FakeCluster) -> AsyncIterator[OurProducer]:
    """One that is initialised, on a cluster of either `transaction.version`."""
    fake.set_transaction_version(request.param)
    async with OurProducer(conf(fake, **{"transaction.timeout.ms": 4000})) as made:
        await made.init_transactions()
        yield made


async def test_committed_and_aborted(fake: FakeCluster, producer: OurProducer) -> None:
    told: list[Any] = []
    for number in range(3):
        await producer.begin_transaction()
        for part in range(2):
            value = b"%d.%d" % (number, part)
            await producer.produce("one", value, on_delivery=lambda error, _: told.append(error))
        await producer.commit_transaction()
        assert told == [None] * 2 * (number + 1)
        await producer.begin_transaction()
        assert isinstance(await produced(producer, "one", b"no"), Message)
        await producer.abort_transaction()
    assert await committed(fake) == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0", b"2.1"]


async def test_any_task_produces(fake: FakeCluster, producer: OurProducer) -> None:
    await asyncio.ensure_future(producer.begin_transaction())
    await asyncio.gather(*(asyncio.ensure_future(producer.produce("one", b"yes")) for _ in range(3)))
    await asyncio.ensure_future(producer.commit_transaction())
    assert await committed(fake) == [b"yes"] * 3


async def test_offsets_come_with_the_transaction(
    fake: FakeCluster, producer: OurProducer, group: Any
) -> None:
    await producer.begin_transaction()
    positions = [TopicPartition("one", 0, 5, "so far"), TopicPartition("one", 7)]
    await producer.send_offsets_to_transaction(positions, group)
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction([TopicPartition("one", 0, 9)], group)
    await producer.abort_transaction()
    await committed(fake)
    assert fake.committed_offset("group-1", "one", 0) == 5
    assert fake.committed_offset("group-1", "one", 7) is None


@pytest.mark.parametrize("partition", [77, -2])
async def test_a_message_that_never_got_to_the_producer(
    fake: FakeCluster, producer: OurProducer, partition: int
) -> None:
    """A difference: theirs commits the others."""
    await producer.begin_transaction()
    await produced(producer, "one", b"no")
    future = await producer.produce("one", b"bad", partition=partition)
    error = await refused(producer.commit_transaction())
    assert said(error) == ("_UNKNOWN_PARTITION", False, True, False)
    assert code_of(await outcome(producer, future)) == KafkaError._UNKNOWN_PARTITION
    await producer.abort_transaction()
    await producer.produce("one", b"outside", partition=partition)
    await producer.begin_transaction()
    await producer.produce("one", b"yes")
    await producer.commit_transaction()
    assert await committed(fake) == [b"yes"]


async def test_a_message_whose_topic_is_not_known_yet(fake: FakeCluster) -> None:
    options = conf(fake, **{"topic.metadata.propagation.max.ms": 5, "message.timeout.ms": 30_000})
    async with OurProducer(options, buffer_timeout=0.01) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        future = await producer.produce("two", b"no")
        error = await refused(producer.commit_transaction())
        assert said(error) == ("_UNKNOWN_TOPIC", False, True, False)
        await refused(future)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.produce("one", b"yes")
        await producer.commit_transaction()
    assert await committed(fake) == [b"yes"]


async def test_a_commit_waits_for_a_topic_and_an_abort_does_not(fake: FakeCluster) -> None:
    async with OurProducer(conf(fake), buffer_timeout=0) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        dropped = await producer.produce("two", b"no")
        assert (await refused(producer.commit_transaction(0.01))).code() == KafkaError._TIMED_OUT
        assert len(producer) == 1
        await producer.abort_transaction()
        assert (await refused(dropped)).code() == KafkaError._PURGE_QUEUE
        await producer.begin_transaction()
        future = await producer.produce("two", b"yes")
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0)
        fake.create_topic("two", 1)
        await committing
        assert (await future).offset() == 0
    while fake.open_transactions:  # noqa: ASYNC110  # the cluster has no event for it
        await asyncio.sleep(0.005)
    assert [record.value for record in fake.records("two", isolation="read_committed")] == [b"yes"]


async def test_a_commit_waits_for_calls_that_have_begun(fake: FakeCluster, producer: OurProducer) -> None:
    fake.create_topic("two", 1)
    await producer.begin_transaction()
    await produced(producer, "one", b"1")
    call = asyncio.create_task(producer.produce("two", b"2"))  # its topic is asked for
    await asyncio.sleep(0)
    assert not call.done()
    await producer.commit_transaction()
    assert (await (await call)).offset() == 0
    assert await committed(fake, "two") == [b"2"]


async def test_an_abort_waits_for_no_call_of_produce(fake: FakeCluster) -> None:
    async with OurProducer(conf(fake), buffer_timeout=3600) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        call = asyncio.create_task(producer.produce("two", b"no"))  # its topic is asked for
        await asyncio.sleep(0)
        await producer.abort_transaction()
        assert not call.done()
        fake.create_topic("two", 1)
        assert code_of(await outcome(producer, await call)) == KafkaError._STATE
    assert fake.records("two") == []


@pytest.mark.parametrize("is_in_transaction", [True, False])
async def test_a_message_of_a_transaction_has_the_producers_time_alone(
    fake: FakeCluster, is_in_transaction: bool
) -> None:
    """A message that is reported as timed out here could be committed all the same."""
    async with OurProducer(conf(fake)) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        way = producer._way if is_in_transaction else Way(producer._producer.send)
        message = WaitingMessage((b"v", None, None, 0, 0.0), None, way, None, timeout=0)
        message.is_passed_on("one")
        metadata = RecordMetadata("one", 0, 7, 0, -1, 1)
        asyncio.get_running_loop().call_later(0.01, message.settled, metadata, None)
        if is_in_transaction:
            assert await message.outcome is metadata
        else:
            assert (await refused(message.outcome)).code() == KafkaError._MSG_TIMED_OUT
        await producer.abort_transaction()


async def test_what_was_not_sent_fails_with_the_abort(fake: FakeCluster) -> None:
    """A difference: theirs sends it first."""
    async with OurProducer(conf(fake, **{"linger.ms": 30_000})) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        future = await producer.produce("one", b"no")
        await producer.abort_transaction()
        assert future.done()
        assert code_of(future.exception().args[0]) == KafkaError._PURGE_QUEUE  # type: ignore[union-attr]
    assert fake.records("one") == []


async def test_another_producer_takes_over(fake: FakeCluster, producer: OurProducer) -> None:
    heard: asyncio.Queue[KafkaError] = asyncio.Queue()
    await producer.begin_transaction()
    await produced(producer, "one", b"no")
    async with OurProducer(conf(fake, error_cb=heard.put_nowait)) as second:
        await second.init_transactions()
        fenced = ("_FENCED", False, False, True)
        assert said(await refused(producer.commit_transaction())) == fenced
        assert said(await refused(producer.abort_transaction())) == fenced
        assert said(await refused(producer.begin_transaction())) == fenced
        await second.begin_transaction()
        await second.produce("one", b"yes")
        await second.commit_transaction()
        await second.begin_transaction()
        await produced(second, "one", b"no")
        async with OurProducer(conf(fake)) as third:
            await third.init_transactions()
            assert said(await refused(second.commit_transaction())) == fenced
            assert (await heard.get()).fatal()
    assert await committed(fake) == [b"yes"]


async def test_a_commit_without_an_answer(fake: FakeCluster, producer: OurProducer) -> None:
    await producer.begin_transaction()
    await produced(producer, "one", b"yes")
    held = fake.faults.drop_answers(api=ApiKey.END_TXN, times=None)
    for timeout in (0, 0.02):
        error = await refused(producer.commit_transaction(timeout))
        assert said(error) == ("_TIMED_OUT", True, False, False)
    for call in (producer.begin_transaction, producer.abort_transaction, producer.init_transactions):
        assert said(await refused(call())) == ("_CONFLICT", True, False, False)
    held.cancel()
    fake.faults.reset_connections()
    await producer.commit_transaction()
    assert await committed(fake) == [b"yes"]


async def test_a_cancelled_commit_is_told_by_the_next_call(fake: FakeCluster, producer: OurProducer) -> None:
    fake.faults.delay_answers(0.02, api=ApiKey.END_TXN)
    await producer.begin_transaction()
    await producer.produce("one", b"yes")
    committing = asyncio.ensure_future(producer.commit_transaction())
    await asyncio.sleep(0)
    committing.cancel()
    await asyncio.wait([committing])
    assert committing.cancelled()
    assert code_of(await refused(producer.abort_transaction())) == KafkaError._CONFLICT
    assert code_of(await produced(producer, "one", b"no")) == KafkaError._STATE
    await producer.commit_transaction()
    assert await committed(fake) == [b"yes"]


async def test_a_commit_that_the_coordinator_has_aborted_before(fake: FakeCluster) -> None:
    """A program aborts then, as it is told; that finds nothing to do, and is no error."""
    async with OurProducer(conf(fake)) as producer:
        await producer.init_transactions()
        for _ in range(2):
            await producer.begin_transaction()
            await produced(producer, "one", b"no")
            fake.faults.fail(ApiKey.END_TXN, KafkaError.PRODUCER_FENCED)
            error = await refused(producer.commit_transaction())
            assert said(error) == ("TRANSACTION_ABORTABLE", False, True, False)
            await producer.abort_transaction()
            assert said(await refused(producer.abort_transaction())) == ("_STATE", False, False, False)
        await producer.begin_transaction()
        await producer.produce("one", b"yes")
        await producer.commit_transaction()
    assert await committed(fake) == [b"yes"]


@pytest.mark.extended("waits a second, the least transaction.timeout.ms that librdkafka accepts")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("end", END)
async def test_what_comes_after_the_coordinators_time_out(fake: FakeCluster, version: int, end: str) -> None:
    """A difference: with version 2 ours goes on, as after any transaction that has to be aborted."""
    fake.set_transaction_version(version)
    async with OurProducer(conf(fake, **{"transaction.timeout.ms": 1000})) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await produced(producer, "one", b"no")
        assert await committed(fake) == []
        if end == "commit_transaction":
            error = await refused(producer.commit_transaction())
            assert said(error) == ("TRANSACTION_ABORTABLE", False, True, False)
        if version == 1:
            assert said(await refused(producer.abort_transaction())) == ("_FENCED", False, False, True)
            await producer.init_transactions()
        else:
            await producer.abort_transaction()
            assert code_of(await refused(producer.abort_transaction())) == KafkaError._STATE
        await producer.begin_transaction()
        await producer.produce("one", b"yes")
        await producer.commit_transaction()
    assert await committed(fake) == [b"yes"]


async def test_a_purge_there_is_not(producer: OurProducer) -> None:
    with pytest.raises(ConfluentNotSupportedError, match="abort_transaction"):
        await producer.purge()


async def test_a_close_aborts_what_is_open(fake: FakeCluster, producer: OurProducer) -> None:
    await producer.begin_transaction()
    await produced(producer, "one", b"no")
    await producer.close()
    assert await committed(fake) == []
    assert len(fake.records("one")) == 1
    assert code_of(await refused(producer.commit_transaction())) == KafkaError._STATE


_ABORTED = ours.TransactionOutcome.ABORTED


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ours.ProducerFencedError("x", recover="new producer"), ("_FENCED", False, False, True)),
        (
            ours.TransactionTimedOutError("x", recover="abort"),
            ("TRANSACTION_ABORTABLE", False, True, False),
        ),
        (
            ours.TransactionTimedOutError("x", recover="begin", outcome=_ABORTED),
            ("TRANSACTION_ABORTABLE", False, True, False),
        ),
        (
            ours.TransactionTimedOutError("x", recover="init", outcome=_ABORTED),
            ("_FENCED", False, False, True),
        ),
        (ours.TransactionUnconfirmedError("x", recover="call again"), ("_TIMED_OUT", True, False, False)),
        (ours.TransactionStateError("x", recover="abort"), ("_STATE", False, False, False)),
        (ours.TransactionStateError("x", recover="init"), ("_STATE", False, False, False)),
        (ours.TransactionError("x", recover="new producer"), ("_STATE", False, False, True)),
    ],
    ids=lambda value: (
        f"{type(value).__name__}, {value.recover}" if isinstance(value, ours.TransactionError) else ""
    ),
)
def test_what_ours_becomes(error: ours.TransactionError, expected: tuple[str, bool, bool, bool]) -> None:
    exception = transaction_exception(error)
    assert said(exception.args[0]) == expected
    assert exception.__cause__ is error
