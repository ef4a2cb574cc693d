"""One case: what a seed stands for. Settings of the producer, what it is given to send, and what goes wrong.

A case is plain data: to be printed, kept in a file, made smaller (`shrink`) and run again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, NamedTuple

from aioproduce.testing.fake_cluster.log import TopicConfig
from aioproduce.testing.fake_cluster.partition import ReplicationConfig
from aioproduce.testing.simulation import KINDS, SECURITY_KINDS, ScheduledFault, random_faults

TOPIC = "orders"
KEYLESS = -1
"""The writer whose records go where the partitioner wants."""


class Burst(NamedTuple):
    """Some records that are sent one right after the other."""

    at: float
    writer: int
    records: int
    size: int


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
    "fair": Weather(600.0, 2000, 60),
}
"""An hour in which there is time to recover; a day of idle connections and old metadata; overlapping faults; and a
time in which everything must be delivered, since nothing lasts long and nothing is refused for good."""

ACKS_ALL_ONLY = frozenset({"append and depose"})
LOSSY = frozenset({"unclean election"})
FAIR = (
    "reset",
    "cut a frame",
    "black hole",
    "black hole inward",
    "slow",
    "slices",
    "refused",
    "kill",
    "stall",
    "throttle",
    "move",
    "leaderless",
    "append and depose",
    "refuse on",
    "answer lost",
    "reset after",
    "reset before",
    "answer cut",
    "garbage",
    "wrong correlation id",
    "no producer id",
)


@dataclass(frozen=True)
class Case:
    """What happens in one run.

    Attributes:
        seed: Of the network's chance and the producer's.
        weather: Which of `WEATHERS`.
        is_bare: The core alone; otherwise the producer on asyncio.
        settings: Of the producer.
        lag: Seconds by which followers are behind; `None` without replication.
        min_insync: `min.insync.replicas`.
        buffer: Bytes of a connection that the kernels hold: with few of them the producer's own memory is on its
            way for long.
        seconds: How long it goes on until everything is healed.
        security: `protocol/mechanism/session`: what listeners ask for, and how many milliseconds a login lasts
            (`securing`); empty: nothing.
    """

    seed: int
    weather: str
    is_bare: bool
    settings: dict[str, Any]
    bursts: tuple[Burst, ...]
    faults: tuple[ScheduledFault, ...]
    seconds: float
    lag: float | None = None
    min_insync: int = 1
    buffer: int = 131_072
    partitions: int = 3
    brokers: int = 3
    security: str = ""

    @property
    def is_encrypted(self) -> bool:
        return self.security.split("/")[0].endswith("SSL")

    @property
    def is_idempotent(self) -> bool:
        return bool(self.settings["enable_idempotence"])

    @property
    def keeps_order(self) -> bool:
        return self.is_idempotent or self.settings["max_in_flight_requests_per_connection"] == 1

    @property
    def may_lose(self) -> bool:
        """Whether a broker may lose what it has acknowledged."""
        return self.settings["acks"] == 1 or any(fault.kind in LOSSY for fault in self.faults)

    @property
    def delivery_timeout(self) -> float:
        return float(self.settings["delivery_timeout_ms"]) / 1000

    @property
    def max_block(self) -> float:
        return float(self.settings.get("max_block_ms", 60_000)) / 1000

    @property
    def records(self) -> int:
        return sum(burst.records for burst in self.bursts)

    @property
    def mode(self) -> str:
        acks = "idempotent" if self.is_idempotent else f"acks={self.settings['acks']}"
        secured = f", {self.security}" if self.security else ""
        return f"{acks}, {'core' if self.is_bare else 'asyncio'}{secured}"

    def cluster_settings(self) -> dict[str, Any]:
        """What `Simulation` takes."""
        return {
            "replication": None if self.lag is None else ReplicationConfig(lag=self.lag, lag_timeout=10.0),
            "default_config": TopicConfig(min_insync_replicas=self.min_insync),
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Case:
        fields = json.loads(text)
        fields["bursts"] = tuple(Burst(*burst) for burst in fields["bursts"])
        fields["faults"] = tuple(ScheduledFault(**fault) for fault in fields["faults"])
        return cls(**fields)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {self.weather}, {self.mode}: {self.seconds:.0f} s, {self.records} records in "
            f"{len(self.bursts)} bursts, {len(self.faults)} faults, lag {self.lag}, "
            f"min.insync {self.min_insync}, buffer {self.buffer}",
            "  " + ", ".join(f"{name}={value}" for name, value in self.settings.items()),
        ]
        lines += [f"  fault {fault}" for fault in self.faults]
        return "\n".join(lines)


MODES: dict[str, dict[str, Any]] = {
    "idempotent": {"enable_idempotence": True, "acks": "all"},
    "plain": {"enable_idempotence": False, "acks": "all"},
    "acks=1": {"enable_idempotence": False, "acks": 1},
}


def make_case(
    seed: int,
    *,
    mode: str | None = None,
    is_bare: bool | None = None,
    weather: str | None = None,
    in_flight: int | None = None,
) -> Case:
    """Draw a case from a seed; what is given is not drawn."""
    random = Random(seed)
    weather = weather or random.choice(["hour", "hour", "day", "storm", "storm", "squall", "squall", "fair"])
    mode = mode or random.choice(["idempotent", "idempotent", "plain", "acks=1"])
    is_bare = random.random() < 0.5 if is_bare is None else is_bare
    seconds, records, faults = WEATHERS[weather]
    settings = _settings(random, mode, weather)
    settings |= _settings_for_waiting(Random(f"waiting {seed}"), settings["batch_size"])
    if in_flight is not None:
        settings["max_in_flight_requests_per_connection"] = in_flight
    has_replication = random.random() < 0.5
    min_insync = random.choice([1, 2])
    partitions = 3
    kinds = FAIR if weather == "fair" else tuple(KINDS)
    if settings["acks"] == 1:
        kinds = tuple(kind for kind in kinds if kind not in ACKS_ALL_ONLY)
    if not has_replication or random.random() < 0.5:
        kinds = tuple(kind for kind in kinds if kind not in LOSSY)
    return Case(
        seed=seed,
        weather=weather,
        is_bare=is_bare,
        settings=settings,
        bursts=_bursts(random, seconds, records, partitions),
        faults=tuple(
            random_faults(
                random,
                seconds=seconds,
                count=faults,
                brokers=3,
                topics={TOPIC: partitions},
                kinds=kinds,
                scale=0.3 if weather == "fair" else 1.0,
            )
        ),
        seconds=seconds,
        lag=random.choice([0.001, 0.05, 0.5]) if has_replication else None,
        min_insync=min_insync,
        buffer=random.choice([131_072, 131_072, 5_000]),
        partitions=partitions,
    )


SECURITIES = (
    "SSL//",
    "SASL_PLAINTEXT/PLAIN/20000",
    "SASL_SSL/PLAIN/3000",
    "SASL_SSL/PLAIN/20000",
    "SASL_SSL/OAUTHBEARER/",
    "SASL_SSL/OAUTHBEARER/7000",
)
SECURITIES_OF_A_DAY = ("SSL//", "SASL_SSL/PLAIN/900000")
"""A day of sessions of seconds is more than a run can take."""


def secured(case: Case, security: str | None = None) -> Case:
    """The same case over TLS or with logins, and with faults of theirs: drawn apart, all else is as it was."""
    random = Random(f"security {case.seed}")
    drawn = random.choice(SECURITIES if case.weather != "day" else SECURITIES_OF_A_DAY)
    faults = random_faults(
        random,
        seconds=case.seconds,
        count=WEATHERS[case.weather].faults // 3,
        brokers=case.brokers,
        topics={TOPIC: case.partitions},
        kinds=tuple(SECURITY_KINDS),
        scale=0.3 if case.weather == "fair" else 1.0,
    )
    return replace(case, security=drawn if security is None else security, faults=(*case.faults, *faults))


def _settings(random: Random, mode: str, weather: str) -> dict[str, Any]:
    delivery, request = random.choice([(120_000, 30_000), (30_000, 10_000), (10_000, 3_000)])
    batch_size = random.choice([16_384, 2_000, 400])
    settings = MODES[mode] | {
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
    if weather == "fair":
        # Whatever is wrong is over long before these are.
        settings |= {"delivery_timeout_ms": 600_000, "request_timeout_ms": 3_000, "max_block_ms": 600_000}
    return settings


def _settings_for_waiting(random: Random, batch_size: int) -> dict[str, Any]:
    """What makes sends wait, for memory and for metadata: drawn apart, so all else of a seed is as before."""
    settings: dict[str, Any] = {"metadata_max_idle_ms": random.choice([300_000, 300_000, 5_000])}
    if random.random() < 0.2:
        # Fewer batches than partitions: a send waits for memory while batches linger.
        settings |= {"buffer_memory": 2 * batch_size, "linger_ms": random.choice([1_000, 5_000])}
    return settings


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
