"""How long to wait between the end of a transaction and the first request of the next one.

The coordinator answers EndTxn before its markers are written. A first Produce that meets them is held by the broker
for `add.partitions.to.txn.retry.backoff.ms` (20 ms) and not for the millisecond that the markers take: with a pause
of 1 ms one broker did 309 to 343 transactions a second, without one 56 to 112.

Owned by the transaction manager, which tells how long first Produces took.
"""

from __future__ import annotations

from typing import Final, final

MOST: Final = 0.005
_LEAST: Final = 0.0005
_FIRST: Final = 0.001
_MET_MARKERS: Final = 0.015
"""A first Produce that took longer was held back by the broker."""
_SHORTER_AFTER: Final = 32
_TRIED_AGAIN_AFTER: Final = 64


@final
class Pause:
    """Learns the pause: longer where first Produces are held back, shorter where not, none where it is of no use.

    Attributes:
        seconds: The pause now.
        first_produce_wait: What the latest first Produce of a transaction took, in seconds.
    """

    __slots__ = ("_since", "first_produce_wait", "seconds")

    def __init__(self) -> None:
        self.seconds = _FIRST
        self.first_produce_wait = 0.0
        self._since = 0

    def observe(self, wait: float) -> None:
        """A first Produce was answered.

        Args:
            wait: Seconds since it was sent.
        """
        self.first_produce_wait = wait
        self._since += 1
        if self.seconds == 0.0:
            if self._since >= _TRIED_AGAIN_AFTER:
                self.seconds, self._since = _FIRST, 0
        elif wait >= _MET_MARKERS:
            # At the longest one it is something else that takes so long.
            self.seconds = 0.0 if self.seconds >= MOST else min(self.seconds * 2, MOST)
            self._since = 0
        elif self._since >= _SHORTER_AFTER:
            self.seconds = max(self.seconds * 0.8, _LEAST)
            self._since = 0
