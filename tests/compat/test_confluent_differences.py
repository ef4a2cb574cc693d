"""Where ours differs from confluent-kafka's AIOProducer on purpose: both are tried, and each does what is said.

Every difference of ``docs/how-to/migrate-from-confluent.md`` that can be tried has its test here. The tests also
check that 2.16.1 has each of its defects, so that a later version that mends one shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.aio import AIOProducer as ConfluentProducer

from aioproduce.compat.confluent import AIOProducer as OurProducer
from aioproduce.compat.confluent_errors import ConfluentNotSupportedError
from aioproduce.testing import FakeCluster
from tests.compat.confluent_sides import SIDES, code_of, mock_cluster, nobody_there, outcome, produced
from tests.mock_cluster import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as mock:
        mock.create_topic("t", 6)
        yield mock


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Any:
    return SIDES[request.param]


def conf(cluster: MockCluster, **options: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **options}


@pytest.fixture
def quiet_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Theirs logs what its close() raises, and asyncio the futures that nobody asked."""
    caplog.set_level(logging.CRITICAL)


# -- what theirs has no way to send ---


async def test_headers_and_timestamps_are_sent() -> None:
    async with FakeCluster(topics={"t": 1}) as fake:
        conf = {"bootstrap.servers": fake.bootstrap_servers}
        async with OurProducer(conf) as producer:
            first = await producer.produce(
                "t", b"v", headers=[("a", b"1"), ("a", "zwei"), ("b", None)], timestamp=1_700_000_000_000
            )
            second = await producer.produce("t", b"w", headers={"k": "v"})
            assert await producer.flush() == 0
        records = fake.records("t")
    assert records[0].timestamp == 1_700_000_000_000
    assert list(records[0].headers) == [("a", b"1"), ("a", b"zwei"), ("b", None)]
    assert list(records[1].headers) == [("k", b"v")]
    message = await first
    assert message.headers() == [("a", b"1"), ("a", b"zwei"), ("b", None)]
    assert message.timestamp() == (1, 1_700_000_000_000)
    assert (await second).headers() == [("k", b"v")]


async def test_theirs_has_no_headers(cluster: MockCluster) -> None:
    async with ConfluentProducer(conf(cluster)) as producer:
        with pytest.raises(NotImplementedError, match="Headers are not supported"):
            await producer.produce("t", b"v", headers=[("a", b"1")])


# -- one message that is wrong ---


