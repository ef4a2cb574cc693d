"""What a `ProducerService` counts, for Prometheus; the producer's own metrics are `ProducerCollector`'s.

Used by applications that have a registry of `prometheus_client`; needs the extra `prometheus`.

Invariants:

1. A scrape may come from any thread, at any time, in whatever state the services are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import MissingExtraError

with MissingExtraError.unless_installed(
    "aioproduce.integrations.service_metrics", extra="prometheus", name="prometheus_client"
):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from aioproduce.integrations.service import ProducerService

_PREFIX: Final = "aioproduce_service_"
_TOTALS: Final = {
    "undelivered": "Records that were given up when the service ended",
    "unknown_outcomes": "Sends whose request had no more time when they were accepted and not acknowledged",
    "background_acknowledged": "Records sent in the background that are in the log",
    "background_failed": "Records sent in the background that failed",
    "refused_answers": "Answers of 503 that were given for the want of room, of a broker or of time",
}
_GAUGES: Final = {
    "background_pending": "Records sent in the background without an outcome",
    "ready": "1 while a record can be accepted, 0 otherwise",
    "live": "1 while the sender is at work, 0 otherwise",
}


@final
class ServiceCollector(Collector):
    """Shows the counts of services, and whether they are ready and live, with the label `service`.

    Args:
        *services: Services without a name: the only one of its process.
        **named: Services by the value of their label.

    Raises:
        ValueError: several services without a name.

    Example:
        >>> prometheus_client.REGISTRY.register(ServiceCollector(service))
    """

    def __init__(self, *services: ProducerService, **named: ProducerService) -> None:
        if len(services) > 1:
            raise ValueError("services need names to be told apart: ServiceCollector(main=..., audit=...)")
        self._services = {**({"": services[0]} if services else {}), **named}

    def collect(self) -> Iterator[Metric]:
        """The families, for a scrape."""
        counts = {name: service.counts().as_dict() for name, service in self._services.items()}
        for field, text in _TOTALS.items():
            total = CounterMetricFamily(_PREFIX + field, text, labels=["service"])
            for name, found in counts.items():
                total.add_metric([name], found[field])
            yield total
        pending, ready, live = (
            GaugeMetricFamily(_PREFIX + name, text, labels=["service"]) for name, text in _GAUGES.items()
        )
        for name, service in self._services.items():
            pending.add_metric([name], counts[name]["background_pending"])
            ready.add_metric([name], float(service.readiness().is_well))
            live.add_metric([name], float(service.liveness().is_well))
        yield from (pending, ready, live)
