"""The wait before the next attempt: exponential back-off with jitter (KIP-580).

Called by the Sender (retries), ClusterMetadata (refreshes) and BrokerConnections (reconnects, and the
time-outs of connection set-up).

After `n` earlier failures the wait is `initial * multiplier ** n` times a random factor between `1 - jitter`
and `1 + jitter`. The invariants are those of Java's ExponentialBackoff:

1. The exponent stops growing where the term reaches `maximum`, so no number of attempts overflows.
2. The result never exceeds `maximum`; there, the jitter only shortens the wait.
3. `maximum <= initial` means a constant `maximum`, without jitter; an `initial` of 0 means no wait at all.
4. Two calls return two different waits, so the caller keeps the first.
"""

from __future__ import annotations

from math import inf, log, pow
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RETRY_JITTER", "RETRY_MULTIPLIER", "ExponentialBackoff"]

RETRY_MULTIPLIER: Final = 2.0
RETRY_JITTER: Final = 0.2
"""Java's constants, which no setting changes: RETRY_BACKOFF_EXP_BASE and RETRY_BACKOFF_JITTER."""


class Random(Protocol):
    """A source of randomness, such as `random.Random`."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    def randrange(self, stop: int, /) -> int:
        """Return an integer from 0 to `stop` - 1."""


@final
class ExponentialBackoff:
    """The waits between attempts.

    Args:
        initial: Seconds before the first repeated attempt.
        maximum: Seconds at most.
        multiplier: The factor for the wait at each further attempt, above 1.
        jitter: The share by which a wait is randomly shorter or longer, 0 up to but not including 1.
        random: Returns a number in `0 <= x < 1`.

    Example:
        >>> backoff = ExponentialBackoff(0.1, 1.0, random=lambda: 0.5)
        >>> [round(backoff.backoff(attempts), 3) for attempts in range(6)]
        [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    """

    __slots__ = ("_largest_exponent", "_random", "initial", "jitter", "maximum", "multiplier")

    def __init__(
        self,
        initial: float,
        maximum: float,
        multiplier: float = RETRY_MULTIPLIER,
        jitter: float = RETRY_JITTER,
        *,
        random: Callable[[], float],
    ) -> None:
        if not (0 <= initial < inf and 0 <= maximum < inf):
            raise ValueError(f"Waits must be finite and at least 0: initial={initial}, maximum={maximum}")
        if not 1 < multiplier < inf:
            raise ValueError(f"The multiplier must be above 1, not {multiplier}")
        if not 0 <= jitter < 1:
            raise ValueError(f"The jitter must be at least 0 and below 1, not {jitter}")
        self.initial: Final = min(initial, maximum)
        self.maximum: Final = maximum
        self.multiplier: Final = multiplier
        self.jitter: Final = jitter
        self._random = random
        self._largest_exponent: Final = (
            log(maximum / initial) / log(multiplier) if maximum > initial > 0 else 0.0
        )

    def backoff(self, attempts: int) -> float:
        """Return the seconds to wait.

        Args:
            attempts: How many attempts failed before the last one: 0 after the first failure.

        Returns:
            Seconds, `0 <= x <= maximum`.
        """
        if attempts < 0:
            raise ValueError(f"The number of attempts cannot be negative, not {attempts}")
        if self._largest_exponent == 0.0:
            return self.initial
        term = self.initial * pow(self.multiplier, min(attempts, self._largest_exponent))
        factor = 1.0 - self.jitter + 2.0 * self.jitter * self._random()
        return min(factor * term, self.maximum)
