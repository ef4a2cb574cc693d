"""A producer's state as one log line per period, for services that are monitored by their log alone.

Invariants: those of `PeriodicReporter`. Totals are for the period since the previous line, latencies for the last
`metrics.num.samples` windows of `metrics.sample.window.ms`, as everywhere.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Final, final

from aioproduce.reporters.periodic import PeriodicReporter

if TYPE_CHECKING:
    from aioproduce.metrics import MetricsSnapshot
    from aioproduce.reporters.sources import Measured

_COUNTED: Final = (
    "record-send-total",
    "outgoing-byte-total",
    "record-error-total",
    "record-retry-total",
)


@final
class LoggingReporter(PeriodicReporter):
    """Logs one INFO line every period, and a last one at the end.

    Args:
        producer: The producer.
        period: Seconds between lines.
        logger: The logger; `aioproduce.metrics` by default.

    Raises:
        ValueError: If the period is not above 0.

    Example:
        >>> async with Producer("localhost:9092") as producer:
        ...     async with LoggingReporter(producer, period=30):
        ...         await serve(producer)
    """

    def __init__(
        self, producer: Measured, *, period: float = 60.0, logger: logging.Logger | None = None
    ) -> None:
        super().__init__(period)
        self._producer = producer
        self._logger = logging.getLogger("aioproduce.metrics") if logger is None else logger
        self._told = dict.fromkeys(_COUNTED, 0.0)
        self._told_at = time.monotonic()

    async def _report(self) -> None:
        snapshot, now = self._producer.metrics(), time.monotonic()
        totals = {name: snapshot.value(name) for name in _COUNTED}
        since = {name: totals[name] - self._told[name] for name in _COUNTED}
        elapsed = max(now - self._told_at, 1e-3)
        self._told, self._told_at = totals, now
        self._logger.info(
            "%s: %s", self._producer.config.client_id, summary(snapshot, since, elapsed), stacklevel=2
        )


def summary(snapshot: MetricsSnapshot, since: dict[str, float], elapsed: float) -> str:
    """Return the log line.

    Args:
        snapshot: The current metrics.
        since: The growth of the totals since the previous line.
        elapsed: Seconds since then.
    """
    size = snapshot.value("buffer-total-bytes")
    used = size - snapshot.value("buffer-available-bytes")
    return (
        f"{since['record-send-total'] / elapsed:,.0f} records/s, "
        f"{_bytes(since['outgoing-byte-total'] / elapsed)}/s, "
        f"delivered in {_ms(snapshot, 'delivery-time-p50')} (p50) {_ms(snapshot, 'delivery-time-p99')} (p99), "
        f"request latency {_ms(snapshot, 'request-latency-p50')} (p50) "
        f"{_ms(snapshot, 'request-latency-p99')} (p99), "
        f"errors {since['record-error-total']:,.0f}, retries {since['record-retry-total']:,.0f}, "
        f"buffer {used / size:.0%} of {_bytes(size)}, {snapshot.value('waiting-threads'):.0f} waiting"
    )


def _ms(snapshot: MetricsSnapshot, name: str) -> str:
    value = snapshot.value(name)
    return "-" if math.isnan(value) else f"{value:.1f} ms"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.0f} B" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"
