"""The result of `producer.metrics()`: values at one instant with Kafka's names; plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, final


class MetricKind(Enum):
    """How to read a value."""

    TOTAL = "total"
    """A number that only grows, from the start of the producer on."""
    GAUGE = "gauge"
    """A number that goes up and down: a state, a rate, an average or a percentile."""
    TEXT = "text"
    """A text."""


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """One value.

    Attributes:
        group: Kafka's group, e.g. `producer-metrics`, `producer-topic-metrics` or `producer-node-metrics`.
        name: Kafka's name, e.g. `record-send-total`.
        tags: `client-id`, and `topic` or `node-id` in the groups by topic or node.
        description: What it measures.
        unit: The value's unit: `ms`, `ns`, `s`, `bytes`, `records`, ... or `1/s` of those; empty for text and
            ratios.
        kind: How to read it.
        value: NaN for an average, a maximum or a percentile without any values, as in Kafka.
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
    """All recorded values of one size or duration, for exporters that compute percentiles themselves.

    Attributes:
        name: The common prefix of the related metrics: `request-latency` for `request-latency-avg`.
        tags: The same as those of a metric.
        description: What it measures.
        unit: `ms` or `bytes`.
        bounds: Upper bounds of the buckets, ascending.
        counts: For each bound, the number of values that are at most that; one more element for all values.
        total: The sum of all values.
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
        """The number of recorded values."""
        return self.counts[-1]


@final
class MetricsSnapshot(Sequence[Metric]):
    """All metrics of one producer at one instant.

    Args:
        metrics: The values.
        histograms: The histograms of some of them.
        taken_at_ms: The time, in milliseconds since the epoch.

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
        """Return the metrics with that name and these tags; a tag's dash is written as an underscore."""
        wanted = {tag.replace("_", "-"): value for tag, value in tags.items()}
        return [
            metric
            for metric in self._by_name.get(name, [])
            if all(metric.tags.get(tag) == value for tag, value in wanted.items())
        ]

    def value(self, name: str, **tags: str) -> float:
        """Return the number with that name: the producer's own, or with a tag that of the topic or the node.

        Raises:
            KeyError: If there is none with that name and these tags; topics and nodes appear on first use.
        """
        found = [metric for metric in self.find(name, **tags) if len(metric.tags) == 1 + len(tags)]
        if not found or isinstance(found[0].value, str):
            which = "".join(f", {tag}={value}" for tag, value in tags.items())
            raise KeyError(f"no metric {name}{which} with a number")
        return found[0].value

    def histogram(self, name: str) -> Histogram:
        """Return the histogram with that name.

        Raises:
            KeyError: If there is none.
        """
        for histogram in self.histograms:
            if histogram.name == name:
                return histogram
        raise KeyError(
            f"no histogram {name}; the histograms are {', '.join(one.name for one in self.histograms)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return a value for JSON: the metrics by group, then by `name` or `name{tag=value}`; NaN becomes None."""
        groups: dict[str, dict[str, float | str | None]] = {}
        for metric in self._metrics:
            tags = ",".join(f"{tag}={value}" for tag, value in metric.tags.items() if tag != "client-id")
            key = f"{metric.name}{{{tags}}}" if tags else metric.name
            groups.setdefault(metric.group, {})[key] = (
                None if isinstance(metric.value, float) and math.isnan(metric.value) else metric.value
            )
        return {"taken_at_ms": self.taken_at_ms, "metrics": groups}
