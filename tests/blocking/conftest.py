"""What the tests of BlockingProducer share: a FakeCluster in a thread of its own, and nothing left behind.

1. A test that passes left no thread of ours: no loop thread, no compression worker.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.blocking.threads import ThreadedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("aioproduce")]
    assert not left, f"left behind: {left}"


@pytest.fixture
def cluster(no_thread_left: None) -> Iterator[ThreadedCluster]:
    """Topic `t` has three partitions and `one` has one. No topic is created by asking for it."""
    with ThreadedCluster({"t": 3, "one": 1}) as started:
        yield started
