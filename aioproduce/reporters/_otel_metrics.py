"""A producer's metrics as OpenTelemetry's observable instruments.

Used by services through `aioproduce.reporters.opentelemetry`. The names are those of OpenTelemetry's own Java
instrumentation of Kafka's producer, `kafka.producer.record_send_rate` with the attributes `client-id`, `topic`
and `node-id`. The names of the semantic conventions for messaging are added if there are any.

Invariants:

1. A metric that Kafka reports by topic or by node is reported only so: a sum over all attributes counts once.
2. One collection reads each producer once, in its own event loop's thread.
"""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from aioproduce.metrics import MetricKind
from aioproduce.metrics.catalog import NODE, NODE_ROWS, PRODUCER, PRODUCER_ROWS, TOPIC, TOPIC_ROWS
from aioproduce.metrics.spool_metrics import SPOOL, SPOOL_ROWS, SPOOL_TOPIC, SPOOL_TOPIC_ROWS
from aioproduce.reporters.sources import Sources
from aioproduce.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.metrics.rows import Row
    from aioproduce.reporters.sources import Measured

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions for the names here and in the spans."""

OPERATION: Final = {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}
"""The attributes that describe the operation, in metrics and in spans."""

_FRESH: Final = 1.0
"""Seconds for which the instruments of one collection share a snapshot."""

_UNITS: Final = {"": "1", "ms": "ms", "ns": "ns", "s": "s", "bytes": "By", "batches": "{batch}"}


@final
class ProducerMeter(Sources):
    """Reports the metrics of producers to a meter provider at each collection.

    Args:
        *producers: Producers; `add()` adds further ones.
        meter_provider: By default the global one.

    Raises:
        ValueError: If two producers have the same client.id.

    Example:
        >>> async with Producer("localhost:9092") as producer:  # doctest: +SKIP
        ...     meter = ProducerMeter(producer)
        ...     await serve(producer)
    """

    def __init__(self, *producers: Measured, meter_provider: MeterProvider | None = None) -> None:
        super().__init__(*producers)
        self._reading = _Reading(self._read)
        meter = metrics.get_meter("aioproduce", VERSION, meter_provider, SCHEMA_URL)
        for row, group in _instruments():
            is_total = row.kind is MetricKind.TOTAL
            create = meter.create_observable_counter if is_total else meter.create_observable_gauge
            create(
                f"kafka.producer.{row.name.replace('-', '_')}",
                callbacks=[partial(self._observe, row.name, group)],
                unit=_unit(row.unit),
                description=row.description,
            )
        meter.create_observable_counter(
            "messaging.client.sent.messages",
            callbacks=[self._observe_sent],
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )

    def _observe(self, name: str, group: str, _options: CallbackOptions) -> Iterator[Observation]:
        for snapshot in self._reading.snapshots(name):
            for metric in snapshot.find(name):
                if metric.group == group and not math.isnan(float(metric.value)):
                    yield Observation(float(metric.value), metric.tags)

    def _observe_sent(self, _options: CallbackOptions) -> Iterator[Observation]:
        for snapshot in self._reading.snapshots("messaging.client.sent.messages"):
            for metric in snapshot.find("record-send-total"):
                if metric.group == TOPIC:
                    yield Observation(
                        int(metric.value),
                        {
                            **OPERATION,
                            "messaging.destination.name": metric.tags["topic"],
                            "messaging.client.id": metric.tags["client-id"],
                        },
                    )


@final
class _Reading:
    """The snapshots of one collection: OpenTelemetry reads each instrument separately.

    An instrument that is read again begins a new collection.
    """

    def __init__(self, read: Callable[[], list[MetricsSnapshot]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._snapshots: list[MetricsSnapshot] = []
        self._read_at = -math.inf

    def snapshots(self, asker: str) -> list[MetricsSnapshot]:
        """Return the snapshots of all producers, for this instrument."""
        with self._lock:
            now = time.monotonic()
            if asker in self._asked or now - self._read_at > _FRESH:
                self._snapshots = self._read()
                self._read_at = now
                self._asked.clear()
            self._asked.add(asker)
            return self._snapshots


def _instruments() -> Iterable[tuple[Row[Any], str]]:
    """Yield each metric once, with the most specific group that contains it."""
    groups: tuple[tuple[str, Iterable[Row[Any]]], ...] = (
        (PRODUCER, PRODUCER_ROWS),
        (TOPIC, TOPIC_ROWS),
        (NODE, NODE_ROWS),
        (SPOOL, SPOOL_ROWS),
        (SPOOL_TOPIC, SPOOL_TOPIC_ROWS),
    )
    return {row.name: (row, group) for group, rows in groups for row in rows}.values()


def _unit(unit: str) -> str:
    """Return the unit in UCUM: `By/s`, `{record}`."""
    counted, _, per = unit.partition("/")
    ucum = _UNITS.get(counted) or f"{{{counted.removesuffix('s')}}}"
    return f"{ucum}/{per}" if per else ucum
