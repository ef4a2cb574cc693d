"""The number of records in each of four partitions, of 380,000 keyless records.

Published with KIP-794, for a uniform choice: 94,685 to 94,798 on each of four.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aioproduce import Producer
from aioproduce.config.kinds import PARTITIONERS
from aioproduce.testing.simulation import Simulation
from benchmarks.partitioners.run import TOPIC

RECORDS = 380_000
AT_ONCE = 1_000
PARTITIONS = 4
PUBLISHED = (94_685, 94_798)
ALL_TO_ONE = ("murmur2", "consistent", "fnv1a")
"""Partitioners that send all keyless records to one partition: there is nothing to compare."""


def run(seed: int, records: int = RECORDS) -> Iterator[tuple[str, list[int]]]:
    """Yield each partitioner that spreads keyless records, and the number of records in each partition's log."""
    for name in PARTITIONERS:
        if name not in ALL_TO_ONE:
            yield name, counts(name, records, seed)


def counts(name: Any, records: int, seed: int) -> list[int]:
    """Return the number of records in each partition's log."""
    simulation = Simulation(seed, brokers=PARTITIONS, topics={TOPIC: PARTITIONS}, auto_create_topics=False)

    async def main() -> None:
        async with Producer(simulation.bootstrap_servers, partitioner_class=name) as producer:
            for _ in range(records // AT_ONCE):
                await producer.send_many(TOPIC, [bytes(100)] * AT_ONCE)

    simulation.run(main())
    logs = [simulation.cluster.log(TOPIC, partition) for partition in range(PARTITIONS)]
    return [sum(batch.record_count for batch in log) for log in logs]
