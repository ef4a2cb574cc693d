"""Messages of topics that no broker has told of: taken at once, in their order, with an outcome in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from aioproduce.compat.confluent import AIOProducer
from aioproduce.testing import FakeCluster
from tests.compat.confluent_sides import code_of, nobody_there, outcome


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=1, topics={"t": 3}, auto_create_topics=False) as cluster:
        yield cluster


def conf(cluster: FakeCluster, **options: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 1, **options}


async def test_taken_without_a_broker_and_sent_when_it_comes(fake: FakeCluster) -> None:
    await fake.stop_broker(0)
    options = conf(fake, **{"reconnect.backoff.max.ms": 10})
    async with AIOProducer(options, buffer_timeout=0) as producer:
        futures = [await producer.produce("t", b"%d" % number, partition=0) for number in range(50)]
        assert len(producer) == 50
        assert not any(future.done() for future in futures)
        await fake.start_broker(0)
        futures += [await producer.produce("t", b"%d" % number, partition=0) for number in range(50, 100)]
        messages = await asyncio.gather(*futures)
    assert [message.offset() for message in messages] == list(range(100))
    assert [record.value for record in fake.records("t", 0)] == [b"%d" % number for number in range(100)]


async def test_tasks_that_produce_at_once_keep_their_order(fake: FakeCluster) -> None:
    async with AIOProducer(conf(fake)) as producer:

        async def send(number: int) -> Any:
            return await producer.produce("t", b"%d" % number, partition=1)

        futures = await asyncio.gather(*(send(number) for number in range(100)))
        messages = await asyncio.gather(*futures)
    assert [message.offset() for message in messages] == list(range(100))


async def test_a_topic_that_there_is_not(fake: FakeCluster) -> None:
    options = conf(fake, **{"topic.metadata.propagation.max.ms": 50})
    async with AIOProducer(options, buffer_timeout=0) as producer:
        unknown = [await producer.produce("nothing", b"v") for _ in range(3)]
        known = await producer.produce("t", b"v")
        assert (await known).error() is None
        answers = [await outcome(producer, future) for future in unknown]
        assert [code_of(answer) for answer in answers] == [KafkaError._UNKNOWN_TOPIC] * 3


async def test_a_topic_that_comes_to_be(fake: FakeCluster) -> None:
    async with AIOProducer(conf(fake), buffer_timeout=0) as producer:
        future = await producer.produce("late", b"v")
        await (await producer.produce("t", b"v"))
        assert not future.done()
        fake.create_topic("late", 1)
        assert (await future).offset() == 0


async def test_a_topic_that_is_denied(fake: FakeCluster) -> None:
    fake.deny_topic("t")
    async with AIOProducer(conf(fake)) as producer:
        answer = await outcome(producer, await producer.produce("t", b"v"))
    assert code_of(answer) == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_what_waits_is_bounded_in_time_each_for_itself() -> None:
    with nobody_there() as address:
        options = {"bootstrap.servers": address, "message.timeout.ms": 200}
        async with AIOProducer(options, buffer_timeout=0) as producer:
            futures = [await producer.produce("t", b"v") for _ in range(5)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
    codes = [error.args[0].code() for error in outcomes if isinstance(error, KafkaException)]
    assert codes == [KafkaError._MSG_TIMED_OUT] * 5


async def test_what_waited_long_has_no_more_time_than_the_others(fake: FakeCluster) -> None:
    await fake.stop_broker(0)
    options = conf(fake, **{"message.timeout.ms": 1500, "reconnect.backoff.max.ms": 10})
    told: list[Any] = []
    async with AIOProducer(options, buffer_timeout=0) as producer:
        future = await producer.produce("t", b"v", on_delivery=lambda *it: told.append(it))
        fake.faults.stall(0)  # it will be sent, and never answered
        await fake.start_broker(0)
        with pytest.raises(KafkaException) as failed:
            await future
        assert failed.value.args[0].code() == KafkaError._MSG_TIMED_OUT
        fake.faults.resume(0)
    assert len(told) == 1


async def test_without_room_a_message_waits_and_then_fails() -> None:
    with nobody_there() as address:
        options = {
            "bootstrap.servers": address,
            "message.timeout.ms": 200,
            "queue.buffering.max.messages": 1,
        }
        async with AIOProducer(options, buffer_timeout=0) as producer:
            first = await producer.produce("t", b"v")
            # It waits for a place as long as the first one has; whichever ends first.
            second = await producer.produce("t", b"v")
            assert code_of(await outcome(producer, first)) == KafkaError._MSG_TIMED_OUT
            assert code_of(await outcome(producer, second)) in (
                KafkaError._QUEUE_FULL,
                KafkaError._MSG_TIMED_OUT,
            )


async def test_a_task_that_is_cancelled_takes_its_message_back() -> None:
    with nobody_there() as address:
        async with AIOProducer({"bootstrap.servers": address}, buffer_timeout=3600) as producer:
            task = asyncio.create_task(producer.produce("t", b"v"))
            while len(producer) == 0:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert len(producer) == 0


async def test_a_future_that_is_cancelled_harms_nothing(fake: FakeCluster) -> None:
    async with AIOProducer(conf(fake)) as producer:
        future = await producer.produce("t", b"v")
        future.cancel()
        assert await producer.flush() == 0
    assert [record.value for record in fake.records("t")] == [b"v"]


async def test_closing_waits_for_what_waits(fake: FakeCluster) -> None:
    await fake.stop_broker(0)
    producer = AIOProducer(conf(fake, **{"reconnect.backoff.max.ms": 10}), buffer_timeout=0)
    future = await producer.produce("t", b"v")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    await fake.start_broker(0)
    await closing
    assert (await future).error() is None


async def test_a_close_that_is_cancelled_leaves_nothing_open() -> None:
    with nobody_there() as address:
        producer = AIOProducer({"bootstrap.servers": address}, buffer_timeout=0)
        future = await producer.produce("t", b"v")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        with pytest.raises(KafkaException):
            await future
        assert len(producer) == 0
        await producer.close()


async def test_polling() -> None:
    async with FakeCluster(topics={"t": 1}) as fake, AIOProducer(conf(fake)) as producer:
        assert await producer.poll(0) == 0
        assert await producer.poll(-1) == 0  # nothing is on its way: nothing to wait for
        await producer.produce("t", b"v")
        assert await producer.poll(-1) == 1
        assert await producer.poll(0.001) == 0


async def test_the_brokers_clock_is_told() -> None:
    async with FakeCluster(topics={"t": 1}) as fake:
        fake.configure_topic("t", is_log_append_time=True)
        async with AIOProducer(conf(fake)) as producer:
            message = await outcome(producer, await producer.produce("t", b"v", timestamp=1000))
    kind, instant = message.timestamp()
    assert kind == 2
    assert instant > 1_600_000_000_000
