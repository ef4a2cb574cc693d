"""Rows of the table of metrics, and how those that belong together are made: a total and its rate, and so on.

Called by `catalog`, which has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
        histogram: For the first row of a distribution, what its histogram is of, and where that is kept.
    """

    name: str
    unit: str
    kind: MetricKind
    description: str
    read: Callable[[_T, float], float]
    histogram: tuple[str, Callable[[_T], Distribution]] | None = None


def total(name: str, unit: str, description: str, read: Callable[[_T], float]) -> Row[_T]:
    """What only grows."""
    return Row(name, unit, MetricKind.TOTAL, description, lambda m, _: read(m))


def level(name: str, unit: str, description: str, read: Callable[[_T, float], float]) -> Row[_T]:
    """What goes up and down."""
    return Row(name, unit, MetricKind.GAUGE, description, read)


def _total_and_rate(
    name: str, unit: str, what: str, count: Callable[[_T], float], rate: Callable[[_T, float], float]
) -> Iterator[Row[_T]]:
    yield total(f"{name}-total", unit, f"The total number of {what}", count)
    yield level(f"{name}-rate", f"{unit}/s", f"The number per second of {what}", rate)


def meter(name: str, unit: str, what: str, of: Callable[[_T], Meter]) -> Iterator[Row[_T]]:
    """A total and a rate."""
    return _total_and_rate(name, unit, what, lambda m: of(m).total, lambda m, now: of(m).rate(now))


def counted(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """How many there were of something whose sizes are recorded."""
    return _total_and_rate(name, unit, what, lambda m: float(of(m).count), lambda m, now: of(m).rate(now))


def zero(name: str, unit: str, what: str) -> Iterator[Row[ProducerMetrics]]:
    """A total and a rate of what this client cannot do yet."""
    return _total_and_rate(name, unit, what, lambda _: 0.0, lambda _m, _: 0.0)


def average(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Row[_T]:
    """An average alone."""
    return level(f"{name}-avg", unit, f"The average {what}", lambda m, now: of(m).average(now))


def spread(name: str, unit: str, what: str, of: Callable[[_T], Spread]) -> Iterator[Row[_T]]:
    """An average and a maximum."""
    yield average(name, unit, what, of)
    yield level(f"{name}-max", unit, f"The maximum {what}", lambda m, now: of(m).maximum(now))


def distribution(
    name: str, unit: str, what: str, of: Callable[[_T], Distribution], histogram: str = ""
) -> Iterator[Row[_T]]:
    """An average, a maximum and percentiles; and a histogram, whose text may be another one."""
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
    """What is looked up when somebody asks."""
    return level(name, unit, description, lambda m, now: m.gauges[name](now))


def looked_up_total(name: str, unit: str, description: str) -> Row[ProducerMetrics]:
    """What only grows, and is looked up when somebody asks."""
    return Row(name, unit, MetricKind.TOTAL, description, lambda m, now: m.gauges[name](now))


def table(*groups: Row[_T] | Iterable[Row[_T]]) -> tuple[Row[_T], ...]:
    """All of them."""
    return tuple(row for group in groups for row in ((group,) if isinstance(group, Row) else group))
