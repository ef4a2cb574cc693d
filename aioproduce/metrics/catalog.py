"""The table of all metrics: Kafka's, with Kafka's names, meanings and units, followed by ours.

Used by the ProducerLife for `producer.metrics()`. One row is one name; descriptions are for people and appear in
Prometheus's HELP and in the docs.

Some metrics differ from Java's, because a client with an event loop is not one with threads:

- `waiting-threads` counts tasks (`waiting-tasks` is the same number), which together may wait more than a second
  per second: `bufferpool-wait-ratio` can exceed 1, as with threads.
- `select-*`, `io-*` and `io-wait-*`: a select is a step of the sender. I/O time is the time of these steps and of
  reading answers; I/O wait is the time that the sender sleeps in between.
- `record-size-*` are the bytes of a record in its batch. Java's are of the largest record of each batch, with an
  estimate that includes the batch's header.
- `connection-close-*` and `connection-count` count only connections that were open; Java also counts refused ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aioproduce.metrics.metric import Metric, MetricKind, MetricsSnapshot
from aioproduce.metrics.producer_metrics import TIMED_CALLS, ProducerMetrics
from aioproduce.metrics.rows import (
    PERCENTILES,
    Row,
    average,
    counted,
    distribution,
    gauge,
    level,
    looked_up_total,
    meter,
    read_histograms,
    read_rows,
    spread,
    table,
    total,
)
from aioproduce.metrics.spool_metrics import SPOOL, SPOOL_TOPIC

if TYPE_CHECKING:
    from aioproduce._native.sensors import NodeMetrics, TopicMetrics

PRODUCER: Final = "producer-metrics"
TOPIC: Final = "producer-topic-metrics"
NODE: Final = "producer-node-metrics"
APP_INFO: Final = "app-info"
COUNT: Final = "kafka-metrics-count"

_SENDER_ROWS: Final[tuple[Row[ProducerMetrics], ...]] = table(
    distribution(
        "batch-size",
        "bytes",
        "number of bytes sent per partition in a request",
        lambda m: m.batches.size,
        "Bytes sent per partition in a request",
    ),
    average(
        "compression-rate",
        "",
        "compressed size of a batch's records divided by their size",
        lambda m: m.batches.compression,
    ),
    distribution(
        "record-queue-time",
        "ms",
        "time of a batch from its first record until it was sent",
        lambda m: m.batches.queue_time,
    ),
    distribution(
        "request-latency", "ms", "time until a Produce request was answered", lambda m: m.request_latency
    ),
    meter("record-send", "records", "records sent, each attempt counted", lambda m: m.batches.records),
    average(
        "records-per-request",
        "records",
        "number of records in a request",
        lambda m: m.batches.records_per_request,
    ),
    spread(
        "record-size",
        "bytes",
        "size of a record in its batch, before compression",
        lambda m: m.batches.record_size,
    ),
    meter(
        "record-retry",
        "records",
        "records that were queued again after an error",
        lambda m: m.batches.retries,
    ),
    meter(
        "record-error", "records", "records that failed, or that send() refused", lambda m: m.batches.errors
    ),
    meter(
        "batch-split",
        "batches",
        "batches that were split because the broker found them too large",
        lambda m: m.batch_splits,
    ),
    gauge("requests-in-flight", "requests", "The requests without an answer"),
    gauge("metadata-age", "s", "The age of the metadata in use"),
    distribution(
        "produce-throttle-time",
        "ms",
        "time for which a broker throttled this client, per answer",
        lambda m: m.throttle,
        "Time for which a broker throttled this client",
    ),
)

_BUFFER_ROWS: Final[tuple[Row[ProducerMetrics], ...]] = table(
    gauge("waiting-threads", "tasks", "The tasks that wait for room in buffer.memory"),
    gauge("buffer-total-bytes", "bytes", "The maximum memory for records: buffer.memory"),
    gauge("buffer-available-bytes", "bytes", "The part of buffer.memory that is free"),
    level(
        "bufferpool-wait-ratio",
        "",
        "The time that all tasks waited for room, per second",
        lambda m, now: m.buffer_wait.rate(now) / 1e9,
    ),
    total(
        "bufferpool-wait-time-ns-total", "ns", "The total time waited for room", lambda m: m.buffer_wait.total
    ),
    meter(
        "buffer-exhausted",
        "records",
        "records refused because there was no room",
        lambda m: m.buffer_exhausted,
    ),
)


def _spent(call: str, what: str) -> Row[ProducerMetrics]:
    return total(f"{call}-time-ns-total", "ns", f"The total time that {what}", lambda m: float(m.calls[call]))


_CALL_ROWS: Final = tuple(_spent(call, what) for call, what in TIMED_CALLS.items())

_NETWORK_ROWS: Final[tuple[Row[ProducerMetrics], ...]] = table(
    meter("connection-close", "connections", "connections closed", lambda m: m.connections_closed),
    meter("connection-creation", "connections", "connections opened", lambda m: m.connections_created),
    gauge("connection-count", "connections", "The connections that are open"),
    meter(
        "successful-authentication",
        "connections",
        "connections that authenticated",
        lambda m: m.authentications,
    ),
    total(
        "successful-authentication-no-reauth-total",
        "connections",
        "The total number of connections that need not authenticate again",
        lambda m: m.authentications_without_end.total,
    ),
    meter(
        "successful-reauthentication",
        "connections",
        "connections that authenticated again",
        lambda m: m.reauthentications,
    ),
    meter(
        "failed-authentication",
        "connections",
        "connections that could not authenticate",
        lambda m: m.failed_authentications,
    ),
    meter(
        "failed-reauthentication",
        "connections",
        "connections that could not authenticate again",
        lambda m: m.failed_reauthentications,
    ),
    spread(
        "reauthentication-latency",
        "ms",
        "time to authenticate again",
        lambda m: m.reauthentication_latency,
    ),
    meter(
        "network-io", "operations", "reads and writes on all connections", lambda m: m.all_nodes.operations
    ),
    meter("outgoing-byte", "bytes", "bytes written to all brokers", lambda m: m.all_nodes.outgoing),
    meter("incoming-byte", "bytes", "bytes read from all brokers", lambda m: m.all_nodes.incoming),
    counted("request", "requests", "requests sent", lambda m: m.all_nodes.requests),
    spread("request-size", "bytes", "size of a request", lambda m: m.all_nodes.requests),
    meter("response", "responses", "answers", lambda m: m.all_nodes.responses),
    counted("select", "steps", "times that the sender looked for work", lambda m: m.steps_worked),
    level(
        "io-wait-time-ns-avg",
        "ns",
        "The average time that the sender slept between two steps",
        lambda m, now: m.steps_waited.average(now),
    ),
    level(
        "io-wait-ratio",
        "",
        "The share of time that the sender slept",
        lambda m, now: m.steps_waited.sum_rate(now) / 1e9,
    ),
    total(
        "io-wait-time-ns-total", "ns", "The total time that the sender slept", lambda m: m.steps_waited.total
    ),
    level(
        "io-time-ns-avg",
        "ns",
        "The average time of a step of the sender",
        lambda m, now: m.steps_worked.average(now),
    ),
    level(
        "io-ratio",
        "",
        "The share of time that the sender worked",
        lambda m, now: m.steps_worked.sum_rate(now) / 1e9,
    ),
    total("io-time-ns-total", "ns", "The total time that the sender worked", lambda m: m.steps_worked.total),
)

_OUR_ROWS: Final[tuple[Row[ProducerMetrics], ...]] = table(
    gauge("waiting-tasks", "tasks", "The tasks that wait for room in buffer.memory"),
    gauge(
        "oldest-record-age",
        "ms",
        "How long ago the oldest record was accepted that has no outcome yet; 0 for none",
    ),
    gauge(
        "oldest-send-wait",
        "ms",
        "How long the oldest send() has waited that still waits, for its topic or for room; 0 for none",
    ),
    gauge(
        "silent-brokers",
        "brokers",
        "The brokers that stopped answering: requests wait, and for a second or more no byte came",
    ),
    gauge("txn-pause", "ms", "The pause before the first request of the next transaction"),
    gauge("txn-first-produce-wait", "ms", "The time of the first Produce of the latest transaction"),
    gauge(
        "txn-open-time", "ms", "How long the open transaction may have existed at its coordinator; 0 for none"
    ),
    looked_up_total("txn-committed-total", "transactions", "The total number of transactions committed"),
    looked_up_total("txn-aborted-total", "transactions", "The total number of transactions aborted"),
    looked_up_total(
        "txn-unknown-total", "transactions", "The total number of transactions whose outcome is unknown"
    ),
    distribution(
        "send-wait-time",
        "ms",
        "time that a send() waited for room, if it had to wait",
        lambda m: m.buffer_wait_time,
    ),
    distribution(
        "batching-time",
        "ms",
        "time of a batch from its first record until it was full or linger.ms had passed",
        lambda m: m.batches.batching_time,
        "Time of a batch until it was full or linger.ms had passed",
    ),
    distribution(
        "await-send-time",
        "ms",
        "time that a complete batch waited to be sent",
        lambda m: m.batches.await_send_time,
    ),
    distribution(
        "in-flight-time", "ms", "time of a batch's first attempt", lambda m: m.batches.in_flight_time
    ),
    distribution(
        "retry-time",
        "ms",
        "time from the failure of a batch's first attempt to its outcome",
        lambda m: m.batches.retry_time,
        "Time from the failure of the first attempt to the outcome",
    ),
    distribution(
        "delivery-time",
        "ms",
        "time of a batch from its first record to its outcome",
        lambda m: m.batches.delivery_time,
    ),
    distribution(
        "event-loop-lag", "ms", "delay with which the event loop ran the sender", lambda m: m.loop_lag
    ),
    meter(
        "unobserved-failure",
        "records",
        "records that failed without being awaited",
        lambda m: m.unobserved_failures,
    ),
)

PRODUCER_SECTIONS: Final[Mapping[str, tuple[Row[ProducerMetrics], ...]]] = {
    "Records and requests": _SENDER_ROWS,
    "The buffer": _BUFFER_ROWS,
    "Calls": _CALL_ROWS,
    "The network": _NETWORK_ROWS,
    "Stages of a record's life, and the event loop": _OUR_ROWS,
}
"""The metrics of the producer itself. All sections but the last are Kafka's; percentiles are always ours."""

