"""Samples of producers' metrics, one a second, in a bounded history.

Used by the web page's streams and by `aioproduce top`. The feed has no task: the first waiter takes a sample when
it is due, and all other waiters use it. So nothing is sampled while nobody waits, unless the owner runs
`sample_forever()`, and a feed needs no shutdown.

Invariants:

1. At most `history` samples are kept, each of bounded size (`reading`). Each is encoded once for all clients.
2. Sample numbers only grow, by one. `run` differs between feeds, so that a number of one is never used for another.
3. A sample can be taken at any time, also before the start of a producer and after its end, as with
   `Producer.metrics()`.
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
        number: The number of the sample, from 1 on.
        content: The sample as plain data for JSON: `at_ms` (since the epoch), `interval_s`, and `producers`.
        encoded: The content as JSON, in UTF-8, without a line feed.
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
        history: The number of samples to keep; by default five minutes of them.

    Attributes:
        last_number: The number of the latest sample; 0 before the first.
        run: A random id of this feed.

    Raises:
        ValueError: if there is no producer, or a number is not positive.

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
        """Return the samples after sample `number`, oldest first, as far as they are kept."""
        missing = min(max(self.last_number - number, 0), len(self._history))
        return [self._history[index] for index in range(len(self._history) - missing, len(self._history))]

    def sample(self, now: float, wall: float) -> Sample:
        """Take a sample.

        Args:
            now: Seconds of a clock that never goes back.
            wall: Seconds since the epoch, for the time axis of the charts.
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
            # Due at regular instants; after a pause or a stall, at regular instants from now on.
            self._due_at = (
                now + self.interval if now >= self._due_at + self.interval else self._due_at + self.interval
            )
            self.sample(now, wall)
        return self._due_at - now

    async def next_after(self, number: int) -> list[Sample]:
        """Wait for samples after sample `number`, take one when it is due, and return them."""
        while True:
            wait = self.sample_if_due(time.monotonic(), time.time())
            if self.last_number > number:
                return self.since(number)
            await anyio.sleep(wait)

    async def sample_forever(self) -> None:
        """Sample also while nobody waits, until cancelled: a page then begins with a history."""
        while True:  # noqa: ASYNC110  (paced by the clock, not by an event)
            await anyio.sleep(self.sample_if_due(time.monotonic(), time.time()))
