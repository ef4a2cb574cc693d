"""The rate at which a task may send: `rate.limit.records` and `rate.limit.bytes`, records and bytes a second.

Called by `task`, from the thread that reads Spark's iterator: a task that waits here takes nothing more out of it.

Invariants:

1. Over any span of `t` seconds a task hands over at most `rate * (t + BURST)` and one piece more.
2. A piece is paid for afterwards: it does not wait, the next one does.
3. An Arrow batch is cut into pieces of `STEP` seconds' worth, and of one row at least. Rows of a batch are taken to
   be as large as its mean; where they are not, a piece may be more, and is paid for all the same.
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
"""Seconds of the rate in one piece: six of them under way, the default, are more than brokers take to answer."""


@final
class TokenBucket:
    """One limit: units a second, of which a second's worth is saved up at most.

    Args:
        rate: Units a second, above 0; infinite for no limit.
        now: Seconds of any steady clock.
    """

    def __init__(self, rate: float, now: float) -> None:
        if not rate > 0:
            raise ValueError(f"a rate is above 0, not {rate}")
        self._rate = rate
        self._tokens = rate * BURST
        self._at = now

    def take(self, units: float, now: float) -> float:
        """Take so many units out, which may leave a debt; says how many seconds to wait before they are sent."""
        if math.isinf(self._rate):
            return 0.0
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._rate * BURST)
        self._at = now
        wait = max(-self._tokens / self._rate, 0.0)
        self._tokens -= units
        return wait


@final
class Pacer:
    """Holds a task to both of its limits.

    Args:
        records_per_second: 0 for no limit.
        bytes_per_second: 0 for no limit.
        clock: Seconds of a steady clock.
        sleep: Waits so many seconds.
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
        """Whether there is any."""
        return any(math.isfinite(rate) for rate in self._rates)

    def pieces(self, records: int, size: int) -> Iterator[tuple[int, int]]:
        """Where to cut so many records, of so many bytes together: the first of each piece, and how many."""
        by_records, by_bytes = (rate * STEP for rate in self._rates)
        each = max(1, int(min(by_records, by_bytes * records / max(size, 1), records)))
        for first in range(0, records, each):
            yield first, min(each, records - first)

    def wait(self, records: int, size: int) -> None:
        """Wait until so many records, of so many bytes together, may be sent."""
        now = self._clock()
        records_bucket, bytes_bucket = self._buckets
        pause = max(records_bucket.take(records, now), bytes_bucket.take(size, now))
        if pause > 0:
            self.waited += pause
            self._sleep(pause)
