"""Limits the rate of a task: `rate.limit.records` and `rate.limit.bytes`, records and bytes per second.

Used by `task`, in the thread that reads Spark's iterator: a task that waits here reads nothing more from it.

Invariants:

1. In any span of `t` seconds a task sends at most `rate * (t + BURST)` and one piece more.
2. A piece is paid for afterwards: the next one waits for it.
3. An Arrow batch is divided into pieces of `STEP` seconds' worth, and of at least one row. Rows of a batch are
   assumed to have its mean size; a piece of larger rows may exceed it, and is still paid for.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BURST: Final = 1.0
"""Seconds of the rate that may be sent at once after a pause."""
STEP: Final = 0.25
"""Seconds of the rate in one piece: six in flight, the default, last longer than brokers take to answer."""


@final
class TokenBucket:
    """One limit: units per second, of which at most a second's worth is saved up.

    Args:
        rate: Units per second, above 0; infinite for no limit.
        now: Seconds of a monotonic clock.
    """

    def __init__(self, rate: float, now: float) -> None:
        if not rate > 0:
            raise ValueError(f"a rate must be above 0, not {rate}")
        self._rate = rate
        self._tokens = rate * BURST
        self._at = now

    def take(self, units: float, now: float) -> float:
        """Take this many units, possibly leaving a debt; return how many seconds to wait before they are sent."""
        if math.isinf(self._rate):
            return 0.0
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._rate * BURST)
        self._at = now
        wait = max(-self._tokens / self._rate, 0.0)
        self._tokens -= units
        return wait


@final
class Pacer:
    """Applies both of a task's limits.

    Args:
        records_per_second: 0 for no limit.
        bytes_per_second: 0 for no limit.
        clock: Returns the seconds of a monotonic clock.
        sleep: Waits this many seconds.
    """

    def __init__(
        self,
        records_per_second: float,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rates = (records_per_second or math.inf, bytes_per_second or math.inf)
        self._clock = clock
        self._sleep = sleep
        now = clock()
        self._buckets = tuple(TokenBucket(rate, now) for rate in self._rates)
        self.waited: float = 0.0

    @property
    def has_limit(self) -> bool:
        """Whether there is a limit."""
        return any(math.isfinite(rate) for rate in self._rates)

    def pieces(self, records: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the pieces of this many records and bytes: the first record of each, and how many."""
        by_records, by_bytes = (rate * STEP for rate in self._rates)
        each = max(1, int(min(by_records, by_bytes * records / max(size, 1), records)))
        for first in range(0, records, each):
            yield first, min(each, records - first)

    def wait(self, records: int, size: int) -> None:
        """Wait until this many records and bytes may be sent."""
        now = self._clock()
        records_bucket, bytes_bucket = self._buckets
        pause = max(records_bucket.take(records, now), bytes_bucket.take(size, now))
        if pause > 0:
            self.waited += pause
            self._sleep(pause)
