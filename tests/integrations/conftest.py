"""What the service tests share: a cluster in memory, and that nothing is left behind.

1. Nothing here waits for time: conditions are asked in turns of the loop, and pytest's own time-out ends a hang.
2. Every test leaves the process's signal handlers as it found them, and no task of its own.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING

import pytest

from aioproduce.integrations import shutdown_signals
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Whatever the test started has ended, and signals are handled as before."""
    before = asyncio.all_tasks()
    # That of SIGINT is the runner's, another for each part of a test.
    handler = signal.getsignal(signal.SIGTERM)
    yield
    gc.collect(1)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"left behind: {left}"
    assert signal.getsignal(signal.SIGTERM) is handler
    assert type(signal.getsignal(signal.SIGINT)).__module__ != shutdown_signals.__name__


@pytest.fixture
async def cluster(nothing_left: None) -> AsyncIterator[FakeCluster]:
    """Two brokers; topic `orders` has two partitions. No topic is created by asking for it."""
    async with FakeCluster(2, topics={"orders": 2}, auto_create_topics=False) as started:
        yield started
    assert started.connections == []
