"""One case: what a seed stands for. Settings of the producer, what it is given to send, and what goes wrong.

A case is plain data: to be printed, made smaller (`shrink`) and run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from aioproduce.testing.simulation import KINDS, ScheduledFault, random_faults

TOPIC = "orders"
KEYLESS = -1
"""The writer whose records go where the partitioner wants."""


class Burst(NamedTuple):
    """Some records that are sent one right after the other."""

    at: float
    writer: int
    records: int
    size: int


@dataclass(frozen=True)
class Case:
    """What happens in one run.

    Attributes:
        seed: Of the network's chance and the producer's.
        is_bare: The core alone; otherwise the producer on asyncio.
        settings: Of the producer.
        cluster: Of the brokers.
        seconds: How long it goes on until everything is healed.
    """

    seed: int
    is_bare: bool
    settings: dict[str, Any]
    bursts: tuple[Burst, ...]
    faults: tuple[ScheduledFault, ...]
    seconds: float
    partitions: int = 3
    brokers: int = 3
    cluster: dict[str, Any] = field(default_factory=dict)
    warm_up: float = 1.0

    @property
    def is_idempotent(self) -> bool:
        return bool(self.settings["enable_idempotence"])

    @property
    def keeps_order(self) -> bool:
        return self.is_idempotent or self.settings["max_in_flight_requests_per_connection"] == 1

    @property
    def delivery_timeout(self) -> float:
        return float(self.settings["delivery_timeout_ms"]) / 1000

    @property
    def records(self) -> int:
        return sum(burst.records for burst in self.bursts)

    def without_faults(self) -> Case:
        return replace(self, faults=())

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {'the core alone' if self.is_bare else 'on asyncio'}, {self.seconds:.0f} s, "
            f"{self.records} records in {len(self.bursts)} bursts, {len(self.faults)} faults",
            "settings: " + ", ".join(f"{name}={value}" for name, value in self.settings.items()),
            "cluster: " + ", ".join(f"{name}={value}" for name, value in self.cluster.items()),
        ]
        lines += [f"  fault {fault}" for fault in self.faults]
        return "\n".join(lines)


MODES: dict[str, dict[str, Any]] = {
    "idempotent": {"enable_idempotence": True, "acks": "all"},
    "plain": {"enable_idempotence": False, "acks": "all"},
    "acks=1": {"enable_idempotence": False, "acks": 1},
}


class Weather(NamedTuple):
    """How much happens in how long a time."""

    seconds: float
    records: int
    faults: int


WEATHERS: dict[str, Weather] = {
    "hour": Weather(3600.0, 3600, 180),
    "day": Weather(86_400.0, 1500, 250),
    "storm": Weather(240.0, 2500, 160),
    "squall": Weather(20.0, 2000, 40),
}
"""An hour in which there is time to recover; a day of idle connections and old metadata; faults upon faults."""


def make_case(
    seed: int,
    *,
    mode: str | None = None,
    is_bare: bool | None = None,
    weather: str | None = None,
    kinds: tuple[str, ...] = tuple(KINDS),
) -> Case:
    """Draw a case from a seed; what is given is not drawn."""
    random = Random(seed)
    drawn_weather = random.choice(["hour", "hour", "day", "storm", "storm", "squall", "squall"])
    seconds, records, faults = WEATHERS[weather or drawn_weather]
    drawn_mode = random.choice(["idempotent", "idempotent", "plain", "acks=1"])
    drawn_bare = random.random() < 0.5
    settings = dict(MODES[mode or drawn_mode])
    delivery, request = random.choice([(120_000, 30_000), (30_000, 10_000), (10_000, 3_000)])
    batch_size = random.choice([16_384, 2_000, 400])
    settings |= {
        "max_in_flight_requests_per_connection": random.choice([1, 2, 5, 5, 5]),
        "delivery_timeout_ms": delivery,
        "request_timeout_ms": request,
        "linger_ms": random.choice([0, 5, 5, 200]),
        "batch_size": batch_size,
        "buffer_memory": random.choice([32_000_000, 40 * batch_size, 12 * batch_size]),
        "max_block_ms": random.choice([60_000, 2_000]),
        "metadata_max_age_ms": random.choice([300_000, 300_000, 7_000]),
        "connections_max_idle_ms": random.choice([540_000, 540_000, 20_000]),
        "compression_type": random.choice(["none", "none", "none", "gzip"]),
    }
    partitions = 3
    if settings["acks"] == 1:
        kinds = tuple(kind for kind in kinds if kind != "append and depose")
    return Case(
        seed=seed,
        is_bare=drawn_bare if is_bare is None else is_bare,
        settings=settings,
        bursts=_bursts(random, seconds, records, partitions),
        faults=tuple(
            random_faults(
                random, seconds=seconds, count=faults, brokers=3, topics={TOPIC: partitions}, kinds=kinds
            )
        ),
        seconds=seconds,
        partitions=partitions,
    )


def _bursts(random: Random, seconds: float, records: int, partitions: int) -> tuple[Burst, ...]:
    bursts = []
    left = records
    while left:
        count = min(left, random.choice([1, 1, 3, 10, 30]))
        left -= count
        bursts.append(
            Burst(
                at=random.uniform(0.0, seconds),
                writer=random.choice([KEYLESS, *range(partitions)]),
                records=count,
                size=random.choice([10, 10, 100, 300]),
            )
        )
    return tuple(sorted(bursts))
