"""A load to observe: records at a rate to some topics; for the demo also a cluster in memory with faults.

Called by `aioproduce dashboard` and `aioproduce top`. It measures nothing; `aioproduce perf` does.

Invariants:

1. `run()` ends only when it is cancelled. It reports each kind of error once (buffer full, topic unknown, cluster
   down), and tries again.
2. It never sends late records in a burst.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.cli.display import hushed_warnings
from aioproduce.cli.run import meanwhile
from aioproduce.errors import ProducerError
from aioproduce.producer.producer import Producer
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from aioproduce.config import ProducerConfig

_PACES_PER_SECOND: Final = 50
_RETRY_SECONDS: Final = 1.0
_START_SECONDS: Final = 10.0
_HALVINGS: Final = 8

DEMO_TOPICS: Final = {"orders": 6, "payments": 3, "clicks": 6}

# The demo's faults, one after the other: enough to move each chart, too little to fail a record.
_PEACE_SECONDS: Final = 12.0
_STALL_SECONDS: Final = 2.0
_THROTTLE_SECONDS: Final = 0.2
_NOT_LEADER: Final = 6
_FORGET_SECONDS: Final = 5.0


@final
class Load:
    """A stream of records at a rate.

    Args:
        producer: The producer, started.
        topics: The topics; the first gets most of the records.
        rate: Records per second to all topics.
        size: Bytes of a record's value.
        is_wavy: Whether the rate goes up and down by half, once a minute.
        tell: Called with a line for the user.
    """

    __slots__ = ("_is_wavy", "_producer", "_rate", "_size", "_tell", "_told", "_topics")

    def __init__(
        self,
        producer: Producer[Any, Any],
        topics: Sequence[str],
        *,
        rate: float,
        size: int,
        is_wavy: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._producer = producer
        # Shares of 1/2, 1/4, ..., equal after the eighth halving: a topic's share is how often the list has it.
        most = min(len(topics) - 1, _HALVINGS)
        self._topics = [topic for place, topic in enumerate(topics) for _ in range(2 ** max(most - place, 0))]
        self._rate = rate
        self._size = size
        self._is_wavy = is_wavy
        self._tell = tell
        self._told: set[type[ProducerError]] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        step = 1 / _PACES_PER_SECOND
        value = (b"0123456789abcdef" * (self._size // 16 + 1))[: self._size]
        due_at, owed, number = loop.time(), 0.0, 0
        while True:
            owed += self._rate * step * (1 + 0.5 * math.sin(loop.time() / 60 * math.tau) * self._is_wavy)
            while owed >= 1:
                owed -= 1
                number += 1
                try:
                    await self._producer.send(self._topics[number % len(self._topics)], value)
                except ProducerError as error:
                    self._complain(error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    owed = 0.0
            due_at = max(due_at + step, loop.time())
            await asyncio.sleep(due_at - loop.time())

    def _complain(self, error: ProducerError) -> None:
        if type(error) not in self._told:
            self._told.add(type(error))
            self._tell(f"the load cannot send: {error}")


async def _trouble(cluster: FakeCluster) -> None:
    """Stall a broker, move leaders, throttle a broker: in turn, for ever."""
    while True:
        for broker in range(len(cluster.ports)):
            await asyncio.sleep(_PEACE_SECONDS)
            cluster.faults.stall(broker)
            try:
                await asyncio.sleep(_STALL_SECONDS)
            finally:
                # Also when the demo ends: the producer's close would wait for this broker until the records expire.
                cluster.faults.resume(broker)
            await asyncio.sleep(_PEACE_SECONDS)
            cluster.faults.fail_produce(_NOT_LEADER, times=20)
            await asyncio.sleep(_PEACE_SECONDS)
            cluster.faults.throttle(_THROTTLE_SECONDS, times=10, broker=broker)


async def _forget(cluster: FakeCluster) -> None:
    """Delete the cluster's records: it keeps them in memory, and nobody reads them."""
    while True:
        await asyncio.sleep(_FORGET_SECONDS)
        for topic, state in cluster.topics.items():
            for partition in range(len(state.partitions)):
                cluster.delete_records(topic, partition, cluster.high_watermark(topic, partition))


@contextlib.asynccontextmanager
async def demo(rate: float, size: int, tell: Callable[[str], None]) -> AsyncIterator[Producer[Any, Any]]:
    """Run a producer that sends to a cluster in memory with faults."""
    async with (
        FakeCluster(3, topics=DEMO_TOPICS) as cluster,
        Producer(cluster.bootstrap_servers, client_id="demo") as producer,
        meanwhile(
            Load(producer, tuple(DEMO_TOPICS), rate=rate, size=size, is_wavy=True, tell=tell).run(),
            _trouble(cluster),
            _forget(cluster),
        ),
    ):
        yield producer


@contextlib.asynccontextmanager
async def load_on(
    config: ProducerConfig, topics: Sequence[str], rate: float, size: int, tell: Callable[[str], None]
) -> AsyncIterator[Producer[Any, Any]]:
    """Run a producer that sends to a real cluster.

    Raises:
        ProducerError: if the cluster cannot be reached, or refuses the login.
    """
    producer = Producer(config)
    await producer.start()
    try:
        with hushed_warnings():
            await producer.check(_START_SECONDS)  # else the charts would stay empty without a reason
        load = Load(producer, topics, rate=rate, size=size, is_wavy=False, tell=tell)
        async with meanwhile(load.run()):
            yield producer
    finally:
        # Records in flight may be lost: they are not the user's.
        await producer.close(1.0)
