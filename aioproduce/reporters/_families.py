"""Converts snapshots to Prometheus's metric families, with jmx_exporter's names for a Java producer's metrics.

Used by the collectors in `prometheus`. The names follow jmx_exporter's default format, `domain_type_attribute{other
properties}`, for the MBean `kafka.producer:type=producer-metrics,client-id=X`: every character other than a letter,
digit or underscore becomes an underscore. Totals are named `..._total`. jmx_exporter below 1.0 does so, and 1.x if
it is configured to export them as counters (`inferCounterTypeFromName`, or `type: COUNTER` in a rule). Dashboards
expect these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from aioproduce.metrics import MetricKind

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

    from aioproduce.metrics import Histogram, Metric, MetricsSnapshot

_NOT_SAFE: Final = re.compile(r"[^a-zA-Z0-9_]+")
_LABEL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_TAKEN: Final = frozenset({"client_id", "topic", "node_id", "le", "worker", "version", "commit_id"})

_UNITS: Final[Mapping[str, tuple[str, float]]] = {"ms": ("seconds", 1e-3), "bytes": ("bytes", 1.0)}
"""Prometheus's unit for a histogram's unit: base units only."""

Labels = Mapping[str, str]
Labelled = tuple[Labels, "MetricsSnapshot"]


def check_labels(labels: Labels) -> dict[str, str]:
    """Return labels that are valid for every series.

    Raises:
        ValueError: If a name is not valid for a label, or if the metrics already have it.
    """
    for name in labels:
        if not _LABEL.fullmatch(name) or name in _TAKEN:
            raise ValueError(
                f"{name!r} cannot be a label of all series: use letters, digits and underscores, and none of "
                f"{', '.join(sorted(_TAKEN))}"
            )
    return {name: str(value) for name, value in labels.items()}


def families(labelled: Iterable[Labelled]) -> Iterator[Family]:
    """Yield the families of these snapshots, each family once."""
    found: dict[str, Family] = {}
    for labels, snapshot in labelled:
        info: dict[str, str] = {}
        for metric in snapshot:
            if metric.kind is MetricKind.TEXT:
                info[_safe(metric.name)] = str(metric.value)
            else:
                _add(found, metric, labels)
        _add_app_info(found, info, {**labels, **_client_id(snapshot)})
        for histogram in snapshot.histograms:
            _add_histogram(found, histogram, labels)
    yield from found.values()


def _add(found: dict[str, Family], metric: Metric, labels: Labels) -> None:
    name = f"kafka_producer_{_safe(metric.group)}_{_safe(metric.name)}"
    family = found.get(name)
    if family is None:
        is_total = metric.kind is MetricKind.TOTAL
        help_text = f"{metric.description} ({metric.unit})" if metric.unit else metric.description
        family = (CounterMetricFamily if is_total else GaugeMetricFamily)(name, help_text)
        found[name] = family
    family.add_sample(name, _labels(metric.tags, labels), float(metric.value))


def _add_app_info(found: dict[str, Family], info: Labels, labels: Labels) -> None:
    """Add texts as labels: jmx_exporter's rules for Kafka's clients do so, because texts cannot be values."""
    if info:
        name = "kafka_producer_app"
        family = found.setdefault(name, InfoMetricFamily(name, "Which producer this is"))
        family.add_sample(f"{name}_info", {**labels, **info}, 1.0)


def _add_histogram(found: dict[str, Family], histogram: Histogram, labels: Labels) -> None:
    suffix, factor = _UNITS[histogram.unit]
    name = f"aioproduce_{_safe(histogram.name)}_{suffix}"
    family = found.setdefault(name, HistogramMetricFamily(name, histogram.description))
    of_all = _labels(histogram.tags, labels)
    for end, count in zip(_ends(histogram.bounds, factor), histogram.counts, strict=True):
        family.add_sample(f"{name}_bucket", {**of_all, "le": end}, float(count))
    family.add_sample(f"{name}_count", of_all, float(histogram.count))
    family.add_sample(f"{name}_sum", of_all, histogram.total * factor)


def _labels(tags: Labels, labels: Labels) -> dict[str, str]:
    return {**labels, **{_safe(tag): value for tag, value in tags.items()}}


def _client_id(snapshot: MetricsSnapshot) -> dict[str, str]:
    return {"client_id": snapshot[0].tags["client-id"]}


@lru_cache(maxsize=64)
def _ends(bounds: tuple[float, ...], factor: float) -> tuple[str, ...]:
    """Return the buckets' labels."""
    return (*(repr(bound * factor) for bound in bounds), "+Inf")


@lru_cache(maxsize=1024)
def _safe(name: str) -> str:
    return _NOT_SAFE.sub("_", name)
