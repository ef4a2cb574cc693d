"""What the driver tests share: every producer test runs on asyncio and on uvloop, and must leave nothing behind.

1. A test of `test_producer_*.py` that passes left no task of ours: no sender, no attempt to connect, no waiter.
2. Warnings are errors here as everywhere, so a socket or transport that nobody closed is a failure too.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest
import uvloop

from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


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
