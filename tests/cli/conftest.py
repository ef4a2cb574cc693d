"""What the tests of the command line share: a cluster, and a consumer that is not ours."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer

from aioproduce.testing import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3, topics={"t": 6, "one": 1}, auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture
async def consumer(cluster: FakeCluster) -> AsyncIterator[AIOKafkaConsumer]:
    """aiokafka's consumer, at the start of the topics `t` and `one`."""
    consumer = AIOKafkaConsumer(
        "t", "one", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()
