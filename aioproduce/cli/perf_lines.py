"""The lines of Kafka's `kafka-producer-perf-test`, and the counts behind them.

Called by the run of `aioproduce perf`. Scripts read these lines, so they are as Kafka 4.3 prints them, character by
character: of each reporting interval, and of the whole run; with a warm-up, of what came after it, too.

Invariants:

1. A window ends with the first acknowledgement after its interval, as in Kafka's tool: while nothing is
   acknowledged there is no line, and the next window is so much longer.
2. Only what was acknowledged counts.
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
    """What was acknowledged in some time.

    Attributes:
        begins: Seconds from the start of the run.
        seconds: How long.
        latencies: Of each record.
    """

    begins: float
    seconds: float
    latencies: Latencies

    @property
    def records_per_second(self) -> float:
        """Acknowledged."""
        return self.latencies.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        """Of values, in units of 2**20 bytes, as Kafka's tool has it."""
        return self.latencies.size / _MEBIBYTE / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs; milliseconds."""
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
    """Average, percentiles and maximum in milliseconds; `None` of none."""
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
    """The time from one end to the next, and what is acknowledged in it.

    Args:
        begins: The start of the run, by its clock.
        sinks: The stopwatch's, to which the latencies are added.
    """

    __slots__ = ("_begins", "_place", "_run_begins", "_sinks")

    def __init__(self, begins: float, sinks: list[Latencies]) -> None:
        self._begins = self._run_begins = begins
        self._sinks = sinks
        self._place = len(sinks)
        sinks.append(Latencies())

    def is_over(self, now: float, interval: float) -> bool:
        """Whether it is at least so many seconds long."""
        return now - self._begins >= interval

    def end(self, now: float) -> Measured:
        """What was in it; the next one begins."""
        measured = Measured(self._begins - self._run_begins, now - self._begins, self._sinks[self._place])
        self._begins = now
        self._sinks[self._place] = Latencies()
        return measured


@final
class KafkaStats:
    """What Kafka's tool counts: all records of a run, or those after its warm-up.

    Args:
        begins: When, by the clock of the run.
        interval: Seconds of a window.
        sinks: The stopwatch's, to which the window's latencies are added.
        tell: Called with each line.
        is_steady: These are the records after the warm-up.

    Attributes:
        is_silent: No lines any more.
        windows: Those that are over.
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
        """A batch was acknowledged; ends the window if it is over."""
        if not self._window.is_over(now, self._interval):
            return
        if self._is_steady and self._is_first:
            self._tell("In steady state.")
        self._is_first = False
        self.windows.append(self._window.end(now))
        if not self.is_silent:
            self._tell(window_line(self.windows[-1]))

    def end(self, now: float) -> Measured:
        """All of them; nothing comes after."""
        last = self._window.end(now)
        if last.latencies.count:
            self.windows.append(last)
        total = Latencies()
        for window in self.windows:
            total.add(window.latencies)
        return Measured(0.0, now - self._begins, total)

    def total_line(self, total: Measured) -> str:
        """The last line. Percentiles are whole milliseconds, cut off as in Java."""
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
    """The first line of a run that warms up."""
    return f"Warmup first {records} records. Steady state results will print after the complete test summary."


def window_line(window: Measured) -> str:
    """Of one window."""
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
    """The lines of `--print-metrics`, by name; the first is empty."""
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