PRODUCER_ROWS: Final = table(*PRODUCER_SECTIONS.values())

GAUGES: Final = (
    "requests-in-flight",
    "metadata-age",
    "waiting-threads",
    "waiting-tasks",
    "oldest-record-age",
    "oldest-send-wait",
    "silent-brokers",
    "txn-pause",
    "txn-first-produce-wait",
    "txn-open-time",
    "txn-committed-total",
    "txn-aborted-total",
    "txn-unknown-total",
    "buffer-total-bytes",
    "buffer-available-bytes",
    "connection-count",
)
"""The metrics that the owner of the sensors looks up: names of `ProducerMetrics.gauges`."""

TOPIC_ROWS: Final[tuple[Row[TopicMetrics], ...]] = table(
    meter("record-send", "records", "records sent, each attempt counted", lambda m: m.records),
    meter("byte", "bytes", "bytes sent, compressed", lambda m: m.bytes),
    level(
        "compression-rate",
        "",
        "The average compressed size of a batch's records divided by their size",
        lambda m, now: m.compression.average(now),
    ),
    meter("record-retry", "records", "records that were queued again after an error", lambda m: m.retries),
    meter("record-error", "records", "records that failed", lambda m: m.errors),
)

_OUR_NODE_ROWS: Final[tuple[Row[NodeMetrics], ...]] = table(
    level(
        "requests-in-flight",
        "requests",
        "The requests without an answer",
        lambda m, _: float(m.in_flight()),
    ),
    level(
        "silent-time",
        "ms",
        "How long requests have waited without a byte from the broker; 0 while none waits",
        lambda m, now: m.silent_for(now) * 1000,
    ),
)

