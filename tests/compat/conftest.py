"""What the tests of the drop-ins share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.testing import FakeCluster
from tests.compat.aiokafka_sides import SIDES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(params=sorted(SIDES))
def side(request: pytest.FixtureRequest) -> Any:
    """`AIOKafkaProducer`: aiokafka's, then ours."""
    return SIDES[request.param]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two brokers; topic `t` has three partitions and `one` has one. No topic is created by asking for it."""
    async with FakeCluster(2, topics={"t": 3, "one": 1}, auto_create_topics=False) as started:
        yield started
    assert started.connections == []
