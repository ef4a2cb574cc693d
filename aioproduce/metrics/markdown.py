"""Prints the table of metrics as the page `docs/reference/metrics.md`.

Used by `python -m aioproduce.metrics`; a test compares the checked-in page with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from aioproduce.metrics.catalog import (
    APP_INFO_TEXTS,
    NODE_ROWS,
    PRODUCER_ROWS,
    PRODUCER_SECTIONS,
    TOPIC_ROWS,
    is_own,
)
from aioproduce.metrics.rows import Row
from aioproduce.metrics.spool_metrics import SPOOL, SPOOL_ROWS, SPOOL_TOPIC, SPOOL_TOPIC_ROWS

_HEAD: Final = """\
# Metrics

Every metric of a producer, with the names of Kafka's Java client, so that dashboards and alerts for that client
work. This page is generated from the table that the code itself uses:
`python -m aioproduce.metrics > docs/reference/metrics.md`. [Troubleshooting](../how-to/troubleshooting.md) explains
which metrics to check for a problem.

## Reading them

<!-- block: shown: `json` is not imported, and node-2 is not in every cluster; tests/metrics reads each name -->
```python
snapshot = producer.metrics()
snapshot.value("record-send-rate")                          # of the producer
snapshot.value("record-error-total", topic="orders")        # of a topic, from its first batch on
snapshot.value("request-latency-max", node_id="node-2")     # of a broker, from its first connection on
for metric in snapshot:
    print(metric.group, metric.name, metric.tags, metric.value, metric.unit)
json.dumps(snapshot.as_dict())
```

- A **total** counts from the start of the producer and never falls.
- Rates, averages, maxima and percentiles are over the last `metrics.num.samples` windows of
  `metrics.sample.window.ms` each (2 of 30 s). A rate is over at least all but one of the windows, as in Kafka:
  right after the start it is too low rather than too high. Without any values, an average, a maximum or a
  percentile is NaN, and null in `as_dict()`.
- **Percentiles** (`-p50`, `-p99`, `-p999`) are ours. They are at most 4.4 % above the exact ones, and never above
  the maximum. `snapshot.histograms` has the counts since the start, for tools that compute percentiles themselves,
  e.g. over several producers together.
- All metrics have the tag `client-id`: give each producer of a process its own `client.id`.
- Metrics can be read before the start and after the end. Reading costs some 400 microseconds, and 25 for each topic
  and broker: every second is fine, every record is not. Values are recorded per batch, request and wait.

## What differs from Java's

- "Threads" are tasks: `waiting-threads` counts those that wait in `send()`; `waiting-tasks` is the same number.
- A "select" is a step of the sender, which runs in your event loop. `io-*` is the time of these steps and of
  reading answers: the share of the loop that the producer uses. `io-wait-*` is the time that it sleeps in
  between.
- `record-size-*` are of each record in its batch. Java's are of the largest record of each batch, with an
  estimate that includes the batch's header.
- `connection-close-*` and `connection-count` count only connections that were open; Java also counts refused ones.
- `record-error-total` without a topic also counts records that `send()`, `try_send()` or a bulk call refused, as
  Java's does; with a topic, only those that were accepted and failed. A call that is cancelled while it waits
  counts for the record that it waits for, as an interrupted thread does in Java.
- `produce-throttle-time-*` are of every answer except those to ApiVersions.
- `txn-*-time-ns-total` count the waiting time of calls. A commit continues when its call stops waiting; that time
  is not counted.
- `txn-committed-total`, `txn-aborted-total` and `txn-unknown-total` count each transaction once, by its outcome. A
  fenced producer counts its open transaction as aborted, or as unknown if a commit was in progress.
- `successful-authentication-no-reauth-total` counts connections whose broker does not end sessions. Java's client
  counts every connection there.
- `buffer-exhausted-total` counts each record that found no room, including those of `try_send()`, which does not
  wait.
- The deprecated `bufferpool-wait-time-total`, `iotime-total` and `io-waittime-total` are left out, as in Kafka 4.

"""


def markdown_page() -> str:
    """Return the whole page, as it is checked in."""
    return _HEAD + "\n".join(_sections()) + "\n"


def _sections() -> Iterator[str]:
    for title, rows in PRODUCER_SECTIONS.items():
        yield from _section(f"{title}: `producer-metrics`", "producer-metrics", rows)
    yield from _section(
        "Each topic: `producer-topic-metrics`, tag `topic`", "producer-topic-metrics", TOPIC_ROWS
    )
    yield from _section(
        "Each broker: `producer-node-metrics`, tag `node-id`", "producer-node-metrics", NODE_ROWS
    )
    yield "A broker is `node-2` by id, or `node--1` by its place in `bootstrap.servers` until the id is known.\n"
    yield from _section(f"A queue on disk: `{SPOOL}`, of a `SpooledProducer`", SPOOL, SPOOL_ROWS)
    yield from _section(f"Each topic of a queue: `{SPOOL_TOPIC}`, tag `topic`", SPOOL_TOPIC, SPOOL_TOPIC_ROWS)
    yield "## The rest\n"
    yield "| group | metric | description |\n|---|---|---|"
    for name, text in APP_INFO_TEXTS.items():
        yield f"| `app-info` | `{name}` | {text} |"
    yield "| `kafka-metrics-count` | `count` | The number of metrics |"
    yield (
        "| `producer-metrics` | `connections`, tags `clientSoftwareName` and `clientSoftwareVersion` | The "
        "open connections, by client and version |\n"
    )
    yield "## Histograms\n"
    yield "| histogram | unit | description |\n|---|---|---|"
    every: tuple[Row[Any], ...] = (*PRODUCER_ROWS, *SPOOL_ROWS)
    for row in every:
        if row.histogram is not None:
            yield f"| `{row.name.removesuffix('-avg')}` | {row.unit} | {row.histogram[0]} |"


def _section(title: str, group: str, rows: Iterable[Row[Any]]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| metric | unit | kind | description | origin |\n|---|---|---|---|---|"
    for row in rows:
        whose = "ours" if is_own(group, row.name) else "Kafka's"
        yield f"| `{row.name}` | {row.unit} | {row.kind.value} | {row.description} | {whose} |"
    yield ""
