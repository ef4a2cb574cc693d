"""The counts of a `ProducerService` for Prometheus; `ProducerCollector` exports the producer's own metrics.

Used by applications with a registry of `prometheus_client`; needs the extra `prometheus`.

Invariants:

1. A scrape may come from any thread, at any time, in any state of the services.
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
    "undelivered": "Records that were dropped when the service ended",
    "unknown_outcomes": "Sends that were accepted but not acknowledged within the time of their request",
    "background_acknowledged": "Records sent in the background that are in the log",
    "background_failed": "Records sent in the background that failed",
    "refused_answers": "Answers with status 503 for lack of room, of a broker or of time",
}
_GAUGES: Final = {
    "background_pending": "Records sent in the background without an outcome",
    "ready": "1 while a record can be accepted, 0 otherwise",
    "live": "1 while the sender is working, 0 otherwise",
}


@final
class ServiceCollector(Collector):
    """Exports the counts of services, their readiness and liveness, with the label `service`.

    Args:
        *services: Services without a name: the only one of its process.
        **named: Services by the value of their label.

    Raises:
        ValueError: If several services have no name.

    Example:
        >>> prometheus_client.REGISTRY.register(ServiceCollector(service))
    """

    def __init__(self, *services: ProducerService, **named: ProducerService) -> None:
        if len(services) > 1:
            raise ValueError("several services need names: ServiceCollector(main=..., audit=...)")
        self._services = {**({"": services[0]} if services else {}), **named}

    def collect(self) -> Iterator[Metric]:
        """Return the metric families, for a scrape."""
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
