"""A queue of keys by instant: it finds the due keys without a look at the others.

Used wherever the core waits for time to pass: connections, batches, back-offs. It is a heap with lazy deletion:
a moved or removed key leaves its old entry in the heap, which is skipped when it comes up.

Invariants:

1. A key is in the queue at most once, with one instant.
2. `pop_due` returns due keys in order of their instants; keys of one instant in the order of insertion.
   Moving a key to another instant counts as a new insertion, moving it to the same one as nothing.
3. The amortized cost of a call grows with the logarithm of the number of live keys, and with the due keys.
4. Memory is bounded by the live keys: after each call, the heap has at most as many stale entries as live ones
   plus `_SLACK`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable
if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

_SLACK: Final = 64
"""Stale entries allowed beyond the live ones: below this a rebuild costs more than the memory is worth."""


@cython.freelist(16_384)
@cython.cclass
class _Entry:
    """A key and its instant, ordered by that and by the order of insertion."""

    __slots__ = ("at", "insertion", "key")

    def __init__(self, at: float, insertion: int, key: Any) -> None:
        self.at = at
        self.insertion = insertion
        self.key = key

    def __lt__(self, other: _Entry) -> bool:
        return self.at < other.at or (self.at == other.at and self.insertion < other.insertion)


class Deadlines:
    """Keys, each with the instant at which it becomes due.

    Example:
        >>> deadlines = Deadlines()
        >>> deadlines.schedule("linger", 5.0)
        >>> deadlines.schedule("linger", 7.0)  # the earlier one stays
        >>> deadlines.next_at(), deadlines.pop_due(5.0)
        (5.0, ['linger'])
    """

    __slots__ = ("_heap", "_insertions", "_live")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        # An entry of the heap is live if this holds it, and no equal one, for its key.
        self._live: dict[Any, _Entry] = {}
        self._insertions = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: object) -> bool:
        return key in self._live

    def at(self, key: Hashable) -> float | None:
        """Return the key's instant, or `None` if it is not queued."""
        entry = self._live.get(key)
        return None if entry is None else entry.at

    def schedule(self, key: Hashable, at: float) -> None:
        """Make `key` due at `at` or earlier: an earlier instant that it already has is kept."""
        entry = self._live.get(key)
        if entry is None or at < entry.at:
            self._insert(key, at)

    def reschedule(self, key: Hashable, at: float) -> None:
        """Make `key` due at exactly `at`, whether that is earlier or later than before."""
        entry = self._live.get(key)
        if entry is None or at != entry.at:
            self._insert(key, at)

    def cancel(self, key: Hashable) -> None:
        """Remove `key`; nothing happens if it is not queued."""
        if self._live and self._live.pop(key, None) is not None:
            self._compact()

    def clear(self) -> None:
        """Remove all keys."""
        self._heap.clear()
        self._live.clear()

    def next_at(self) -> float | None:
        """Return the earliest instant of all keys, or `None` if there are none."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if self._live.get(entry.key) is entry:
                return entry.at
            heappop(heap)
        return None

    def pop_due(self, now: float) -> list[Any]:
        """Remove and return all keys whose instant is `now` or earlier.

        Args:
            now: The current instant.

        Returns:
            The keys in order of their instants, then of insertion.
        """
        due: list[Any] = []
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry.at > now:
                break
            heappop(heap)
            key = entry.key
            if self._live.get(key) is entry:
                del self._live[key]
                due.append(key)
        self._compact()
        return due

    def _insert(self, key: Hashable, at: float) -> None:
        self._insertions += 1
        entry = _Entry(at, self._insertions, key)
        self._live[key] = entry
        heappush(self._heap, entry)
        self._compact()

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapify(self._heap)
