"""One run of some producers in the simulation, and its figures.

Called by the experiments. Virtual time: nothing here depends on how fast this machine is.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aioproduce import Producer
from aioproduce.testing.simulation import Simulation
from aioproduce.wire.api import ApiKey

TOPIC = "events"


@dataclass(frozen=True)
class Load:
    """The load of a run.

    Attributes:
        partitions: The partitions of the topic; the brokers lead them in turn.
        records: The records that each producer sends.
        rate: Records per second of each producer.
        size: Bytes of a record's value.
        producers: The number of producers.
        brokers: The number of brokers.
        service_time: (broker, bytes) -> seconds that a broker works on a request.
    """

    partitions: int
    records: int
    rate: float
    size: int
    service_time: Callable[[int, int], float]
    producers: int = 1
    brokers: int = 3


@dataclass(frozen=True)
class Measured:
    """The result of a run.

    Attributes:
        latencies: Seconds from `send()` to the acknowledgement, ascending.
        by_partition: Acknowledged records of each partition.
        by_broker: Acknowledged records of each broker.
        requests: Produce requests to all brokers.
        seconds: Virtual seconds until the last acknowledgement.
    """

    latencies: tuple[float, ...]
    by_partition: tuple[int, ...]
    by_broker: tuple[int, ...]
    requests: int
    seconds: float

    def percentile(self, share: float) -> float:
        """Return the latency that this share of all latencies does not exceed, in seconds."""
        return self.latencies[max(math.ceil(share * len(self.latencies)), 1) - 1]

    @property
    def mean(self) -> float:
        """Seconds."""
        return math.fsum(self.latencies) / len(self.latencies)

    @property
    def records_per_request(self) -> float:
        """The average number of records in a request."""
        return len(self.latencies) / self.requests


def measure(load: Load, settings: Mapping[str, Any], seed: int) -> Measured:
    """Send the load, and wait for all acknowledgements."""
    simulation = Simulation(
        seed,
        brokers=load.brokers,
        topics={TOPIC: load.partitions},
        service_time=load.service_time,
        auto_create_topics=False,
    )
    for link in simulation.network.links.values():
        link.latency, link.jitter = 0.00025, 0.00005
    latencies: list[float] = []
    places: Counter[int] = Counter()
    ended_at = 0.0
    began_at = 0.0

    async def one(producer: Producer, first_at: float) -> None:
        loop = asyncio.get_running_loop()
        value = bytes(load.size)

        def done(sent_at: float) -> Callable[[Any, BaseException | None], None]:
            def acknowledged(metadata: Any, error: BaseException | None) -> None:
                nonlocal ended_at
                assert error is None, error
                ended_at = loop.time()
                latencies.append(ended_at - sent_at)
                places[metadata.partition] += 1

            return acknowledged

        for number in range(load.records):
            due = first_at + number / load.rate
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            # From when the record was due: one that waited for room behind others must not look fast.
            await producer.send(TOPIC, value, on_delivery=done(due))

    async def main() -> None:
        nonlocal began_at
        producers = [
            Producer(simulation.bootstrap_servers, client_id=f"producer-{number}", **settings)
            for number in range(load.producers)
        ]
        for producer in producers:
            await producer.start()
            await producer.partitions_for(TOPIC)
        began_at = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(
                one(producer, began_at + number / load.rate / load.producers)
                for number, producer in enumerate(producers)
            )
        )
        for producer in producers:
            await producer.close()

    simulation.run(main())
    assert len(latencies) == load.records * load.producers
    by_broker: Counter[int] = Counter()
    for partition, count in places.items():
        by_broker[simulation.cluster.state.require_partition(TOPIC, partition).leader_id] += count
    return Measured(
        latencies=tuple(sorted(latencies)),
        by_partition=tuple(places[partition] for partition in range(load.partitions)),
        by_broker=tuple(by_broker[broker] for broker in range(load.brokers)),
        requests=simulation.cluster.model.requests.count(ApiKey.PRODUCE),
        seconds=ended_at - began_at,
    )
