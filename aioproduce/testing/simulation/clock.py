"""Virtual time: a clock that jumps from one planned event to the next.

Created by `Simulation`; the network, the brokers and the event loop plan their events with it.

Invariants:
1. Time never goes back, and only `step()` and `let_pass()` move it.
2. Events of the same instant run in the order in which they were planned.
3. Each step costs `TURN` seconds. Otherwise a timer that a rounding error puts slightly into the future would be
   checked at the same instant again and again, for ever.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable

TURN: Final = 1e-6
"""The cost of one iteration of a loop, in seconds of virtual time."""


class SimulationLivelockError(ProducerError):
    """A simulation reached its limit of steps: something repeats without end.

    Attributes:
        steps: The number of steps.
        now: The virtual time.
    """

    def __init__(self, message: str, *, steps: int, now: float) -> None:
        super().__init__(message)
        self.steps = steps
        self.now = now


@final
@dataclass(slots=True, eq=False)
class Event:
    """A planned event; `cancel()` prevents it."""

    at: float
    action: Callable[..., object] | None
    arguments: tuple[Any, ...]

    def cancel(self) -> None:
        """Prevent the event; a second call does nothing."""
        self.action = None
        self.arguments = ()


@final
class VirtualClock:
    """The time of one simulation, and the planned events.

    Attributes:
        now: Seconds since the simulation began.
        steps: The number of steps so far.
        limit: The maximum number of steps.
    """

    __slots__ = ("_count", "_heap", "limit", "now", "steps")

    def __init__(self) -> None:
        self.now: float = 0.0
        self.steps: int = 0
        self.limit: int | None = None
        self._count = 0
        self._heap: list[tuple[float, int, Event]] = []

    def call_at(self, at: float, action: Callable[..., object], *arguments: Any) -> Event:
        """Plan `action(*arguments)` for an instant; if it is past, it happens at the next step."""
        event = Event(at, action, arguments)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, event))
        return event

    def call_later(self, delay: float, action: Callable[..., object], *arguments: Any) -> Event:
        """Plan `action(*arguments)` for `delay` seconds from now."""
        return self.call_at(self.now + delay, action, *arguments)

    def next_at(self) -> float | None:
        """Return the time of the next event; `None` if nothing is planned."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def step(self, until: float) -> None:
        """Go to the next event, at most to `until`, and run what is due.

        What these events plan for the same instant waits for the next step: so the caller gets a turn between a
        cause and its effect.

        Raises:
            SimulationLivelockError: If `limit` is reached.
        """
        self.steps += 1
        if self.limit is not None and self.steps > self.limit:
            raise SimulationLivelockError(
                f"livelock: {self.steps} steps, and only {self.now:.6f} s of virtual time have passed: look for "
                "something that wakes itself, or raise `limit`",
                steps=self.steps,
                now=self.now,
            )
        at = self.next_at()
        target = until if at is None or at > until else at
        self.now = max(self.now + TURN, target)
        last = self._count
        heap = self._heap
        while heap and heap[0][0] <= self.now and heap[0][1] <= last:
            event = heapq.heappop(heap)[2]
            if event.action is not None:
                event.action(*event.arguments)

    def let_pass(self, seconds: float) -> None:
        """Let time pass while the caller does nothing, like a callback that blocks its loop."""
        until = self.now + seconds
        while self.now < until:
            self.step(until)
