"""A run over time, in a few hundred slots at most, for `--json` and `--plot`.

Called by the run of `aioproduce perf` a few times a second. A slot has the latencies of the records acknowledged in
it. From the producer's own histograms it has the time of batches in each stage of their life (KIP-91).

Invariant: there are at most `MOST_SLOTS` slots, however long a run lasts. When that number is reached, each two
slots are merged, and later slots are twice as long.
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
"""Stage -> the producer's histogram, in milliseconds. `send_wait` counts send() calls that waited, the others count
batches."""

Stages = dict[str, tuple[int, float]]
"""Stage -> count, and sum in milliseconds."""


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """A period of the run.

    Attributes:
        measured: The records acknowledged in it.
        failed: The number of records that failed in it.
        stages: The times in each stage.
    """

    measured: Measured
    failed: int
    stages: Stages

    def with_next(self, other: Slot) -> Slot:
        """Return this slot merged with the next one."""
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
        """Return the figures for programs."""
        return {**self.measured.as_json(), "failed": self.failed, "stages_ms": stage_averages(self.stages)}


def stage_averages(stages: Stages) -> dict[str, float | None]:
    """Return stage -> its average in milliseconds; `None` for a stage without samples."""
    return {name: round(total / count, 4) if count else None for name, (count, total) in stages.items()}


@final
class Timeline:
    """The slots of a run.

    Args:
        begins: The start of the run, by its clock.
        sinks: The stopwatch's sinks, to which the open slot's latencies are added.
        read_metrics: Returns the producer's metrics.

    Attributes:
        interval: Seconds of a slot.
        slots: The slots that are over.
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
        """End the open slot, and begin the next."""
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
        """Return the stages of all batches so far."""
        metrics = self._read_metrics()
        found = {histogram.name: histogram for histogram in metrics.histograms}
        return {stage: (found[name].count, found[name].total) for stage, name in STAGES.items()}
