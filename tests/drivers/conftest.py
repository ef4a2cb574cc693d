"""What the driver tests share: every producer test runs on asyncio, uvloop and trio, and must leave nothing behind.

1. A test of `test_producer_*.py` that passes left no task of ours: no sender, no attempt to connect, no waiter.
2. Warnings are errors here as everywhere, so a socket or transport that nobody closed is a failure too.
3. Bodies use what `concurrency.py` has of every loop. One that is about asyncio's own ways says so by the marker
   `asyncio_only`, with the reason; the like of it for trio is in `test_trio.py`.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aioproduce.testing import FakeCluster
from tests.drivers.loop_thread import cluster_aside
from tests.drivers.on_trio import under_trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Generator[None, Any, Any]:
    """A producer test is collected a second time, to run under trio."""
    made = yield
    if (
        collector.path.name.startswith("test_producer_")
        and name.startswith("test_")
        and inspect.iscoroutinefunction(obj)
        and not any(mark.name == "asyncio_only" for mark in getattr(obj, "pytestmark", []))
    ):
        body = under_trio(obj)
        again = list(collector._genfunctions(name, body))
        for item in again:
            item.obj = body  # or pytest would find the coroutine function by its name
        return [*(made or []), *again]
    return made


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Producer tests run on both loops; the cluster's own tests choose for themselves."""
    if item.path.name.startswith("test_producer_"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Whatever the test started has ended when it ends."""
    before = asyncio.all_tasks()
    yield
    gc.collect(1)  # the test's own garbage: a whole collection takes as long as many a test
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"left behind: {left}"


@pytest.fixture
async def cluster(nothing_left: None) -> AsyncIterator[FakeCluster]:
    """Three brokers; topic `t` has three partitions and `one` has one. No topic is created by asking for it."""
    async with FakeCluster(3, topics={"t": 3, "one": 1}, auto_create_topics=False) as started:
        yield started
    assert started.connections == []


@pytest.fixture
def cluster_on_thread() -> Iterator[Any]:
    """The same for a test under trio."""
    with cluster_aside(3, topics={"t": 3, "one": 1}, auto_create_topics=False) as started:
        yield started
