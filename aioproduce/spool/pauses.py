"""How long topics are left out after they failed: longer and longer, each by itself."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import final


@final
class Pauses:
    """The pauses of topics. `now` is on the clock of the loop's side.

    Args:
        first: The seconds of a topic's first pause; each further one is twice as long.
        longest: The seconds of the longest.
    """

    __slots__ = ("_ends_at", "_first", "_longest", "_seconds")

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._seconds: dict[str, float] = {}
        self._ends_at: dict[str, float] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._seconds

    def begin(self, topic: str, now: float) -> None:
        """Begin a topic's next pause."""
        self._seconds[topic] = min(max(2 * self._seconds.get(topic, 0.0), self._first), self._longest)
        self._ends_at[topic] = now + self._seconds[topic]

    def end(self, topic: str) -> None:
        """Forget a topic's pauses: it is well again."""
        self._seconds.pop(topic, None)
        self._ends_at.pop(topic, None)

    def holds(self, topic: str, now: float) -> bool:
        """Return whether a topic is left out."""
        return self._ends_at.get(topic, -inf) > now

    def left(self, topics: Iterable[str], now: float) -> float:
        """Return the seconds until the next of these topics is left out no more; `inf` if none is now."""
        return min(
            (at - now for topic in topics if (at := self._ends_at.get(topic, -inf)) > now), default=inf
        )
