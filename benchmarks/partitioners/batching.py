"""KIP-480: each record to the next partition, or all records to one until its batch is sent.

Published: three producers of 1,000 records/s to 16 partitions. Staying with a partition more than halves latency
with linger.ms=0, and reduces it much more with a longer one.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.partitioners.run import Load, Measured, measure

PARTITIONS = 16
RECORDS = 3_000
"""The records of each producer."""
LINGERS = (0, 10, 100)
PARTITIONERS = ("round_robin", "sticky", "uniform_sticky")
BROKERS = {"at ease": 0.0004, "at their limit": 0.0012}
"""A broker's seconds for a request: 3,000 requests/s of one record each keep three brokers busy for 40 % of the
time, or for 120 %, so that records wait and are batched."""
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
    """Run with brokers at ease and at their limit, for each linger.ms and each partitioner."""
    for brokers, per_request in BROKERS.items():
        for linger in LINGERS:
            for name in PARTITIONERS:
                settings = {"partitioner_class": name, "linger_ms": linger}
                yield brokers, linger, name, measure(load(records, per_request), settings, seed)
