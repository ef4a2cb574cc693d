"""The lines of Kafka's `kafka-producer-perf-test`, and the counts behind them.

Called by the run of `aioproduce perf`. Scripts read these lines, so they match those of Kafka 4.3 character by
character. There is a line for each reporting interval and one for the run; with a warm-up also one for the rest.

Invariants:

1. A window ends with the first acknowledgement after its interval, as in Kafka's tool: while nothing is
   acknowledged there is no line, and the window becomes longer.
2. Only acknowledged records count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.stopwatch import Latencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproduce.metrics import MetricsSnapshot

_MEBIBYTE: Final = 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """The records that were acknowledged in a period.

    Attributes:
        begins: Its beginning, in seconds from the start of the run.
        seconds: Its length.
        latencies: The latency of each record.
    """

    begins: float
    seconds: float
    latencies: Latencies

    @property
    def records_per_second(self) -> float:
        """The rate of acknowledged records."""
        return self.latencies.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        """The rate of values' bytes, in units of 2**20 bytes as in Kafka's tool."""
        return self.latencies.size / _MEBIBYTE / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the figures for programs; times in milliseconds."""
        return {
            "begins_s": round(self.begins, 6),
            "seconds": round(self.seconds, 6),
            "records": self.latencies.count,
            "bytes": self.latencies.size,
            "records_per_second": round(self.records_per_second, 3),
            "mb_per_second": round(self.mb_per_second, 6),
            "latency_ms": latency_ms(self.latencies),
        }


def latency_ms(latencies: Latencies) -> dict[str, float] | None:
    """Return average, percentiles and maximum in milliseconds; `None` without records."""
    if not latencies.count:
        return None
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    return {
        "avg": round(latencies.average * 1000, 4),
        **{name: round(latencies.percentile(share) * 1000, 4) for name, share in shares.items()},
        "max": round(latencies.highest * 1000, 4),
    }


@final
class Window:
    """A period of the run, and the records acknowledged in it.

    Args:
        begins: The start of the run, by its clock.
        sinks: The stopwatch's sinks, to which the latencies are added.
    """

    __slots__ = ("_begins", "_place", "_run_begins", "_sinks")

    def __init__(self, begins: float, sinks: list[Latencies]) -> None:
        self._begins = self._run_begins = begins
        self._sinks = sinks
        self._place = len(sinks)
        sinks.append(Latencies())

    def is_over(self, now: float, interval: float) -> bool:
        """Return whether it is at least `interval` seconds long."""
        return now - self._begins >= interval

    def end(self, now: float) -> Measured:
        """Return its records, and begin the next window."""
        measured = Measured(self._begins - self._run_begins, now - self._begins, self._sinks[self._place])
        self._begins = now
        self._sinks[self._place] = Latencies()
        return measured


@final
class KafkaStats:
    """The counts of Kafka's tool: of all records of a run, or of those after its warm-up.

    Args:
        begins: The beginning, by the clock of the run.
        interval: Seconds of a window.
        sinks: The stopwatch's sinks, to which the window's latencies are added.
        tell: Called with each line.
        is_steady: Whether these are the records after the warm-up.

    Attributes:
        is_silent: Whether windows print no more lines.
        windows: The windows that are over.
    """

    def __init__(
        self,
        begins: float,
        interval: float,
        sinks: list[Latencies],
        tell: Callable[[str], None],
        *,
        is_steady: bool = False,
    ) -> None:
        self._begins = begins
        self._interval = interval
        self._tell = tell
        self._is_steady = is_steady
        self._window = Window(begins, sinks)
        self._is_first = True
        self.is_silent = False
        self.windows: list[Measured] = []

    def settled(self, now: float) -> None:
        """End the window if it is over, after a batch was acknowledged."""
        if not self._window.is_over(now, self._interval):
            return
        if self._is_steady and self._is_first:
            self._tell("In steady state.")
        self._is_first = False
        self.windows.append(self._window.end(now))
        if not self.is_silent:
            self._tell(window_line(self.windows[-1]))

    def end(self, now: float) -> Measured:
        """End the last window, and return the figures of all records."""
        last = self._window.end(now)
        if last.latencies.count:
            self.windows.append(last)
        total = Latencies()
        for window in self.windows:
            total.add(window.latencies)
        return Measured(0.0, now - self._begins, total)

    def total_line(self, total: Measured) -> str:
        """Return the last line. Percentiles are whole milliseconds, truncated as in Java."""
        latencies = total.latencies
        percentiles = ", ".join(
            f"{_whole(latencies.percentile(share) * 1000)} ms {name}"
            for name, share in (("50th", 0.5), ("95th", 0.95), ("99th", 0.99), ("99.9th", 0.999))
        )
        return (
            f"{latencies.count}{' steady state' if self._is_steady else ''} records sent, "
            f"{total.records_per_second:.6f} records/sec ({total.mb_per_second:.2f} MB/sec), "
            f"{_java(latencies.average * 1000, 2)} ms avg latency, {latencies.highest * 1000:.2f} ms max latency, "
            f"{percentiles}."
        )


def warmup_line(records: int) -> str:
    """Return the first line of a run with a warm-up."""
    return f"Warmup first {records} records. Steady state results will print after the complete test summary."


def window_line(window: Measured) -> str:
    """Return the line of a window."""
    latencies = window.latencies
    return (
        f"{latencies.count} records sent, {window.records_per_second:.1f} records/sec "
        f"({window.mb_per_second:.2f} MB/sec), {_java(latencies.average * 1000, 1)} ms avg latency, "
        f"{latencies.highest * 1000:.1f} ms max latency."
    )


def _java(value: float, digits: int) -> str:
    return "NaN" if math.isnan(value) else f"{value:.{digits}f}"


def _whole(value: float) -> int:
    return 0 if math.isnan(value) else int(value)


def metric_lines(metrics: MetricsSnapshot) -> Iterator[str]:
    """Yield the lines of `--print-metrics`, by name; the first is empty."""
    shown = {}
    for metric in metrics:
        tags = ", ".join(f"{tag}={value}" for tag, value in metric.tags.items())
        value = metric.value
        shown[f"{metric.group}:{metric.name}:{{{tags}}}"] = (
            value if isinstance(value, str) else _java(value, 3)
        )
    width = max(map(len, shown))
    yield ""
    yield f"{'Metric Name':<{width}}   Value"
    for name in sorted(shown):
        yield f"{name:<{width}} : {shown[name]}"