@pytest.mark.parametrize(
    "wrong",
    [{"value": 5}, {"key": 5}, {"partition": "0"}, {"topic": 5}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_wrong_type_is_refused_at_once_and_harms_no_other(
    cluster: MockCluster, wrong: dict[str, Any]
) -> None:
    async with OurProducer(conf(cluster)) as producer:
        before = await producer.produce("t", b"before", partition=0)
        with pytest.raises(TypeError):
            await producer.produce(**{"topic": "t", "value": b"v"} | wrong)
        after = await producer.produce("t", b"after", partition=0)
        assert await producer.flush() == 0
    assert [(await future).offset() for future in (before, after)] == [0, 1]


@pytest.mark.usefixtures("quiet_logs")
async def test_theirs_stays_poisoned_by_a_wrong_type(cluster: MockCluster) -> None:
    producer = ConfluentProducer(conf(cluster))
    wrong = await producer.produce("t", 5)
    for _ in range(2):
        with pytest.raises(TypeError, match="must be bytes or str"):
            await producer.flush()
        assert len(producer) >= 1
    with pytest.raises(TypeError, match="must be bytes or str"):
        await producer.close()
    with pytest.raises(TypeError, match="must be bytes or str"):
        await wrong
    producer.executor.shutdown()


@pytest.mark.usefixtures("quiet_logs")
async def test_theirs_is_poisoned_by_a_timestamp(cluster: MockCluster) -> None:
    producer = ConfluentProducer(conf(cluster))
    future = await producer.produce("t", b"v", timestamp=1_700_000_000_000)
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="timestamps are not currently supported"):
            await producer.flush()
    with pytest.raises(NotImplementedError):
        await future
    producer.executor.shutdown()


# -- arguments that theirs drops ---


async def test_a_partition_by_position(cluster: MockCluster) -> None:
    async with OurProducer(conf(cluster)) as ours, ConfluentProducer(conf(cluster)) as theirs:
        by_key = (await produced(theirs, "t", b"v", b"key")).partition()
        wanted = (by_key + 1) % 6
        assert (await produced(ours, "t", b"v", b"key", wanted)).partition() == wanted
        # Theirs takes it, and puts the message elsewhere.
        assert (await produced(theirs, "t", b"v", b"key", wanted)).partition() == by_key


@pytest.mark.parametrize("name", ["on_delivery", "callback"])
async def test_the_delivery_callback(cluster: MockCluster, name: str) -> None:
    told: dict[str, list[Any]] = {kind: [] for kind in SIDES}
    for kind, make in SIDES.items():
        heard = told[kind]
        async with make(conf(cluster)) as producer:
            good = await producer.produce("t", b"v", **{name: lambda *told, heard=heard: heard.append(told)})
            bad = await producer.produce(
                "t", b"v", b"k", partition=9, **{name: lambda *told, heard=heard: heard.append(told)}
            )
            assert code_of(await outcome(producer, bad)) == KafkaError._UNKNOWN_PARTITION
            message = await good
    assert told["confluent_kafka"] == []
    (bad_error, bad_message), (good_error, good_message) = sorted(
        told["aioproduce"], key=lambda told: told[0] is None
    )
    assert good_error is None
    assert good_message.offset() == message.offset()
    assert bad_error.code() == bad_message.error().code() == KafkaError._UNKNOWN_PARTITION
    assert (bad_message.topic(), bad_message.key(), bad_message.offset()) == ("t", b"k", None)


async def test_the_latency_is_told_to_who_waits_or_is_called_back(cluster: MockCluster) -> None:
    told: list[float | None] = []
    async with OurProducer(conf(cluster)) as ours, ConfluentProducer(conf(cluster)) as theirs:
        late = await ours.produce("t", b"v")
        await ours.produce("t", b"v", on_delivery=lambda _, message: told.append(message.latency()))
        await ours.flush()
        assert (await late).latency() is None  # nobody looked at a clock when it came
        assert (told[0] or 0) > 0
        assert (await produced(theirs, "t", b"v")).latency() > 0


async def test_the_delivery_callback_of_the_configuration(cluster: MockCluster) -> None:
    told: list[Any] = []
    for only_errors in (False, True):
        options = {"on_delivery": lambda *it: told.append(it), "delivery.report.only.error": only_errors}
        async with OurProducer(conf(cluster, **options)) as producer:
            await produced(producer, "t", b"v")
            await produced(producer, "t", b"v", partition=9)
    assert [error is None for error, _ in told] == [True, False, False]


async def test_a_callback_that_raises_harms_nothing(cluster: MockCluster) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def complain(error: object, message: object) -> None:
        raise LookupError("no")

    async with OurProducer(conf(cluster)) as producer:
        assert (await produced(producer, "t", b"v", on_delivery=complain)).offset() == 0
        assert len(producer) == 0
    (complaint,) = complaints
    assert isinstance(complaint["exception"], LookupError)


async def test_callbacks_that_cannot_be_called(cluster: MockCluster) -> None:
    async def on_delivery(error: object, message: object) -> None:
        raise AssertionError("never awaited")

    async with OurProducer(conf(cluster)) as producer:
        for callback, complaint in ((on_delivery, "not awaited"), (5, "must be callable")):
            with pytest.raises(TypeError, match=complaint):
                await producer.produce("t", b"v", on_delivery=callback)  # type: ignore[arg-type]
        assert len(producer) == 0


async def test_an_argument_that_there_is_not(cluster: MockCluster) -> None:
    async with ConfluentProducer(conf(cluster)) as theirs:
        await produced(theirs, "t", b"v", parttion=3)
    async with OurProducer(conf(cluster)) as ours:
        with pytest.raises(TypeError, match="parttion"):
            await ours.produce("t", b"v", parttion=3)  # type: ignore[call-arg]


# -- when messages go, and how many ---


async def test_messages_need_no_flush_and_no_poll(cluster: MockCluster) -> None:
    theirs = ConfluentProducer(conf(cluster), buffer_timeout=0)
    async with OurProducer(conf(cluster), buffer_timeout=0) as ours:
        never = await theirs.produce("t", b"v")
        message = await (await ours.produce("t", b"v"))
    assert message.error() is None
    assert (message.latency() or 0) > 0
    assert not never.done()
    assert len(theirs) == 1
    await theirs.close()


async def test_the_queue_is_bounded_by_waiting() -> None:
    async with FakeCluster(topics={"t": 2}) as fake:
        options = {"bootstrap.servers": fake.bootstrap_servers, "queue.buffering.max.messages": 10}
        async with OurProducer(options) as ours:
            most = 0
            futures = []
            for number in range(500):
                futures.append(await ours.produce("t", b"%d" % number, partition=0))
                most = max(most, len(ours))
            await ours.flush()
        assert most <= 10
        assert [(await future).offset() for future in futures] == list(range(500))


async def test_theirs_takes_more_than_its_queue_and_fails_them(cluster: MockCluster) -> None:
    options = conf(cluster, **{"queue.buffering.max.messages": 10})
    async with ConfluentProducer(options, batch_size=10_000, buffer_timeout=0) as theirs:
        futures = [await theirs.produce("t", b"v") for _ in range(500)]
        assert len(theirs) == 500
        await theirs.flush()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    failed = [error.args[0].code() for error in outcomes if isinstance(error, KafkaException)]
    assert len(failed) >= 400
    assert set(failed) == {KafkaError._QUEUE_FULL}


async def test_a_message_times_out_by_itself() -> None:
    with nobody_there() as address:
        options = {"bootstrap.servers": address, "message.timeout.ms": 100}
        theirs = ConfluentProducer(dict(options), buffer_timeout=0)
        async with OurProducer(options, buffer_timeout=0) as ours:
            never = await theirs.produce("t", b"v")
            with pytest.raises(KafkaException) as failed:
                await (await ours.produce("t", b"v"))
        assert failed.value.args[0].code() == KafkaError._MSG_TIMED_OUT
        assert not never.done()  # its time has not begun
        await theirs.close()


# -- the end ---


@pytest.mark.usefixtures("quiet_logs")
async def test_closing_twice(cluster: MockCluster) -> None:
    ours, theirs = OurProducer(conf(cluster)), ConfluentProducer(conf(cluster))
    for producer in (ours, theirs):
        await producer.close()
    await ours.close()
    with pytest.raises(RuntimeError, match="cannot schedule new futures"):
        await theirs.close()


async def test_producing_after_the_end(cluster: MockCluster) -> None:
    ours, theirs = OurProducer(conf(cluster)), ConfluentProducer(conf(cluster))
    for producer in (ours, theirs):
        await producer.close()
    with pytest.raises(KafkaException, match="is closed") as refused:
        await ours.produce("t", b"v")
    assert refused.value.args[0].code() == KafkaError._STATE
    future = await theirs.produce("t", b"lost")
    assert not future.done()
    assert len(theirs) == 0


# -- what belongs to the caller ---


async def test_the_callers_configuration_is_not_changed(cluster: MockCluster) -> None:
    async def on_error(error: KafkaError) -> None:
        raise AssertionError(error)

    for make, is_kept in ((OurProducer, True), (ConfluentProducer, False)):
        given = conf(cluster, error_cb=on_error)
        async with make(given):
            pass
        assert (given["error_cb"] is on_error) is is_kept


async def test_the_callers_executor_is_not_shut_down(cluster: MockCluster) -> None:
    with ThreadPoolExecutor(1) as executor:
        async with OurProducer(conf(cluster), executor=executor):
            pass
        assert executor.submit(int, "7").result() == 7
        async with ConfluentProducer(conf(cluster), executor=executor):
            pass
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(int, "7")


# -- purge ---


async def test_what_is_purged_fails_and_is_not_cancelled() -> None:
    with nobody_there() as address:
        options = {"bootstrap.servers": address}
        ours, theirs = OurProducer(options, buffer_timeout=0.01), ConfluentProducer(dict(options))
        futures = [await producer.produce("t", b"v") for producer in (ours, theirs)]
        for producer in (ours, theirs):
            await producer.purge()
        assert code_of(await outcome(ours, futures[0])) == KafkaError._PURGE_QUEUE
        assert futures[1].cancelled()  # a task that awaits it looks cancelled itself
        await ours.close()
        await theirs.close()


async def test_what_is_in_flight_is_purged() -> None:
    async with (
        FakeCluster(topics={"t": 1}) as fake,
        OurProducer({"bootstrap.servers": fake.bootstrap_servers}) as producer,
    ):
        await produced(producer, "t", b"first")
        fake.faults.stall(fake.leader("t", 0))
        future = await producer.produce("t", b"second")
        while producer.metrics().value("requests-in-flight") == 0:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0)
        await producer.purge()
        with pytest.raises(KafkaException) as purged:
            await future
        assert purged.value.args[0].code() == KafkaError._PURGE_INFLIGHT
        assert len(producer) == 0


