"""Nothing that the producer makes for a record, a batch or a request is left to the garbage collector.

Its pauses grow with all that the service holds, and stop the loop; what is in no cycle is freed at once. What lives
long, for each partition and for each open batch, is hidden from it where that is possible.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aioproduce import Producer
from aioproduce.errors import SerializationError
from aioproduce.testing import FakeCluster
from tests.drivers.concurrency import gather
from tests.drivers.loop_thread import cluster_aside
from tests.native_builds import core_is_compiled

RECORDS = 50
Mode = Callable[[Producer], Awaitable[Any]]


async def await_each(producer: Producer) -> None:
    for delivery in [await producer.send("t", b"v") for _ in range(RECORDS)]:
        await delivery


async def flush_only(producer: Producer) -> None:
    for _ in range(RECORDS):
        await producer.send("t", b"v", key=b"k")
    await producer.flush()


async def gathered(producer: Producer) -> None:
    await gather(*[await producer.send("t", b"v") for _ in range(RECORDS)])


async def in_tasks(producer: Producer) -> None:
    await gather(*[producer.send_and_wait("t", b"v") for _ in range(RECORDS)])


async def one_by_one(producer: Producer) -> None:
    for _ in range(RECORDS):
        await producer.send_and_wait("t", b"v")


async def with_callbacks(producer: Producer) -> None:
    for _ in range(RECORDS):
        delivery = await producer.send("t", b"v", on_delivery=lambda metadata, error: None)
        delivery.add_done_callback(lambda delivery: None)
    await producer.flush()


async def in_bulk(producer: Producer) -> None:
    await (await producer.send_many("t", [b"v"] * RECORDS)).wait()


async def ready_made(producer: Producer) -> None:
    for _ in range(10):
        batch = producer.create_batch()
        batch.append_many([b"v"] * 10)
        await (await producer.send_batch(batch, "t", partition=1)).wait()


async def waiting_for_memory(producer: Producer) -> None:
    await gather(*[producer.send_and_wait("t", bytes(900)) for _ in range(RECORDS)])


async def given_up(producer: Producer) -> None:
    for _ in range(10):
        # Not `fail_after()`: what that raises is in a cycle of its own, with Python 3.13 under trio.
        with anyio.move_on_after(0) as scope:
            await producer.send_and_wait("t", b"v")
        assert scope.cancelled_caught
        await producer.flush()


async def refused(producer: Producer[Any, Any]) -> None:
    for _ in range(10):
        with pytest.raises(SerializationError):
            await producer.send("t", 7)


@pytest.mark.parametrize(
    "mode",
    [
        await_each,
        flush_only,
        gathered,
        in_tasks,
        one_by_one,
        with_callbacks,
        in_bulk,
        ready_made,
        waiting_for_memory,
        pytest.param(
            given_up,
            marks=pytest.mark.skipif(
                not core_is_compiled(), reason="interpreted, the traceback of a cancellation holds its frames"
            ),
        ),
        refused,
    ],
    ids=lambda mode: mode.__name__,
)
async def test_no_cycles(cluster: FakeCluster, mode: Mode) -> None:
    async with Producer(
        cluster.bootstrap_servers, linger_ms=1, batch_size=1000, buffer_memory=20_000
    ) as producer:
        await mode(producer)
        while gc.collect():
            pass  # what earlier tests left may take more than one pass to go
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await mode(producer)
            gc.collect()
            left = [
                thing for thing in gc.garbage if type(thing).__module__.startswith(("aioproduce.", "tests."))
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert [type(thing) for thing in left if "testing" not in type(thing).__module__] == []


@pytest.mark.skipif(not core_is_compiled(), reason="interpreted code hides nothing from the collector")
async def test_the_collector_looks_at_few_objects_of_many_partitions() -> None:
    partitions = 1000

    async def send(producer: Producer) -> None:
        for partition in range(partitions):
            await producer.send("many", b"v", partition=partition)

    with cluster_aside(topics={"many": partitions}) as cluster:
        async with Producer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
            await producer.partitions_for("many")
            before = _tracked()
            await send(producer)
            # Each open batch: itself, its result, its lease, its place among the deadlines. Each partition: its
            # queue with its deque of batches. Under trio it is one more.
            assert _tracked() - before <= 7.5 * partitions
            await producer.flush()
            before = _tracked()
            await send(producer)
            assert _tracked() - before <= 5.5 * partitions


def _tracked() -> int:
    """How many objects the next full pass looks at."""
    gc.collect()
    return len(gc.get_objects())
