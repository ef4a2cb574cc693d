"""What `send()` gives is the future that aiokafka's users know. A test runs on both, or says why not."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.compat.aiokafka_sides import started


async def test_it_is_a_future(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send("one", b"x")
        assert asyncio.isfuture(future)
        assert asyncio.ensure_future(future) is future
        assert future.get_loop() is asyncio.get_running_loop()
        assert await future is not None
        assert await future == await future == future.result()
        assert (future.done(), future.cancelled(), future.exception()) == (True, False, None)


async def test_before_the_outcome_there_is_none(side: Any, cluster: FakeCluster) -> None:
    with_answer = cluster.faults.delay_answers(0.05, times=1, api=ApiKey.PRODUCE)
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send("one", b"x")
        assert not future.done()
        for ask in (future.result, future.exception):
            with pytest.raises(asyncio.InvalidStateError):
                ask()
        assert (await future).offset == 0
    assert with_answer.is_spent


async def test_callbacks_get_the_future(side: Any, cluster: FakeCluster) -> None:
    called: list[Any] = []
    told = asyncio.Event()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    def callback(future: Any) -> None:
        called.append((future, future.result().offset, variable.get()))
        told.set()

    def unwanted(future: Any) -> None:
        pytest.fail(f"was removed from {future}")

    async with started(side, cluster.bootstrap_servers, linger_ms=20) as producer:
        future = await producer.send("one", b"x")
        token = variable.set("set")
        future.add_done_callback(callback)
        variable.reset(token)
        future.add_done_callback(unwanted)
        assert future.remove_done_callback(unwanted) == 1
        await told.wait()
        assert called == [(future, 0, "set")]
        told.clear()
        future.add_done_callback(callback)  # it is done: in the next turn
        assert len(called) == 1
        await told.wait()
        assert called[1] == (future, 0, "none")


async def test_all_of_asyncio_takes_it(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, linger_ms=5) as producer:
        futures = [await producer.send("one", b"%d" % number) for number in range(6)]
        gathered = await asyncio.gather(*futures[:2])
        done, pending = await asyncio.wait(futures[2:4])
        offsets = [metadata.offset for metadata in gathered]
        offsets += sorted(future.result().offset for future in done)
        offsets.append((await asyncio.wait_for(futures[4], 60)).offset)
        offsets.append((await asyncio.shield(futures[5])).offset)
        assert (offsets, pending) == (list(range(6)), set())
        assert done == set(futures[2:4])
        futures = [await producer.send("one", b"x") for _ in range(3)]
        assert sorted([(await each).offset for each in asyncio.as_completed(futures)]) == [6, 7, 8]


async def test_the_first_of_several(side: Any, cluster: FakeCluster) -> None:
    never = asyncio.get_running_loop().create_future()
    async with started(side, cluster.bootstrap_servers) as producer:
        future = await producer.send("one", b"x")
        done, pending = await asyncio.wait([future, never], return_when=asyncio.FIRST_COMPLETED)
        assert (done, pending) == ({future}, {never})
    never.cancel()


async def test_a_group_of_tasks(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer, asyncio.TaskGroup() as group:
        tasks = [group.create_task(producer.send_and_wait("one", b"x")) for _ in range(50)]
    assert sorted(task.result().offset for task in tasks) == list(range(50))


async def test_cancelling_it_stops_no_record(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, linger_ms=20) as producer:
        future = await producer.send("one", b"goes on")
        assert future.cancel()
        assert (future.cancelled(), future.done()) == (True, True)
        with pytest.raises(asyncio.CancelledError):
            await future
        assert (await producer.send_and_wait("one", b"next")).offset == 1
    assert [record.value for record in cluster.records("one")] == [b"goes on", b"next"]


async def test_a_wait_that_is_cancelled_stops_no_record(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, linger_ms=20) as producer:
        sent = asyncio.Event()

        async def send() -> None:
            future = await producer.send("one", b"goes on")
            sent.set()
            await future

        task = asyncio.ensure_future(send())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await producer.send_and_wait("one", b"next")).offset == 1


async def test_a_time_limit_on_the_wait(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("one", b"connected")
        cluster.faults.stall(cluster.leader("one", 0))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.send_and_wait("one", b"x"), 0.05)
        cluster.faults.resume(cluster.leader("one", 0))


async def test_many_may_wait_for_one(side: Any, cluster: FakeCluster) -> None:
    async with started(side, cluster.bootstrap_servers, linger_ms=20) as producer:
        future = await producer.send("one", b"x")

        async def wait() -> Any:
            return await future

        found = await asyncio.gather(*(wait() for _ in range(10)))
        assert {metadata.offset for metadata in found} == {0}


async def test_an_error_is_the_futures(side: Any, cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(10, times=None)  # MESSAGE_TOO_LARGE
    async with started(side, cluster.bootstrap_servers, linger_ms=5) as producer:
        first, second = [await producer.send("one", b"x") for _ in range(2)]
        with pytest.raises(MessageSizeTooLargeError):
            await first
        with pytest.raises(MessageSizeTooLargeError):
            first.result()
        assert type(first.exception()) is MessageSizeTooLargeError
        outcomes: Any = await asyncio.gather(second, return_exceptions=True)
        (outcome,) = outcomes
        assert type(outcome) is MessageSizeTooLargeError
        assert outcome is not first.exception()  # each has a traceback of its own
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait("one", b"x")


def test_without_a_running_loop(side: Any) -> None:
    """As scripts do it: `run_until_complete()` of everything."""
    loop = asyncio.new_event_loop()
    try:
        cluster = FakeCluster(1, topics={"one": 1})
        loop.run_until_complete(cluster.start())
        with pytest.warns(DeprecationWarning, match="The `loop` parameter"):
            producer = side(bootstrap_servers=cluster.bootstrap_servers, loop=loop)
        loop.run_until_complete(producer.start())
        try:
            future = loop.run_until_complete(producer.send("one", b"hello, Kafka!", partition=0))
            assert loop.run_until_complete(future).offset == 0
            metadata = loop.run_until_complete(producer.send_and_wait("one", b"again"))
            assert type(metadata) is RecordMetadata
        finally:
            loop.run_until_complete(producer.stop())
            loop.run_until_complete(cluster.close())
    finally:
        loop.close()
