"""The three experiments as rows of figures, which `__main__.py` runs in separate processes.

The balance uses as many records as published with KIP-794. The two others send a fraction of the published number
by default: latencies settle in a few virtual seconds, but records pile up at a slow broker for as long as they are
sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.partitioners import balance, batching, slow_broker
from benchmarks.partitioners.run import Measured

Row = dict[str, Any]


def figures(measured: Measured) -> Row:
    """Return the figures of a run, in milliseconds and records."""
    return {
        "mean_ms": round(measured.mean * 1e3, 2),
        "p50_ms": round(measured.percentile(0.5) * 1e3, 2),
        "p99_ms": round(measured.percentile(0.99) * 1e3, 2),
        "records_per_request": round(measured.records_per_request, 2),
        "records_per_second": round(len(measured.latencies) / measured.seconds),
        "by_partition": list(measured.by_partition),
        "by_broker": list(measured.by_broker),
    }


def run_batching(seed: int, records: int) -> list[Row]:
    return [
        {"brokers": brokers, "linger_ms": linger, "partitioner": name, **figures(measured)}
        for brokers, linger, name, measured in batching.run(seed, records)
    ]


def run_slow_broker(seed: int, records: int) -> list[Row]:
    return [
        {"choice": name, "published_mean_ms": slow_broker.PUBLISHED[name][1],
         "published_p99_ms": slow_broker.PUBLISHED[name][2], **figures(measured)}
        for name, measured in slow_broker.run(seed, records)
    ]  # fmt: skip


def run_balance(seed: int, records: int) -> list[Row]:
    return [
        {
            "partitioner": name,
            "by_partition": found,
            "spread_percent": round(100 * (max(found) - min(found)) * len(found) / sum(found), 2),
        }
        for name, found in balance.run(seed, records)
    ]


RUNS: dict[str, Callable[[int, int], list[Row]]] = {
    "batching": run_batching,
    "slow_broker": run_slow_broker,
    "balance": run_balance,
}

RECORDS = {
    "batching": (1_000, batching.RECORDS),
    "slow_broker": (12_288, slow_broker.RECORDS),
    "balance": (balance.RECORDS, balance.RECORDS),
}
"""The records of each run, and with `--full`."""
