"""Cancelled while it waits, or not waiting at all: what `send()` and its neighbours leave behind at their awaits.

Invariant 5 of DESIGN.md: no await without a bound, and cancellation at every await leaves the producer usable.
Cancelled `start()`, `flush()`, `close()`, and `send()` that waits for metadata or in a long line for room, are in
`test_producer_places`, `_flush`, `_close`, `_topics` and `_recovery`.

Scenario of Kafka's own tests: BufferPoolTest `cleanupMemoryAvailabilityWaiterOnInterruption`, through the producer.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioproduce import Producer
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import assert_in_order, gather, sleep, spawn, within
from tests.drivers.producing import (
    FOREVER_MS,
    PATIENCE,
    assert_still_works,
    let_the_sender_rest,
    until,
    values,
)

if TYPE_CHECKING:
    from typing import Any

    from aioproduce.testing import FakeCluster

TIGHT: dict[str, Any] = {
    "buffer_memory": 20_000,
    "batch_size": 5_000,
    "linger_ms": 0,
    "max_block_ms": FOREVER_MS,
    "reconnect_backoff_ms": 1,
    "retry_backoff_ms": 1,
}
"""Room for four records of 4,000 bytes, one to a batch."""


def record(number: int) -> bytes:
    return b"%04d" % number + bytes(3_996)


def numbers(cluster: FakeCluster, topic: str = "one") -> list[int]:
    return [int(value[:4]) for value in values(cluster, topic) if value is not None and len(value) == 4_000]


async def assert_room_returns(producer: Producer) -> None:
    """All memory is back, and there is room for as much as ever."""
    await until(lambda: producer.outstanding_bytes == 0)
    async with within(PATIENCE):
        await gather(*[await producer.send("t", bytes(4_000), partition=n % 3) for n in range(8)])
    await until(lambda: producer.outstanding_bytes == 0)


# Cancelled


@pytest.mark.parametrize("turns", range(0, 16, 3))
async def test_cancelled_while_room_is_handed_out_nothing_is_lost(cluster: FakeCluster, turns: int) -> None:
    """Over these turns of the loop memory is granted to one `send()` after the other, some not awake yet."""
    for extra in range(3):
        before = len(numbers(cluster))
        async with Producer(cluster.bootstrap_servers, **TIGHT) as producer:
            await producer.partitions_for("one")
            stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
            accepted = [await producer.send("one", record(n)) for n in range(4)]
            tasks = [spawn(producer.send("one", record(4 + n))) for n in range(11)]
            await let_the_sender_rest()
            stuck.cancel()
            cluster.faults.reset_connections()
            await until(accepted[0].done)
            for _ in range(turns + extra):
                await sleep(0)
            for task in tasks[:10]:
                task.cancel()
            async with within(PATIENCE):
                await gather(*tasks, return_exceptions=True)
                sent = [n for n, task in enumerate(tasks, 4) if not task.cancelled()]
                await gather(*accepted, *(tasks[n - 4].result() for n in sent))
            await assert_room_returns(producer)
        assert sent[-1] == 14
        assert_in_order(numbers(cluster)[before:], [*range(4), *sent])


async def test_a_cancelled_send_many_keeps_what_was_accepted(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **TIGHT) as producer:
        await producer.partitions_for("one")
        stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        sending = spawn(producer.send_many("one", [record(n) for n in range(10)]))
        await until(lambda: producer.outstanding_bytes == 20_000)
        await let_the_sender_rest()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        stuck.cancel()
        cluster.faults.reset_connections()
        await assert_still_works(producer, cluster, "one")
    assert numbers(cluster) == [0, 1, 2, 3]


@pytest.mark.parametrize("question", ["partitions_for", "check"])
async def test_a_cancelled_question_leaves_nothing(cluster: FakeCluster, question: str) -> None:
    for broker in range(3):
        cluster.faults.stall(broker)
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS) as producer:
        ask = producer.partitions_for("one") if question == "partitions_for" else producer.check(PATIENCE)
        asking = spawn(ask)
        await until(lambda: cluster.connections)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        for broker in range(3):
            cluster.faults.resume(broker)
        await assert_still_works(producer, cluster, "one")


# Not waiting


@pytest.mark.asyncio_only("the call is driven by hand; under trio its testing tools tell: test_trio.py")
@pytest.mark.parametrize("batch_size", [100, 1_000_000], ids=["opens a batch", "into an open batch"])
async def test_with_the_topic_known_and_room_send_does_not_suspend(
    cluster: FakeCluster, batch_size: int
) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, batch_size=batch_size) as producer:
        await producer.partitions_for("one")
        began_at = time.perf_counter()
        turns = accepted = 0
        for _ in range(2_000):
            sending = producer.send("one", b"v" * 50).__await__()
            while True:
                try:
                    waits_for = next(sending)
                except StopIteration:
                    accepted += 1
                    break
                assert waits_for is None, "it waits for something"
                turns += 1
                await sleep(0)
        assert accepted == 2_000
        # But for the loop's turn after a millisecond of sending: one may be due from before, and uvloop's clock
        # ticks in whole milliseconds.
        assert turns <= 2 + (time.perf_counter() - began_at) / 0.001
        await producer.flush()


async def test_a_task_that_only_sends_does_not_starve_the_loop(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=0, buffer_memory=1_000_000_000) as producer:
        await producer.partitions_for("one")
        timers: list[bool] = []

        async def tick() -> None:
            await sleep(0.005)
            timers.append(True)

        ticking = spawn(tick())
        first = await producer.send("one", b"first")
        sent = 1
        while not (first.done() and timers):
            await producer.send("one", b"v" * 100)
            sent += 1
            assert sent < 2_000_000, "neither an acknowledgement nor a timer came through"
        assert producer.outstanding_bytes < 500_000_000
        await ticking
        await producer.flush()
