"""The pause between the end of a transaction and the first request of the next one.

The coordinator answers EndTxn before its markers are written. If a first Produce arrives before the markers, the
broker holds it for `add.partitions.to.txn.retry.backoff.ms` (20 ms), though writing the markers takes a
millisecond. With a pause of 1 ms one broker did 309 to 343 transactions a second, without one 56 to 112.

So the producer asks the coordinator whether they are written (DescribeTransactions), repeatedly for 5 ms at most.
An answer takes a fraction of a millisecond. Kafka before 3.0 cannot be asked: there the pause is learned from the
durations of first Produces.

Owned by the transaction manager, which reports the beginning and end of transactions. Their records report first
Produces.
"""

from __future__ import annotations

from math import inf
from typing import Final, final

MOST: Final = 0.005
_LEAST: Final = 0.0005
_FIRST: Final = 0.001
_MET_MARKERS: Final = 0.015
"""The broker held back a first Produce that took longer."""
_SHORTER_AFTER: Final = 32
_TRIED_AGAIN_AFTER: Final = 64
_MOST_QUESTIONS: Final = 16


@final
class Pause:
    """The pause: until the markers are written, or a learned time.

    Attributes:
        seconds: The latest pause; if it is learned, the next one.
        until: The next transaction sends nothing before this instant.
        questions_left: How often the coordinator may still be asked about the markers.
        first_produce_wait: Seconds that the latest first Produce of a transaction took.
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
        """Note that a transaction began."""
        self._awaits_first, self._produced_at = True, None

    def ended(self, now: float) -> None:
        """Begin the pause: the coordinator confirmed the end of a transaction, and writes markers now."""
        self._ended_at = now
        self.questions_left = 0 if self._is_learned else _MOST_QUESTIONS
        self.until = now + (self.seconds if self._is_learned else MOST)

    def answered_question(self, are_written: bool | None, now: float) -> None:
        """Accept the coordinator's answer about the markers.

        Args:
            are_written: Whether they are written; `None`: the coordinator cannot be asked.
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
        """Note that a Produce was sent; the first one of each transaction counts."""
        if self._awaits_first:
            self._awaits_first, self._produced_at = False, now

    def answered(self, now: float) -> None:
        """Note that a Produce was answered."""
        if self._produced_at is not None:
            self.first_produce_wait = now - self._produced_at
            self._produced_at = None
            if self._is_learned:
                self._learn(self.first_produce_wait)

    def _learn(self, wait: float) -> None:
        """Lengthen the pause if first Produces are held back, else shorten it; drop it if it does not help."""
        self._since += 1
        if self.seconds == 0.0:
            if self._since >= _TRIED_AGAIN_AFTER:
                self.seconds, self._since = _FIRST, 0
        elif wait >= _MET_MARKERS:
            # If even the longest pause does not help, something else takes the time.
            self.seconds = 0.0 if self.seconds >= MOST else min(self.seconds * 2, MOST)
            self._since = 0
        elif self._since >= _SHORTER_AFTER:
            self.seconds = max(self.seconds * 0.8, _LEAST)
            self._since = 0
