"""Samples of producers' metrics, one a second, in a bounded history.

Used by the web page's streams and by `aioproduce top`. The feed has no task of its own: whoever waits for the next
sample takes it when it is due, and all others find it taken. So nothing is sampled while nobody looks, unless the
owner runs `sample_forever()`, and a feed needs no shutdown.

Invariants:

1. At most `history` samples are kept, each of bounded size (`reading`), each encoded once for all who are sent it.
2. Sample numbers only grow, by one. `run` tells two feeds apart, so that a number is never taken for another's.
3. `Producer.metrics()` answers at any time, before the start and after the end; so does a sample.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import anyio

from aioproduce.dashboard.reading import Reader

if TYPE_CHECKING:
    from aioproduce.dashboard.reading import Source


@final
@dataclass(frozen=True, slots=True)
class Sample:
    """All producers at one instant.

    Attributes:
        number: Of the sample, from 1 on.
        content: What was read, as JSON has it: `at_ms` (since the epoch), `interval_s`, and `producers`.
        encoded: The same as JSON, in UTF-8, without a line feed.
    """

    number: int
    content: dict[str, Any]
    encoded: bytes


@final
class Feed:
    """The history of some producers.

    Args:
        sources: The producers.
        interval: Seconds from one sample to the next.
        history: How many samples are kept; the default is five minutes of them.

    Attributes:
        last_number: The number of the latest sample; 0 before the first.
        run: Tells this feed from others.

    Raises:
        ValueError: there is no producer, or a number is not positive.

    Example:
        >>> feed = Feed([producer])
        >>> feed.sample(time.monotonic(), time.time()).content["producers"][0]["records_per_s"]
    """

    __slots__ = ("_due_at", "_history", "_last_at", "_readers", "interval", "last_number", "run")

    def __init__(self, sources: Sequence[Source], *, interval: float = 1.0, history: int = 300) -> None:
        if not sources:
            raise ValueError("a dashboard needs at least one producer to look at")
        if not interval > 0 or history < 1:
            raise ValueError(f"interval must be above 0 and history at least 1, not {interval} and {history}")
        self._readers = [Reader(source) for source in sources]
        self._history: deque[Sample] = deque(maxlen=history)
        self.last_number: int = 0
        self._due_at = float("-inf")
        self._last_at: float | None = None
        self.interval: float = interval
        self.run: str = secrets.token_hex(4)

    def since(self, number: int) -> list[Sample]:
        """The samples after that one, oldest first, as far as they are kept."""
        missing = min(max(self.last_number - number, 0), len(self._history))
        return [self._history[index] for index in range(len(self._history) - missing, len(self._history))]

    def sample(self, now: float, wall: float) -> Sample:
        """Take a sample.

        Args:
            now: In seconds, of a clock that does not go back.
            wall: Seconds since the epoch: what the charts' time axis says.
        """
        self.last_number += 1
        content = {
            "at_ms": round(wall * 1e3),
            "interval_s": None if self._last_at is None else round(now - self._last_at, 3),
            "producers": [reader.read(now) for reader in self._readers],
        }
        self._last_at = now
        encoded = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        taken = Sample(self.last_number, content, encoded)
        self._history.append(taken)
        return taken

    def sample_if_due(self, now: float, wall: float) -> float:
        """Take a sample unless another was taken within the interval.

        Returns:
            Seconds until the next one is due.
        """
        if now >= self._due_at:
            # Due at regular instants; after a time when nobody looked, or a stall, from now on.
            self._due_at = (
                now + self.interval if now >= self._due_at + self.interval else self._due_at + self.interval
            )
            self.sample(now, wall)
        return self._due_at - now

    async def next_after(self, number: int) -> list[Sample]:
        """Wait until there are samples after that one, taking one when it is due."""
        while True:
            wait = self.sample_if_due(time.monotonic(), time.time())
            if self.last_number > number:
                return self.since(number)
            await anyio.sleep(wait)

    async def sample_forever(self) -> None:
        """Sample also while nobody looks, until cancelled: the page then begins with a history."""
        while True:  # noqa: ASYNC110  (paced by the clock, not by an event)
            await anyio.sleep(self.sample_if_due(time.monotonic(), time.time()))
