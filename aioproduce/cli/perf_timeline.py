"""The course of a run in at most some hundred slots: what `--json` and `--plot` show over time.

Called by the run of `aioproduce perf` a few times a second. A slot has the latencies of what was acknowledged in it
and, from the producer's own histograms, how long batches took in each stage of their life (KIP-91).

Invariant: however long a run lasts there are at most `MOST_SLOTS`; when they are full two become one each, and from
then on they are twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.stopwatch import Latencies
from aioproduce.cli.perf_lines import Measured, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproduce.metrics import MetricsSnapshot

MOST_SLOTS: Final = 240
SHORTEST_SLOT: Final = 0.25

STAGES: Final[Mapping[str, str]] = {
    "send_wait": "send-wait-time",
    "batching": "batching-time",
    "await_send": "await-send-time",
    "in_flight": "in-flight-time",
    "retry": "retry-time",
}
"""Stage -> the producer's histogram, in milliseconds. `send_wait` is of each send() that waited, the others of
batches."""

Stages = dict[str, tuple[int, float]]
"""Stage -> how often, and the sum in milliseconds."""


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of the run.

    Attributes:
        measured: What was acknowledged.
        failed: How many records failed in it.
        stages: What was in each stage.
    """

    measured: Measured
    failed: int
    stages: Stages

    def with_next(self, other: Slot) -> Slot:
        """This one and the one after it as one."""
        latencies = Latencies()
        latencies.add(self.measured.latencies)
        latencies.add(other.measured.latencies)
        seconds = self.measured.seconds + other.measured.seconds
        stages = {
            name: (count + other.stages[name][0], total + other.stages[name][1])
            for name, (count, total) in self.stages.items()
        }
        return Slot(Measured(self.measured.begins, seconds, latencies), self.failed + other.failed, stages)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self.measured.as_json(), "failed": self.failed, "stages_ms": stage_averages(self.stages)}


def stage_averages(stages: Stages) -> dict[str, float | None]:
    """Stage -> its average in milliseconds; `None` where nothing was in it."""
    return {name: round(total / count, 4) if count else None for name, (count, total) in stages.items()}


@final
class Timeline:
    """The slots.

    Args:
        begins: The start of the run, by its clock.
        sinks: The stopwatch's, to which the open slot's latencies are added.
        read_metrics: The producer's.

    Attributes:
        interval: Seconds of a slot.
        slots: Those that are over.
    """

    def __init__(
        self, begins: float, sinks: list[Latencies], read_metrics: Callable[[], MetricsSnapshot]
    ) -> None:
        self._window = Window(begins, sinks)
        self._read_metrics = read_metrics
        self._stages = self.stages()
        self._failed = 0
        self.interval: float = SHORTEST_SLOT
        self.slots: list[Slot] = []

    def end_slot(self, now: float, failed: int) -> None:
        """The open slot is over, and the next begins."""
        stages = self.stages()
        spent = {
            name: (count - self._stages[name][0], total - self._stages[name][1])
            for name, (count, total) in stages.items()
        }
        self.slots.append(Slot(self._window.end(now), failed - self._failed, spent))
        self._stages, self._failed = stages, failed
        if len(self.slots) == MOST_SLOTS:
            pairs = zip(self.slots[::2], self.slots[1::2], strict=True)
            self.slots = [one.with_next(other) for one, other in pairs]
            self.interval *= 2

    def stages(self) -> Stages:
        """Of all batches so far."""
        metrics = self._read_metrics()
        found = {histogram.name: histogram for histogram in metrics.histograms}
        return {stage: (found[name].count, found[name].total) for stage, name in STAGES.items()}
