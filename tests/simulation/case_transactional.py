"""One case of transactions: what tasks put into them, how they leave them, and what goes wrong meanwhile.

As `case`, for `run_transactional`: plain data, which can be printed, kept in a file and made smaller.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, NamedTuple

from aioproduce.testing.fake_cluster.log import TopicConfig
from aioproduce.testing.fake_cluster.partition import ReplicationConfig
from aioproduce.testing.fake_cluster.transaction_states import TransactionConfig
from aioproduce.testing.simulation import KINDS, TRANSACTION_KINDS, ScheduledFault, random_faults
from tests.simulation.case import LOSSY, TOPIC

SOURCE = "in"
"""The topic that groups read: only their offsets of it matter."""

PARTITIONS = {TOPIC: 3, SOURCE: 2}
TOO_LARGE = 30_000
"""Bytes of a record that no broker takes."""

SECONDS = 3600.0
ENDINGS = (
    *["commit"] * 6,
    *["context"] * 4,
    "abort",
    "raise",
    "cancelled body",
    "cancelled commit",
    "cancelled commit, left alone",
    "closed",
    "closed while it commits",
    "too long",
    "too large",
)
"""How a task leaves its transaction."""


class Plan(NamedTuple):
    """One transaction.

    Attributes:
        at: When it begins, or as soon as the one before it is over.
        writer: Whose: there is a transactional id for each.
        records: How many.
        pace: Seconds between two of them.
        groups: How many groups' offsets are in it.
        ending: One of `ENDINGS`.
        is_rival: Another producer with the same transactional id runs it, and ends.
        after: Seconds until a cancel or a close.
    """

    at: float
    writer: int
    records: int
    pace: float
    groups: int
    ending: str
    is_rival: bool
    after: float


@dataclass(frozen=True)
class TransactionalCase:
    """What happens in one run; what is not said here is as in `case.Case`.

    Attributes:
        bursts: The transactions.
        version: `transaction.version` at the beginning.
        first_epoch: The epoch that each transactional id has had.
        transactions: Of `TransactionConfig`.
    """

    seed: int
    settings: dict[str, Any]
    bursts: tuple[Plan, ...]
    faults: tuple[ScheduledFault, ...]
    version: int
    first_epoch: int
    transactions: dict[str, float]
    lag: float | None = None
    min_insync: int = 1
    writers: int = 2
    seconds: float = SECONDS
    weather: str = "transactions"
    is_idempotent: bool = True

    @property
    def mode(self) -> str:
        return f"version {self.version}"

    @property
    def delivery_timeout(self) -> float:
        return float(self.settings["delivery_timeout_ms"]) / 1000

    @property
    def max_block(self) -> float:
        return float(self.settings["max_block_ms"]) / 1000

    @property
    def transaction_timeout(self) -> float:
        return float(self.settings["transaction_timeout_ms"]) / 1000

    def cluster_settings(self) -> dict[str, Any]:
        """What `Simulation` takes."""
        return {
            "replication": None if self.lag is None else ReplicationConfig(lag=self.lag, lag_timeout=10.0),
            "default_config": TopicConfig(
                min_insync_replicas=self.min_insync, max_message_bytes=TOO_LARGE - 1
            ),
            "transaction_version": self.version,
            "transactions": TransactionConfig(**self.transactions),
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> TransactionalCase:
        fields = json.loads(text)
        fields["bursts"] = tuple(Plan(*plan) for plan in fields["bursts"])
        fields["faults"] = tuple(ScheduledFault(**fault) for fault in fields["faults"])
        return cls(**fields)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {self.mode}: {len(self.bursts)} transactions, {len(self.faults)} faults, "
            f"lag {self.lag}, min.insync {self.min_insync}, epoch {self.first_epoch}, {self.transactions}",
            "  " + ", ".join(f"{name}={value}" for name, value in self.settings.items()),
        ]
        lines += [f"  {plan}" for plan in self.bursts]
        lines += [f"  fault {fault}" for fault in self.faults]
        return "\n".join(lines)


def make_transactional(
    seed: int,
    *,
    version: int | None = None,
    kinds: tuple[str, ...] | None = None,
    ending: str | None = None,
    has_rivals: bool | None = None,
    pace: float | None = None,
) -> TransactionalCase:
    """Draw a case from a seed; what is given is not drawn."""
    random = Random(f"transactions {seed}")
    has_replication = random.random() < 0.4
    has_rivals = random.random() < 0.3 if has_rivals is None else has_rivals
    settings = _settings(random)
    drawn = random.choice([1, 2])
    if kinds is None:
        kinds = (*(kind for kind in KINDS if kind not in LOSSY), *list(TRANSACTION_KINDS) * 3)
        if random.random() < 0.5:
            kinds = tuple(kind for kind in kinds if kind != "transaction.version")
    faults = random_faults(
        random, seconds=SECONDS, count=random.choice([30, 90]), brokers=3, topics={TOPIC: 3}, kinds=kinds
    )
    writers = 2
    plans = []
    for number in range(44):
        near = random.choice(faults).at if random.random() < 0.6 else random.uniform(0, SECONDS)
        drawn_ending = random.choice(ENDINGS)
        timeout = settings["transaction_timeout_ms"] / 1000
        plans.append(
            Plan(
                at=near + random.uniform(-2.0, 2.0),
                writer=number % writers,
                records=random.choice([1, 2, 3, 5, 8]),
                pace=timeout / 2
                if drawn_ending == "too long"
                else random.choice([0.0, 0.0, 0.01, 0.5])
                if pace is None
                else pace,
                groups=random.choice([0, 0, 1, 2]),
                ending=ending or drawn_ending,
                is_rival=has_rivals and random.random() < 0.1,
                after=random.choice([0.0, 0.001, 0.003, 0.02, 1.0]),
            )
        )
    return TransactionalCase(
        seed=seed,
        settings=settings,
        bursts=tuple(sorted(plans)),
        faults=tuple(faults),
        version=drawn if version is None else version,
        first_epoch=random.choice([-1, -1, 32_757, 32_762]),
        transactions={
            "marker_delay": random.choice([0.0, 0.001, 0.01, 0.2]),
            "load_time": random.choice([0.0, 0.05, 2.0]),
            "abort_interval": random.choice([0.0, 10.0]),
        },
        lag=random.choice([0.001, 0.05]) if has_replication else None,
        min_insync=random.choice([1, 2]),
        writers=writers,
    )


def _settings(random: Random) -> dict[str, Any]:
    delivery, request = random.choice([(30_000, 10_000), (10_000, 3_000), (5_000, 1_000)])
    return {
        "acks": "all",
        "max_in_flight_requests_per_connection": random.choice([1, 5, 5]),
        "delivery_timeout_ms": delivery,
        "request_timeout_ms": request,
        "linger_ms": random.choice([0, 5, 200]),
        "batch_size": random.choice([16_384, 400]),
        "max_block_ms": random.choice([60_000, 10_000, 2_000]),
        "metadata_max_age_ms": 300_000,
        "transaction_timeout_ms": random.choice([60_000, 20_000, 5_000]),
    }
