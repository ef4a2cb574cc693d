"""How long to wait between the end of a transaction and the first request of the next one.

The coordinator answers EndTxn before its markers are written. A first Produce that meets them is held by the broker
for `add.partitions.to.txn.retry.backoff.ms` (20 ms) and not for the millisecond that the markers take: with a pause
of 1 ms one broker did 309 to 343 transactions a second, without one 56 to 112.

So the coordinator is asked whether they are written (DescribeTransactions), again and again for 5 ms at most; it
answers in a fraction of a millisecond. One that cannot be asked (Kafka before 3.0) is waited for by a pause that is
learned from how long first Produces took.

Owned by the transaction manager, which tells when transactions begin and end; their records tell of first Produces.
"""

from __future__ import annotations

from math import inf
from typing import Final, final

MOST: Final = 0.005
_LEAST: Final = 0.0005
_FIRST: Final = 0.001
_MET_MARKERS: Final = 0.015
"""A first Produce that took longer was held back by the broker."""
_SHORTER_AFTER: Final = 32
_TRIED_AGAIN_AFTER: Final = 64
_MOST_QUESTIONS: Final = 16


@final
class Pause:
    """The pause: until the markers are written, or learned.

    Attributes:
        seconds: The latest pause; where it is learned, the next one.
        until: The next transaction sends nothing before this instant.
        questions_left: How often the coordinator may still be asked whether the markers are written.
        first_produce_wait: What the latest first Produce of a transaction took, in seconds.
    """

    __slots__ = (
        "_awaits_first",
        "_ended_at",
        "_is_learned",
        "_produced_at",
        "_since",
        "first_produce_wait",
        "questions_left",
        "seconds",
        "until",
    )

    until: float

    def __init__(self) -> None:
        self.seconds: float = _FIRST
        self.until = self._ended_at = -inf
        self.questions_left: int = 0
        self.first_produce_wait: float = 0.0
        self._since = 0
        self._is_learned = False
        self._awaits_first = False
        self._produced_at: float | None = None

    def begun(self) -> None:
        """A transaction was begun."""
        self._awaits_first, self._produced_at = True, None

    def ended(self, now: float) -> None:
        """The coordinator has confirmed the end of one; it writes markers now."""
        self._ended_at = now
        self.questions_left = 0 if self._is_learned else _MOST_QUESTIONS
        self.until = now + (self.seconds if self._is_learned else MOST)

    def answered_question(self, are_written: bool | None, now: float) -> None:
        """The coordinator said whether the markers are written.

        Args:
            are_written: Whether; `None`: it cannot be asked.
            now: The current instant.
        """
        self.questions_left -= 1
        if are_written is None:
            self._is_learned = True
            self.questions_left = 0
            self.until = self._ended_at + self.seconds
        elif are_written:
            self.questions_left = 0
            self.seconds = now - self._ended_at
            self.until = -inf

    def produced(self, now: float) -> None:
        """A Produce went out; of each transaction the first one counts."""
        if self._awaits_first:
            self._awaits_first, self._produced_at = False, now

    def answered(self, now: float) -> None:
        """A Produce was answered."""
        if self._produced_at is not None:
            self.first_produce_wait = now - self._produced_at
            self._produced_at = None
            if self._is_learned:
                self._learn(self.first_produce_wait)

    def _learn(self, wait: float) -> None:
        """Longer where first Produces are held back, shorter where not, none where it is of no use."""
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