async def test_half_a_purge_there_is_not(cluster: MockCluster) -> None:
    async with OurProducer(conf(cluster)) as producer:
        await producer.purge(in_queue=False, in_flight=False)
        with pytest.raises(ConfluentNotSupportedError, match="all messages or none"):
            await producer.purge(in_flight=False)


# -- what there is not ---


async def test_what_is_missing_says_so(cluster: MockCluster) -> None:
    async with OurProducer(conf(cluster)) as producer:
        with pytest.raises(ConfluentNotSupportedError, match="AdminClient") as raised:
            await producer.list_topics()
    assert isinstance(raised.value, NotImplementedError | KafkaException)
    assert raised.value.args[0].code() == KafkaError._NOT_IMPLEMENTED
    assert raised.value.feature


# -- threads ---


async def test_futures_are_settled_on_the_loop(cluster: MockCluster) -> None:
    asyncio.get_running_loop().set_debug(True)
    ours, theirs = OurProducer(conf(cluster)), ConfluentProducer(conf(cluster))
    for producer in (ours, theirs):
        future = await producer.produce("t", b"v")
        waits = asyncio.ensure_future(asyncio.wait([future]))
        await asyncio.sleep(0)
        if producer is ours:
            assert await producer.flush() == 0
        else:
            # From a thread, which without debug does not even wake the loop: who waits there hears of it by chance.
            with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
                await producer.flush()
            assert future.done()
            assert not waits.done()
            waits.cancel()
        await asyncio.wait([waits])
        await producer.close()


