"""The bounded queue between the threads that log and the event loop that sends.

Created by `KafkaLogHandler`.

Invariants:

1. `put()` waits at most for a few instructions of another thread, and may be called anywhere: in any thread, in a
   signal handler, or by the garbage collector within `put()` itself.
2. The queue never exceeds its two bounds. Lines that do not fit are counted and dropped, the newest first, because
   the beginning of a flood is more useful than its end.
3. The reader is woken once for all new lines, not once for each.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@final
class LogQueue:
    """A queue of formatted lines.

    Args:
        capacity: Maximum number of lines.
        max_bytes: Maximum bytes of all lines together.

    Attributes:
        accepted: Lines that were added, and notices.
        dropped: Lines that did not fit.
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
        """Empty the queue and replace its lock, in a child after fork(), where the lines are the parent's."""
        self._lock = threading.RLock()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._untold = 0
        self._is_told = False
        self._wake: Callable[[], None] | None = None
        self.accepted = 0
        self.dropped = 0

    def put(self, line: bytes) -> bool:
        """Add a line; return whether it fit."""
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
                self._wake = None  # its loop is closed; the lines wait for the next reader

    def take(self, count: int) -> list[bytes]:
        """Return the oldest lines, at most `count`; after an empty result, the next `put()` wakes the reader."""
        with self._lock:
            lines = [self._lines.popleft() for _ in range(min(count, len(self._lines)))]
            self._bytes -= sum(map(len, lines))
            self._is_told = bool(lines)
            return lines

    def put_back(self, lines: Iterable[bytes]) -> None:
        """Put lines that were not sent back to the front; they do not count against the bounds."""
        with self._lock:
            for line in reversed(list(lines)):
                self._lines.appendleft(line)
                self._bytes += len(line)

    def count_notice(self) -> None:
        """Count a notice, which is sent without `put()`."""
        with self._lock:
            self.accepted += 1

    def untold_drops(self) -> int:
        """Return how many lines were dropped since the last call."""
        with self._lock:
            count, self._untold = self._untold, 0
            return count

    def on_line(self, wake: Callable[[], None] | None) -> None:
        """Set the function that wakes the reader; call it at once if there are lines."""
        with self._lock:
            self._wake = wake
            self._is_told = False
            if self._lines:
                self._tell()

    def __len__(self) -> int:
        return len(self._lines)
