"""What `flush()` promises, on a running loop and real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce import Producer
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from aioproduce import RecordMetadata


async def test_what_is_flushed_has_had_its_callbacks() -> None:
    """As in Java, where a batch counts as complete after its callbacks: the caller may look at what they did."""
    told: list[int] = []

    def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
        assert error is None
        told.append(metadata.offset)

    async with (
        FakeCluster(topics={"topic": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=1000) as producer,
    ):
        for round_of_ten in range(1, 20):
            for _ in range(10):
                await producer.send("topic", b"v", on_delivery=on_delivery)
            await producer.flush()

            assert told == list(range(10 * round_of_ten))
