"""An audited producer's account of its records: the numbers it gave, the acknowledged count, the failed numbers.

Owned by the Sender. Each ProducerBatch reports its outcome; `AuditMarks` reads the account. No clock, no I/O.

Invariants:

1. A given number is acknowledged, failed, or not settled: never two of these.
2. A success costs one addition a batch. When a batch fails, its numbers are read from the batch's own bytes.
3. At most `_MOST_RUNS` runs of failed numbers are kept; numbers beyond them are only counted. The lowest numbers
   are kept, so the account is exact below the first number that is not kept.
4. With transactions a number's outcome is that of its transaction. One is open at a time: its numbers are one run.
   None of them is settled while it is open, nor ever if its outcome stays unknown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, final

from aioproduce._native.record_numbers import RecordNumbers, number_runs
from aioproduce.errors import TransactionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproduce._native.record_batch import RecordBatchBuffer
    from aioproduce.core.batching.producer_batch import ProducerBatch

# Each run takes 16 bytes and two integers: some 10 MB at most.
_MOST_RUNS: Final = 100_000


class MarkSource(Protocol):
    """The source of one producer's marks, from its start to its end.

    Attributes:
        topic: The topic of the marks; records to this topic are not numbered.
        producer_id: The 16 bytes that the numbered records carry.
        heartbeat: Seconds from one mark to the next.
    """

    topic: str
    producer_id: bytes
    heartbeat: float

    def begin(self, audit: RecordAudit) -> None:
        """Accept the audit of a producer that starts."""

    def make(self, account: Account, at: int, *, is_closing: bool) -> tuple[bytes, bytes]:
        """Return the key and value of a mark's record; `at` is in milliseconds since the epoch."""


class RecordAuditor(Protocol):
    """An entry of `interceptors` that the producer itself serves."""

    def begin_audit(self, client_id: str) -> MarkSource:
        """Return the source of marks for a producer that starts."""


@final
class Account:
    """The account at some instant.

    Attributes:
        next: All numbers below it were acknowledged or are in `failed`, or counted in `failed_more`.
        acknowledged: How many records were acknowledged.
        topics: The same by topic.
        failed: First and last of each run of numbers below `next` whose records failed.
        failed_more: How many more numbers failed.
    """

    __slots__ = ("acknowledged", "failed", "failed_more", "next", "topics")

    def __init__(
        self,
        next_number: int,
        acknowledged: int,
        topics: dict[str, int],
        failed: tuple[tuple[int, int], ...],
        failed_more: int,
    ) -> None:
        self.next: int = next_number
        self.acknowledged: int = acknowledged
        self.topics: dict[str, int] = topics
        self.failed: tuple[tuple[int, int], ...] = failed
        self.failed_more: int = failed_more


@final
class NumberRuns:
    """A set of numbers, kept as runs that neither meet nor overlap.

    Example:
        >>> runs = NumberRuns()
        >>> for first, last in ((5, 6), (1, 2), (3, 4), (9, 9)):
        ...     runs.add(first, last)
        >>> runs.below(100)
        [(1, 6), (9, 9)]
    """

    __slots__ = ("_firsts", "_lasts", "_most", "dropped")

    def __init__(self, most: int = _MOST_RUNS) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._most = most
        self.dropped: int = 0
        """How many numbers, the highest ones, were dropped because there were too many runs."""

    def add(self, first: int, last: int) -> None:
        """Add numbers that are not in the set yet."""
        at = bisect_right(self._firsts, first)
        joins_left = at > 0 and self._lasts[at - 1] == first - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == last + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts.pop(at)
            del self._firsts[at]
        elif joins_left:
            self._lasts[at - 1] = last
        elif joins_right:
            self._firsts[at] = first
        else:
            self._firsts.insert(at, first)
            self._lasts.insert(at, last)
            if len(self._firsts) > self._most:
                self.dropped += self._lasts.pop() - self._firsts.pop() + 1

    def below(self, bound: int) -> list[tuple[int, int]]:
        """Return the runs of the numbers below a bound, ascending."""
        end = bisect_left(self._firsts, bound)
        return [
            (first, min(last, bound - 1))
            for first, last in zip(self._firsts[:end], self._lasts[:end], strict=True)
        ]