NODE_ROWS: Final[tuple[Row[NodeMetrics], ...]] = table(
    counted("request", "requests", "requests sent", lambda m: m.requests),
    spread("request-size", "bytes", "size of a request", lambda m: m.requests),
    meter("outgoing-byte", "bytes", "bytes written", lambda m: m.outgoing),
    meter("response", "responses", "answers", lambda m: m.responses),
    meter("incoming-byte", "bytes", "bytes read", lambda m: m.incoming),
    spread("request-latency", "ms", "time until a Produce request was answered", lambda m: m.latency),
    _OUR_NODE_ROWS,
)

_OWN_NAMES: Final[Mapping[str, frozenset[str]]] = {
    PRODUCER: frozenset(row.name for row in _OUR_ROWS) | {"connections"},
    NODE: frozenset(row.name for row in _OUR_NODE_ROWS),
}
"""By group, the metrics that Kafka's own producer does not have; `is_own()` adds the percentiles."""


def is_own(group: str, name: str) -> bool:
    """Return whether Kafka's own producer lacks this metric."""
    return (
        group in (SPOOL, SPOOL_TOPIC)
        or name in _OWN_NAMES.get(group, ())
        or name.endswith(tuple(f"-{suffix}" for suffix, _ in PERCENTILES))
    )