# -- error_cb ---


async def test_error_cb_is_told_once_that_no_broker_is_there() -> None:
    told: list[KafkaError] = []
    heard = asyncio.Event()

    async def error_cb(error: KafkaError) -> None:
        told.append(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            heard.set()

    with nobody_there() as address:
        async with OurProducer({"bootstrap.servers": address, "error_cb": error_cb}):
            await heard.wait()
    assert [error.code() for error in told] == [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]
    assert address in told[0].str()


async def test_error_cb_may_be_a_function_and_may_raise() -> None:
    complaints: list[dict[str, Any]] = []
    heard = asyncio.Event()

    def complain(_: object, context: dict[str, Any]) -> None:
        complaints.append(context)
        if len(complaints) == 2:
            heard.set()

    asyncio.get_running_loop().set_exception_handler(complain)

    def error_cb(error: KafkaError) -> None:
        raise LookupError(error)

    with nobody_there() as address:
        async with OurProducer({"bootstrap.servers": address, "error_cb": error_cb}):
            await heard.wait()
    assert all(isinstance(complaint["exception"], LookupError) for complaint in complaints)


async def test_error_cb_is_told_of_the_end() -> None:
    told: asyncio.Queue[KafkaError] = asyncio.Queue()
    async with FakeCluster(topics={"t": 1}) as fake:
        options = {
            "bootstrap.servers": fake.bootstrap_servers,
            "enable.idempotence": True,
            "error_cb": told.put_nowait,
        }
        async with OurProducer(options) as producer:
            await produced(producer, "t", b"v")
            fake.faults.fail_produce(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            answer = await produced(producer, "t", b"v")
            assert code_of(answer) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
            error = await told.get()
    assert answer.fatal()
    assert (error.code(), error.fatal()) == (KafkaError._FATAL, True)
