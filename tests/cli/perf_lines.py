"""The lines of Kafka's `kafka-producer-perf-test`, as regular expressions.

Written from the format strings of `org.apache.kafka.tools.ProducerPerformance` in Kafka 4.3.1:

    "%d records sent, %.1f records/sec (%.2f MB/sec), %.1f ms avg latency, %.1f ms max latency.%n"
    "%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, %d ms 50th,
     %d ms 95th, %d ms 99th, %d ms 99.9th.%n"

and of `ToolsUtils.printMetrics`. Used by the tests with the fake cluster and by the one with real Kafka, where
Kafka's own tool must match them, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


def _pattern(java: str) -> re.Pattern[str]:
    """A Java format string as a regular expression of what it can print; each argument is a group."""
    text = re.escape(java)
    for conversion, printed in (
        ("%d", r"(\d+)"),
        (r"%\.1f", r"(\d+\.\d)"),
        (r"%\.2f", r"(\d+\.\d\d)"),
        ("%f", r"(\d+\.\d{6})"),
        ("%s", r"((?: steady state)?)"),
    ):
        text = text.replace(conversion, printed)
    return re.compile(text)


WINDOW = _pattern(
    "%d records sent, %.1f records/sec (%.2f MB/sec), %.1f ms avg latency, %.1f ms max latency."
)
TOTAL = _pattern(
    "%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, "
    "%d ms 50th, %d ms 95th, %d ms 99th, %d ms 99.9th."
)
WARMUP = _pattern("Warmup first %d records. Steady state results will print after the complete test summary.")
STEADY = "In steady state."
METRICS_HEAD = re.compile(r"Metric Name +Value")
METRIC = re.compile(r"([a-z-]+:[a-z0-9-]+:\{[^}]*\}) *: (-?\d+\.\d{3}|NaN|-?Infinity|[^ ]+)")


@dataclass
class Read:
    """Lines by their kind, with their numbers."""

    windows: list[tuple[float, ...]] = field(default_factory=list)
    totals: list[tuple[str, ...]] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)


def read(out: str) -> Read:
    """Every line; raises on one that Kafka's tool does not print."""
    found = Read()
    for line in out.splitlines():
        if window := WINDOW.fullmatch(line):
            found.kinds.append("window")
            found.windows.append(tuple(map(float, window.groups())))
        elif total := TOTAL.fullmatch(line):
            found.kinds.append("total")
            found.totals.append(total.groups())
        elif WARMUP.fullmatch(line):
            found.kinds.append("warmup")
        elif line == STEADY:
            found.kinds.append("steady")
        elif line.startswith(("Reading payloads from: /", "Number of records read: ")):
            found.kinds.append("payloads")
        elif line == "" or METRICS_HEAD.fullmatch(line):
            found.kinds.append("head")
        elif metric := METRIC.fullmatch(line):
            found.kinds.append("metric")
            found.metrics[metric[1]] = metric[2]
        else:
            raise AssertionError(f"Kafka's tool has no such line: {line!r}")
    return found
