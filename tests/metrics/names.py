"""The names that an operator of Kafka expects, from Kafka's own sources and never from the table under test.

`SenderMetricsRegistry`, `KafkaProducerMetrics`, `BufferPool`, `RecordAccumulator`, `Selector`, `AppInfoParser` and
`Metrics`, as of Kafka 4.x. Each name has the unit of its value, as the descriptions there tell it.
"""

from __future__ import annotations

from itertools import chain
from typing import Final


def meter(name: str, unit: str) -> dict[str, str]:
    """Kafka's `Meter`."""
    return {f"{name}-rate": f"{unit}/s", f"{name}-total": unit}


def average_and_maximum(name: str, unit: str) -> dict[str, str]:
    """Kafka's `Avg` and `Max` of one sensor."""
    return {f"{name}-avg": unit, f"{name}-max": unit}


def merged(*groups: dict[str, str]) -> dict[str, str]:
    """All of them, each name once."""
    names = list(chain.from_iterable(groups))
    assert len(names) == len(set(names))
    return {name: unit for group in groups for name, unit in group.items()}


SENDER: Final = merged(
    average_and_maximum("batch-size", "bytes"),
    {"compression-rate-avg": ""},
    average_and_maximum("record-queue-time", "ms"),
    average_and_maximum("request-latency", "ms"),
    meter("record-send", "records"),
    {"records-per-request-avg": "records"},
    average_and_maximum("record-size", "bytes"),
    meter("record-retry", "records"),
    meter("record-error", "records"),
    meter("batch-split", "batches"),
    {"requests-in-flight": "requests", "metadata-age": "s"},
    average_and_maximum("produce-throttle-time", "ms"),
)
"""SenderMetricsRegistry."""

BUFFER: Final = merged(
    {"waiting-threads": "tasks", "buffer-total-bytes": "bytes", "buffer-available-bytes": "bytes"},
    {"bufferpool-wait-ratio": "", "bufferpool-wait-time-ns-total": "ns"},
    meter("buffer-exhausted", "records"),
)
"""BufferPool and RecordAccumulator."""

CALLS: Final = {
    f"{call}-time-ns-total": "ns"
    for call in (
        "flush",
        "txn-init",
        "txn-begin",
        "txn-send-offsets",
        "txn-prepare",
        "txn-commit",
        "txn-abort",
        "metadata-wait",
    )
}
"""KafkaProducerMetrics."""

NETWORK: Final = merged(
    meter("connection-close", "connections"),
    meter("connection-creation", "connections"),
    {"connection-count": "connections", "connections": "connections"},
    meter("successful-authentication", "connections"),
    meter("successful-reauthentication", "connections"),
    {"successful-authentication-no-reauth-total": "connections"},
    meter("failed-authentication", "connections"),
    meter("failed-reauthentication", "connections"),
    average_and_maximum("reauthentication-latency", "ms"),
    meter("network-io", "operations"),
    meter("outgoing-byte", "bytes"),
    meter("incoming-byte", "bytes"),
    meter("request", "requests"),
    average_and_maximum("request-size", "bytes"),
    meter("response", "responses"),
    meter("select", "steps"),
    {"io-wait-time-ns-avg": "ns", "io-wait-ratio": "", "io-wait-time-ns-total": "ns"},
    {"io-time-ns-avg": "ns", "io-ratio": "", "io-time-ns-total": "ns"},
)
"""Selector."""

TOPIC: Final = merged(
    meter("record-send", "records"),
    meter("byte", "bytes"),
    {"compression-rate": ""},
    meter("record-retry", "records"),
    meter("record-error", "records"),
)
NODE: Final = merged(
    meter("request", "requests"),
    average_and_maximum("request-size", "bytes"),
    meter("outgoing-byte", "bytes"),
    meter("response", "responses"),
    meter("incoming-byte", "bytes"),
    average_and_maximum("request-latency", "ms"),
)
APP_INFO: Final = {"version": "", "commit-id": "", "start-time-ms": "ms"}
COUNT: Final = {"count": "metrics"}

KAFKAS: Final = {
    "producer-metrics": merged(SENDER, BUFFER, CALLS, NETWORK),
    "producer-topic-metrics": TOPIC,
    "producer-node-metrics": NODE,
    "app-info": APP_INFO,
    "kafka-metrics-count": COUNT,
}
"""Kafka's, by group."""

TAGS: Final = {
    "producer-metrics": {"client-id"},
    "producer-topic-metrics": {"client-id", "topic"},
    "producer-node-metrics": {"client-id", "node-id"},
    "app-info": {"client-id"},
    "kafka-metrics-count": {"client-id"},
}
"""By group, what every metric in it is tagged with. `connections` has its client's name and version besides."""

PERCENTILES: Final = ("p50", "p99", "p999")

OF_KAFKAS_WITH_PERCENTILES: Final = (
    "batch-size",
    "record-queue-time",
    "request-latency",
    "produce-throttle-time",
)
OUR_TIMES: Final = (
    "send-wait-time",
    "batching-time",
    "await-send-time",
    "in-flight-time",
    "retry-time",
    "delivery-time",
    "event-loop-lag",
)
OURS: Final = {
    "producer-metrics": merged(
        {"waiting-tasks": "tasks", "txn-pause": "ms", "txn-first-produce-wait": "ms", "txn-open-time": "ms"},
        {"oldest-record-age": "ms", "oldest-send-wait": "ms", "silent-brokers": "brokers"},
        dict.fromkeys(
            ("txn-committed-total", "txn-aborted-total", "txn-unknown-total"),
            "transactions",
        ),
        meter("unobserved-failure", "records"),
        *(average_and_maximum(name, "ms") for name in OUR_TIMES),
        *({f"{name}-{suffix}": "ms" for suffix in PERCENTILES} for name in OUR_TIMES),
        {f"batch-size-{suffix}": "bytes" for suffix in PERCENTILES},
        *(
            {f"{name}-{suffix}": "ms" for suffix in PERCENTILES}
            for name in OF_KAFKAS_WITH_PERCENTILES
            if name != "batch-size"
        ),
    ),
    "producer-node-metrics": {"requests-in-flight": "requests", "silent-time": "ms"},
}
"""What we add, by group."""
