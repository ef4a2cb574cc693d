"""The log of a simulation: lines, and a hash to compare runs.

Written by all parts of a simulation. The hash covers every line; the lines are kept only on request, because a
virtual hour has tens of thousands of them.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproduce.testing.simulation.clock import VirtualClock


@final
class Trace:
    """The events of one run, in order.

    Args:
        clock: The time of the lines.
        keep: How many of the last lines to keep; 0 keeps none, `None` all.
    """

    __slots__ = ("_clock", "_hash", "_lines", "count")

    def __init__(self, clock: VirtualClock, keep: int | None = 0) -> None:
        self._clock = clock
        self._hash = blake2b(digest_size=8)
        self._lines: deque[str] = deque(maxlen=keep)
        self.count: int = 0

    def add(self, what: str) -> None:
        """Add a line with the present time."""
        line = f"{self._clock.now:.6f} {what}"
        self._hash.update(line.encode())
        self.count += 1
        self._lines.append(line)

    @property
    def hash(self) -> str:
        """A hash that is equal for two runs with the same events at the same times."""
        return self._hash.hexdigest()

    @property
    def lines(self) -> Iterable[str]:
        """The kept lines, oldest first."""
        return tuple(self._lines)