def snapshot(
    metrics: ProducerMetrics,
    client_id: str,
    app_info: Mapping[str, str | float],
    now: float,
    taken_at_ms: int,
) -> MetricsSnapshot:
    """Read all sensors.

    Args:
        metrics: The sensors.
        client_id: The tag of all metrics.
        app_info: `version`, `commit-id` and `start-time-ms`.
        now: The end of the windows.
        taken_at_ms: The same instant in milliseconds since the epoch.
    """
    tags = {"client-id": client_id}
    found: list[Metric] = []
    found += read_rows(PRODUCER, tags, PRODUCER_ROWS, metrics, now)
    found.append(_connections(metrics, tags, app_info, now))
    # Copied in one step: another thread may read this while a topic or a broker is added.
    for topic, of_topic in list(metrics.batches.topics.items()):
        found += read_rows(TOPIC, {**tags, "topic": topic}, TOPIC_ROWS, of_topic, now)
    for node_id, of_node in list(metrics.nodes.items()):
        found += read_rows(NODE, {**tags, "node-id": f"node-{node_id}"}, NODE_ROWS, of_node, now)
    for name, value in app_info.items():
        kind = MetricKind.TEXT if isinstance(value, str) else MetricKind.GAUGE
        unit = "" if isinstance(value, str) else "ms"
        found.append(Metric(APP_INFO, name, tags, APP_INFO_TEXTS[name], unit, kind, value))
    count = float(len(found) + 1)
    found.append(Metric(COUNT, "count", tags, "The number of metrics", "metrics", MetricKind.GAUGE, count))
    histograms = read_histograms(PRODUCER_ROWS, tags, metrics)
    return MetricsSnapshot(found, histograms, taken_at_ms)


def _connections(
    metrics: ProducerMetrics, tags: Mapping[str, str], app_info: Mapping[str, str | float], now: float
) -> Metric:
    """Return the number of open connections, with the name and version that this client sends (KIP-511)."""
    software = {"clientSoftwareName": "aioproduce", "clientSoftwareVersion": str(app_info["version"])}
    return Metric(
        PRODUCER,
        "connections",
        {**tags, **software},
        "The open connections, by client and version",
        "connections",
        MetricKind.GAUGE,
        metrics.gauges["connection-count"](now),
    )


APP_INFO_TEXTS: Final[Mapping[str, str]] = {
    "version": "The version of aioproduce",
    "commit-id": "The revision that it was built from, if known",
    "start-time-ms": "The time when the producer was started, in milliseconds since the epoch",
}
