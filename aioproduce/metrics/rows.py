"""Rows of the table of metrics, and how those that belong together are made: a total and its rate, and so on.

Called by `catalog`, which has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from aioproduce.metrics.metric import MetricKind

if TYPE_CHECKING:
    from aioproduce._native.stats import Distribution, Meter, Spread
    from aioproduce.metrics.producer_metrics import ProducerMetrics

_T = TypeVar("_T")

PERCENTILES: Final = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))


@final
@dataclass(frozen=True, slots=True)
class Row(Generic[_T]):
    """One metric of the table.

    Attributes:
        name: Kafka's.
        unit: Of the value.
        kind: How it may be read.
        description: What it is.
        read: Its value now, of the sensors that have it.
    """

    name: str
    unit: str
    kind: MetricKind
    description: str
    read: Callable[[_T, float], float]


def meter(name: str, unit: str, what: str, of: Callable[[_T], Meter]) -> Iterator[Row[_T]]:
    """A total and a rate."""
    yield Row(
        f"{name}-total", unit, MetricKind.TOTAL, f"The total number of {what}", lambda m, _: of(m).total
    )
    yield Row(
        f"{name}-rate",
        f"{unit}/s",
        MetricKind.GAUGE,
        f"The number per second of {what}",
        lambda m, now: of(m).rate(now),
    )


def average(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """An average alone."""
    yield Row(f"{name}-avg", unit, MetricKind.GAUGE, f"The average {what}", lambda m, now: of(m).average(now))


def spread(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """An average and a maximum."""
    yield from average(name, unit, what, of)
    yield Row(f"{name}-max", unit, MetricKind.GAUGE, f"The maximum {what}", lambda m, now: of(m).maximum(now))


def distribution(name: str, unit: str, what: str, of: Callable[[_T], Distribution]) -> Iterator[Row[_T]]:
    """An average, a maximum and percentiles."""
    yield from spread(name, unit, what, of)
    for suffix, share in PERCENTILES:
        yield Row(
            f"{name}-{suffix}",
            unit,
            MetricKind.GAUGE,
            f"The {share * 100:g}th percentile of the {what}",
            lambda m, now, share=share: of(m).percentile(share, now),  # type: ignore[misc]
        )


def gauge(name: str, unit: str, description: str) -> Iterator[Row[ProducerMetrics]]:
    """What is looked up when somebody asks."""
    yield Row(name, unit, MetricKind.GAUGE, description, lambda m, now: m.gauges[name](now))


def zero(name: str, unit: str, what: str) -> Iterator[Row[ProducerMetrics]]:
    """A total and a rate of what this client cannot do yet."""
    yield Row(f"{name}-total", unit, MetricKind.TOTAL, f"The total number of {what}", lambda _m, _: 0.0)
    yield Row(
        f"{name}-rate", f"{unit}/s", MetricKind.GAUGE, f"The number per second of {what}", lambda _m, _: 0.0
    )


def counted(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """How many there were of something whose sizes are recorded."""
    yield Row(
        f"{name}-total",
        unit,
        MetricKind.TOTAL,
        f"The total number of {what}",
        lambda m, _: float(of(m).count),
    )
    yield Row(
        f"{name}-rate",
        f"{unit}/s",
        MetricKind.GAUGE,
        f"The number per second of {what}",
        lambda m, now: of(m).rate(now),
    )


def table(*groups: Iterable[Row[_T]]) -> tuple[Row[_T], ...]:
    """All of them."""
    return tuple(row for group in groups for row in group)
