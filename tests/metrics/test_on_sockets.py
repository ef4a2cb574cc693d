"""Clocks and byte counts with real loops and sockets, where virtual time tells nothing: asyncio's and uvloop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
import uvloop

from aioproduce import Producer
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[object, object, None]], None]:
    def run(main: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main)

    return run


def test_a_blocked_loop_is_seen(run: Callable[[Coroutine[object, object, None]], None]) -> None:
    async def main() -> None:
        async with (
            FakeCluster(1, topics={"t": 1}) as cluster,
            Producer(cluster.bootstrap_servers) as producer,
        ):
            await producer.send_and_wait("t", b"x")
            await producer.send("t", b"y")
            time.sleep(0.06)  # noqa: ASYNC251  the mistake that the metric is for
            await producer.flush()
            # uvloop's clock has milliseconds, and may have been read up to one before.
            assert producer.metrics().value("event-loop-lag-max") >= 58

    run(main())


def test_work_and_sleep_fit_into_the_time_there_was(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        async with FakeCluster(1, topics={"t": 1}) as cluster:
            began = time.monotonic_ns()
            async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
                for _ in range(50):
                    await producer.send_and_wait("t", b"x")
            took = time.monotonic_ns() - began
            found = producer.metrics()
            worked, slept = found.value("io-time-ns-total"), found.value("io-wait-time-ns-total")
            # 50 requests were made and 50 answers read: a microsecond each is little.
            assert worked > 50 * 1000
            assert slept > 0
            assert worked + slept <= took

    run(main())


def test_requests_and_their_bytes_are_those_that_came(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        async with FakeCluster(3, topics={"t": 3}) as cluster:
            async with Producer(cluster.bootstrap_servers) as producer:
                for number in range(300):
                    await producer.send("t", b"%d" % number, partition=number % 3)
                await producer.flush()
            seen = cluster.requests.entries()
            found = producer.metrics()
            assert found.value("request-total") == len(seen) == found.value("response-total")
            # The log has them without the four bytes of their length.
            assert found.value("outgoing-byte-total") == sum(4 + each.size for each in seen)
            assert found.value("record-send-total") == 300 == len(cluster.records("t"))
            for broker in range(3):
                its = [each for each in seen if each.broker_id == broker]
                # Asked for metadata first, by its place in bootstrap.servers.
                names = [f"node-{broker}", f"node-{-1 - broker}"]
                told = [one.value for name in names for one in found.find("request-total", node_id=name)]
                assert sum(map(float, told)) == len(its)

    run(main())