@final
class RecordAudit:
    """The numbers of one producer's records, and their outcomes.

    Args:
        producer_id: 16 bytes.
        is_transactional: Whether transactions decide the outcome of records.

    Attributes:
        numbers: The source of the numbers.
        acknowledged: How many records were acknowledged; with transactions, how many of them are committed.
        failed: How many records failed; with transactions, how many are in aborted transactions.
    """

    __slots__ = (
        "_failed",
        "_incomplete",
        "_open_from",
        "_open_topics",
        "_topics",
        "_undecided_from",
        "acknowledged",
        "failed",
        "is_transactional",
        "numbers",
    )

    def __init__(self, producer_id: bytes, *, is_transactional: bool = False) -> None:
        self.numbers: RecordNumbers = RecordNumbers(producer_id)
        self.is_transactional: bool = is_transactional
        self._open_from: int | None = None
        self._open_topics: dict[str, int] = {}
        self._undecided_from = inf
        self.acknowledged: int = 0
        self.failed: int = 0
        self._topics: dict[str, int] = {}
        self._failed = NumberRuns()
        self._incomplete: Callable[[], Iterable[ProducerBatch]] = tuple

    def watch(self, incomplete: Callable[[], Iterable[ProducerBatch]]) -> None:
        """Set the function that returns the batches that are not settled."""
        self._incomplete = incomplete

    # -- reports of batches ---

    def batch_succeeded(self, topic: str, count: int) -> None:
        """Count acknowledged records of a topic."""
        if not self.is_transactional:
            self.acknowledged += count
            self._topics[topic] = self._topics.get(topic, 0) + count
        elif self._open_from is not None:
            self._open_topics[topic] = self._open_topics.get(topic, 0) + count

    def batch_failed(self, records: RecordBatchBuffer) -> None:
        """Note records that failed, and may be missing in the log."""
        if self.is_transactional:
            return  # their transaction is never committed
        self.failed += records.record_count
        for first, last in number_runs(records):
            self._failed.add(first, last)

    # -- reports of transactions ---

    def transaction_began(self) -> None:
        """Note that the numbers from here on belong to a transaction."""
        self._open_from = self.given
        self._open_topics = {}

    def transaction_ended(self, outcome: TransactionOutcome | None) -> None:
        """Note the outcome of the open transaction, if one is open; `None` if the outcome stays unknown."""
        first, self._open_from = self._open_from, None
        if first is None or first == self.given:
            return
        if outcome is TransactionOutcome.COMMITTED:
            for topic, count in self._open_topics.items():
                self.acknowledged += count
                self._topics[topic] = self._topics.get(topic, 0) + count
        elif outcome is TransactionOutcome.ABORTED:
            self.failed += self.given - first
            self._failed.add(first, self.given - 1)
        else:
            self._undecided_from = min(self._undecided_from, first)

    # -- the account ---

    @property
    def given(self) -> int:
        """How many numbers were given; also the next record's number."""
        return self.numbers.next

    @property
    def settled_below(self) -> int:
        """The lowest number that is not settled; the next record's number if all are settled.

        A heartbeat reports it. Otherwise, if the producer is killed, records in flight would count as lost.
        """
        lowest = self.given if self._open_from is None else self._open_from
        if self._undecided_from < lowest:
            lowest = int(self._undecided_from)
        for batch in self._incomplete():
            if batch.audit is not None and not batch.is_settled:
                for first, _ in number_runs(batch.records, 1):
                    lowest = min(lowest, first)
        return lowest

    def account(self, most_runs: int) -> Account:
        """Return the account at present, with at most `most_runs` runs of failed numbers."""
        bound = self.settled_below
        runs = self._failed.below(bound)
        kept = tuple(runs[:most_runs])
        more = sum(last - first + 1 for first, last in runs[most_runs:]) + self._failed.dropped
        return Account(bound, self.acknowledged, dict(self._topics), kept, more)
