"""Rows of the table of metrics, and functions for rows that belong together: a total and its rate, and so on.

Used by `catalog`, which contains the table, and by `spool_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from aioproduce.metrics.metric import Histogram, Metric, MetricKind

if TYPE_CHECKING:
    from aioproduce._native.stats import Distribution, Meter, Spread
    from aioproduce.metrics.producer_metrics import ProducerMetrics

_T = TypeVar("_T")

BOUNDS: Final = {
    "ms": tuple(2.0**power for power in range(-4, 18)),
    "bytes": tuple(2.0**power for power in range(6, 25)),
}
"""Bounds of histograms by unit: a sixteenth of a millisecond to two minutes, 64 bytes to 16 MiB."""

PERCENTILES: Final = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))


@final
@dataclass(frozen=True, slots=True)
class Row(Generic[_T]):
    """One metric of the table.

    Attributes:
        name: Kafka's name.
        unit: The value's unit.
        kind: How to read it.
        description: What it measures.
        read: Returns its current value from the sensors.
        histogram: For the first row of a distribution, the description of its histogram, and its sensor.
    """

    name: str
    unit: str
    kind: MetricKind
    description: str
    read: Callable[[_T, float], float]
    histogram: tuple[str, Callable[[_T], Distribution]] | None = None


def total(name: str, unit: str, description: str, read: Callable[[_T], float]) -> Row[_T]:
    """Return a number that only grows."""
    return Row(name, unit, MetricKind.TOTAL, description, lambda m, _: read(m))


def level(name: str, unit: str, description: str, read: Callable[[_T, float], float]) -> Row[_T]:
    """Return a number that goes up and down."""
    return Row(name, unit, MetricKind.GAUGE, description, read)


def _total_and_rate(
    name: str, unit: str, what: str, count: Callable[[_T], float], rate: Callable[[_T, float], float]
) -> Iterator[Row[_T]]:
    yield total(f"{name}-total", unit, f"The total number of {what}", count)
    yield level(f"{name}-rate", f"{unit}/s", f"The number per second of {what}", rate)


def meter(name: str, unit: str, what: str, of: Callable[[_T], Meter]) -> Iterator[Row[_T]]:
    """Return a total and a rate."""
    return _total_and_rate(name, unit, what, lambda m: of(m).total, lambda m, now: of(m).rate(now))


def counted(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """Return the total and the rate of events whose sizes are recorded."""
    return _total_and_rate(name, unit, what, lambda m: float(of(m).count), lambda m, now: of(m).rate(now))


def zero(name: str, unit: str, what: str) -> Iterator[Row[ProducerMetrics]]:
    """Return a total and a rate for a feature that this client does not support yet."""
    return _total_and_rate(name, unit, what, lambda _: 0.0, lambda _m, _: 0.0)


def average(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Row[_T]:
    """Return an average alone."""
    return level(f"{name}-avg", unit, f"The average {what}", lambda m, now: of(m).average(now))


def spread(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """Return an average and a maximum."""
    yield average(name, unit, what, of)
    yield level(f"{name}-max", unit, f"The maximum {what}", lambda m, now: of(m).maximum(now))


def distribution(
    name: str, unit: str, what: str, of: Callable[[_T], Distribution], histogram: str = ""
) -> Iterator[Row[_T]]:
    """Return an average, a maximum and percentiles, and a histogram, which may have its own description."""
    mean, most = spread(name, unit, what, of)
    yield replace(mean, histogram=(histogram or what[0].upper() + what[1:], of))
    yield most
    for suffix, share in PERCENTILES:
        yield level(
            f"{name}-{suffix}",
            unit,
            f"The {share * 100:g}th percentile of the {what}",
            lambda m, now, share=share: of(m).percentile(share, now),  # type: ignore[misc]  # a default binds `share`
        )


def gauge(name: str, unit: str, description: str) -> Row[ProducerMetrics]:
    """Return a number that is looked up when it is read."""
    return level(name, unit, description, lambda m, now: m.gauges[name](now))


def looked_up_total(name: str, unit: str, description: str) -> Row[ProducerMetrics]:
    """Return a number that only grows and is looked up when it is read."""
    return Row(name, unit, MetricKind.TOTAL, description, lambda m, now: m.gauges[name](now))


def table(*groups: Row[_T] | Iterable[Row[_T]]) -> tuple[Row[_T], ...]:
    """Return all rows."""
    return tuple(row for group in groups for row in ((group,) if isinstance(group, Row) else group))


def read_rows(
    group: str, tags: Mapping[str, str], rows: Iterable[Row[_T]], sensors: _T, now: float
) -> Iterator[Metric]:
    """Read sensors: yield a metric for each row."""
    for row in rows:
        yield Metric(group, row.name, tags, row.description, row.unit, row.kind, row.read(sensors, now))


def read_histograms(rows: Iterable[Row[_T]], tags: Mapping[str, str], sensors: _T) -> list[Histogram]:
    """Return the histogram of each distribution."""
    found = []
    for row in rows:
        if row.histogram is not None:
            description, of = row.histogram
            recorded, bounds = of(sensors), BOUNDS[row.unit]
            name, counts = row.name.removesuffix("-avg"), tuple(recorded.histogram(bounds))
            found.append(Histogram(name, tags, description, row.unit, bounds, counts, recorded.total))
    return found
