"""The bounded place between the threads that log and the event loop that ships.

Made by `KafkaLogHandler`.

Invariants:

1. `put()` never waits for anything but a few instructions of another thread, and may come from anywhere: any
   thread, a signal handler, the garbage collector within `put()` itself.
2. It never holds more than its two bounds; what does not fit is counted, the newest first: what led to a flood
   is worth more than its end.
3. Whoever takes is woken once for what came since, not once for each.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@final
class LogQueue:
    """Lines on their way.

    Args:
        capacity: How many it holds.
        max_bytes: How many bytes they have together.

    Attributes:
        accepted: Lines that found room, and notices that were added to them.
        dropped: Lines that found no room.
    """

    __slots__ = (
        "_bytes",
        "_capacity",
        "_is_told",
        "_lines",
        "_lock",
        "_max_bytes",
        "_untold",
        "_wake",
        "accepted",
        "dropped",
    )

    accepted: int
    dropped: int

    def __init__(self, capacity: int, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Empty, with a lock of its own: in a child after fork(), whose lines are its parent's."""
        self._lock = threading.RLock()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._untold = 0
        self._is_told = False
        self._wake: Callable[[], None] | None = None
        self.accepted = 0
        self.dropped = 0

    def put(self, line: bytes) -> bool:
        """Add a line; says whether it had room."""
        with self._lock:
            if len(self._lines) >= self._capacity or self._bytes + len(line) > self._max_bytes:
                self.dropped += 1
                self._untold += 1
                return False
            self._lines.append(line)
            self._bytes += len(line)
            self.accepted += 1
            self._tell()
        return True

    def _tell(self) -> None:
        if self._wake is not None and not self._is_told:
            self._is_told = True
            try:
                self._wake()
            except RuntimeError:
                self._wake = None  # its loop is closed; the lines wait for the next who takes

    def take(self, count: int) -> list[bytes]:
        """The oldest lines, `count` at most; the next `put()` after an empty answer wakes again."""
        with self._lock:
            lines = [self._lines.popleft() for _ in range(min(count, len(self._lines)))]
            self._bytes -= sum(map(len, lines))
            self._is_told = bool(lines)
            return lines

    def put_back(self, lines: Iterable[bytes]) -> None:
        """Lines that were taken and not sent come first again; they are not counted against the bounds."""
        with self._lock:
            for line in reversed(list(lines)):
                self._lines.appendleft(line)
                self._bytes += len(line)

    def count_notice(self) -> None:
        """A line is sent that nobody put here."""
        with self._lock:
            self.accepted += 1

    def untold_drops(self) -> int:
        """How many were dropped since this was last asked."""
        with self._lock:
            count, self._untold = self._untold, 0
            return count

    def on_line(self, wake: Callable[[], None] | None) -> None:
        """Who is woken when there are lines; at once if there are some already."""
        with self._lock:
            self._wake = wake
            self._is_told = False
            if self._lines:
                self._tell()

    def __len__(self) -> int:
        return len(self._lines)
