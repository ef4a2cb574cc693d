"""What `producer.metrics()` gives: values at one instant, by Kafka's names; plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, final


class MetricKind(Enum):
    """How a value may be read."""

    TOTAL = "total"
    """Only grows, from the start of the producer on."""
    GAUGE = "gauge"
    """Goes up and down: a state, a rate, an average or a percentile."""
    TEXT = "text"
    """Is no number."""


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """One value.

    Attributes:
        group: Kafka's group, as `producer-metrics`, `producer-topic-metrics` or `producer-node-metrics`.
        name: Kafka's name, as `record-send-total`.
        tags: `client-id`, and `topic` or `node-id` where the group has one of each.
        description: What it is.
        unit: Of the value: `ms`, `ns`, `s`, `bytes`, `records`, ... or `1/s` of those; empty for text and ratios.
        kind: How it may be read.
        value: NaN for an average, a maximum or a percentile of nothing, as in Kafka.
    """

    group: str
    name: str
    tags: Mapping[str, str]
    description: str
    unit: str
    kind: MetricKind
    value: float | str


@final
@dataclass(frozen=True, slots=True)
class Histogram:
    """All that was ever recorded of one size or duration; for exporters that count percentiles themselves.

    Attributes:
        name: As the metrics of the same numbers begin: `request-latency` for `request-latency-avg`.
        tags: As those of a metric.
        description: What it is.
        unit: `ms` or `bytes`.
        bounds: Upper ends of the buckets, ascending.
        counts: For each bound how many were at most that; one more than bounds, the last for all.
        total: Their sum.
    """

    name: str
    tags: Mapping[str, str]
    description: str
    unit: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """How many were recorded."""
        return self.counts[-1]


@final
class MetricsSnapshot(Sequence[Metric]):
    """All metrics of one producer at one instant.

    Args:
        metrics: The values.
        histograms: What is beneath some of them.
        taken_at_ms: When, in milliseconds since the epoch.

    Example:
        >>> snapshot = producer.metrics()
        >>> snapshot.value("record-send-total")
        1520.0
        >>> snapshot.value("record-send-total", topic="orders")
        400.0
        >>> [metric.name for metric in snapshot.find("request-latency-max", node_id="node-2")]
        ['request-latency-max']
    """

    __slots__ = ("_by_name", "_metrics", "histograms", "taken_at_ms")

    def __init__(
        self, metrics: Sequence[Metric], histograms: Sequence[Histogram] = (), taken_at_ms: int = 0
    ) -> None:
        self._metrics = tuple(metrics)
        self.histograms: tuple[Histogram, ...] = tuple(histograms)
        self.taken_at_ms: int = taken_at_ms
        self._by_name: dict[str, list[Metric]] = {}
        for metric in self._metrics:
            self._by_name.setdefault(metric.name, []).append(metric)

    def __len__(self) -> int:
        return len(self._metrics)

    def __getitem__(self, index: Any) -> Any:
        return self._metrics[index]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def __repr__(self) -> str:
        return f"<MetricsSnapshot of {len(self)} metrics>"

    def find(self, name: str, **tags: str) -> list[Metric]:
        """The metrics of that name that have these tags; a tag's dash is written as an underscore."""
        wanted = {tag.replace("_", "-"): value for tag, value in tags.items()}
        return [
            metric
            for metric in self._by_name.get(name, [])
            if all(metric.tags.get(tag) == value for tag, value in wanted.items())
        ]

    def value(self, name: str, **tags: str) -> float:
        """The one number of that name: the producer's own, or with a tag that of the topic or the node.

        Raises:
            KeyError: there is none of that name and these tags (yet): topics and nodes appear when they are used.
        """
        found = [metric for metric in self.find(name, **tags) if len(metric.tags) == 1 + len(tags)]
        if not found or isinstance(found[0].value, str):
            which = "".join(f", {tag}={value}" for tag, value in tags.items())
            raise KeyError(f"no metric {name}{which} with a number")
        return found[0].value

    def histogram(self, name: str) -> Histogram:
        """The histogram of that name.

        Raises:
            KeyError: there is none.
        """
        for histogram in self.histograms:
            if histogram.name == name:
                return histogram
        raise KeyError(f"no histogram {name}: there are {', '.join(one.name for one in self.histograms)}")

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the metrics by group, then by `name` or `name{tag=value}`; what is NaN is None."""
        groups: dict[str, dict[str, float | str | None]] = {}
        for metric in self._metrics:
            tags = ",".join(f"{tag}={value}" for tag, value in metric.tags.items() if tag != "client-id")
            key = f"{metric.name}{{{tags}}}" if tags else metric.name
            groups.setdefault(metric.group, {})[key] = (
                None if isinstance(metric.value, float) and math.isnan(metric.value) else metric.value
            )
        return {"taken_at_ms": self.taken_at_ms, "metrics": groups}
