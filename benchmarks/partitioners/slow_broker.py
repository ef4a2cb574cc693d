"""KIP-794: three brokers with a partition each, one of which takes 20 ms longer for each request.

Published (122,880 records of 512 bytes at 2,048/s): with the old default, records pile up at the slow broker, the
rate is not reached, and latency is seconds. Even shares take 50 ms on average, adaptive ones 40, and 36 with a
short availability time-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.partitioners.run import Load, Measured, measure

SLOW = 0
RECORDS = 122_880
"""As published: a minute of virtual time."""
PUBLISHED: dict[str, tuple[float, float, float]] = {
    "sticky": (0.84, 4072.74, 10992.0),
    "uniform": (1.0, 49.92, 214.0),
    "adaptive": (1.0, 40.06, 154.0),
    "availability time-out": (1.0, 36.29, 150.0),
}
"""MB/s, and the average and the 99th percentile of latency in milliseconds."""

KINDS: dict[str, dict[str, Any]] = {
    "sticky": {"partitioner_class": "sticky"},
    "uniform": {"partitioner_adaptive_partitioning_enable": False},
    "adaptive": {},
    "availability time-out": {"partitioner_availability_timeout_ms": 5},
}


def service_time(broker: int, size: int) -> float:
    return (0.0206 if broker == SLOW else 0.0006) + size * 1e-8


def load(records: int) -> Load:
    return Load(partitions=3, records=records, rate=2048.0, size=512, service_time=service_time)


def run(seed: int, records: int = RECORDS) -> Iterator[tuple[str, Measured]]:
    """Run with each way to choose a partition."""
    for name, settings in KINDS.items():
        # linger.ms was 0 by default then.
        yield name, measure(load(records), {"linger_ms": 0, **settings}, seed)
