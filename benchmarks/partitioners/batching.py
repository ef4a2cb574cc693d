"""KIP-480: each record to the next partition, or all to one until its batch goes.

Published: three producers of 1,000 records/s to 16 partitions; sticking halves latency and more, with linger.ms=0
and, much more so, with a longer one.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.partitioners.run import Load, Measured, measure

PARTITIONS = 16
RECORDS = 3_000
"""Of each producer."""
LINGERS = (0, 10, 100)
PARTITIONERS = ("round_robin", "sticky", "uniform_sticky")
BROKERS = {"at ease": 0.0004, "at their limit": 0.0012}
"""What a request costs a broker, in seconds: 3,000 requests/s of one record each keep three of them busy by 40 %
of the time, or by 120 %, so that records wait and are batched."""
PER_BYTE = 1e-8


def load(records: int, per_request: float) -> Load:
    return Load(
        partitions=PARTITIONS,
        records=records,
        rate=1000.0,
        size=256,
        producers=3,
        service_time=lambda _, size: per_request + size * PER_BYTE,
    )


def run(seed: int, records: int = RECORDS) -> Iterator[tuple[str, int, str, Measured]]:
    """Brokers at ease and at their limit, each linger.ms, each partitioner."""
    for brokers, per_request in BROKERS.items():
        for linger in LINGERS:
            for name in PARTITIONERS:
                settings = {"partitioner_class": name, "linger_ms": linger}
                yield brokers, linger, name, measure(load(records, per_request), settings, seed)
