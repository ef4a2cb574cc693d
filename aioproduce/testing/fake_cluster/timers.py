"""The planned actions of the model.

Called by `model`, `fetch` and `groups`. A heap of absolute times; `now` is always an argument.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

Action: TypeAlias = Callable[[float], None]


@final
@dataclass(slots=True, eq=False)
class Timer:
    """One planned action, which can be cancelled."""

    action: Action | None

    def cancel(self) -> None:
        """Cancel the action; a second call does nothing."""
        self.action = None


@final
class Timers:
    """All planned actions; those for the same instant run in the order in which they were planned."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0

    def call_at(self, at: float, action: Action) -> Timer:
        """Plan `action(now)` for `at`."""
        timer = Timer(action)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, timer))
        return timer

    def next_at(self) -> float | None:
        """Return the time of the next action; `None` if there is none."""
        self._drop_cancelled()
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> None:
        """Run what is due, including what these actions plan for `now`."""
        while True:
            self._drop_cancelled()
            if not self._heap or self._heap[0][0] > now:
                return
            action = heapq.heappop(self._heap)[2].action
            assert action is not None, "cancelled timers were dropped above"
            action(now)

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
