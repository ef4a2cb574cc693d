"""The outcome of each record of a run, and the latency of acknowledgements.

Called by `send` while it sends and by the progress bar. Counting is exact and cheap: the deliveries of some hundred
lines are one group, and a whole group is checked at once. Latency is measured on a sample, since a callback per
record would cost more than sending it.

Invariants:

1. Each sent record is counted once, as acknowledged or failed; at the end `sent == acknowledged + failed`.
2. A failed record is reported with its input and line.
3. The latency sample is systematic over the whole run: the records 0, s, 2s, 3s, ... with one stride s, which
   doubles when the sample is full. Up to `SAMPLE_SIZE` records that is every record.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Literal, final

from aioproduce.cli.causes import cause_of
from aioproduce.errors import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce import DeliveryFuture, RecordMetadata

# After it was full once, it keeps at least half: 4096 records, 40 of them above the 99th percentile.
SAMPLE_SIZE: Final = 8192
# Failures that are reported one by one, with their lines; all are counted.
FAILURES_SHOWN: Final = 5

_is_done: Final = methodcaller("done")
_error_of: Final = methodcaller("exception")


@final
class LatencySample:
    """Seconds from the call of `send()` to the acknowledgement, for a systematic sample of the records.

    Attributes:
        stride: One record in so many is measured.
    """

    __slots__ = ("_measured", "stride")

    def __init__(self) -> None:
        self.stride: int = 1
        self._measured: list[tuple[int, float]] = []

    def measure(self, number: int) -> Callable[[RecordMetadata, BaseException | None], None]:
        """Return the `on_delivery` of record `number`, which is sent next."""
        return partial(self._settled, number, time.monotonic())

    def _settled(
        self, number: int, sent_at: float, _metadata: RecordMetadata, error: BaseException | None
    ) -> None:
        # A record sent before the stride doubled may no longer belong to the sample.
        if error is not None or number % self.stride:
            return
        self._measured.append((number, time.monotonic() - sent_at))
        if len(self._measured) > SAMPLE_SIZE:
            self.stride *= 2
            self._measured = [measured for measured in self._measured if measured[0] % self.stride == 0]

    def summary(self) -> dict[str, float | int] | None:
        """Return percentiles in milliseconds (nearest rank); `None` if nothing was measured."""
        latencies = sorted(latency * 1000 for _number, latency in self._measured)
        if not latencies:
            return None
        count = len(latencies)
        return {
            "p50": round(latencies[-(-count * 50 // 100) - 1], 3),
            "p99": round(latencies[-(-count * 99 // 100) - 1], 3),
            "max": round(latencies[-1], 3),
            "samples": count,
        }


@final
@dataclass(slots=True)
class Group:
    """The deliveries of consecutive lines of one input.

    Attributes:
        source: The input's name.
        first_line: The number of the first record's line, from 1.
        deliveries: In the order of the lines.
        settled: The number of counted deliveries, from the front.
    """

    source: str
    first_line: int
    deliveries: list[DeliveryFuture] = field(default_factory=list)
    settled: int = 0


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """One line that could not be sent, or a record that was not acknowledged."""

    source: str | None
    line: int | None
    error: str
    message: str

    def as_json(self) -> dict[str, Any]:
        """Return the problem for the summary for programs."""
        return {"file": self.source, "line": self.line, "error": self.error, "message": self.message}


@final
class Tally:
    """The counts of one run.

    Attributes:
        acknowledged: Records that were acknowledged (with acks=0: written to a connection).
        failed: Records that were sent and not acknowledged.
        possibly_written: The failed records that may be in the log nevertheless.
        rejected: Lines that could not be sent at all.
        sent_bytes: Bytes of the lines sent, without their newlines.
        read_bytes: Bytes read of the input.
        blank: Blank lines, which were skipped.
        left_out: Failed records of an earlier run that were skipped, as the user chose.
        errors: Class of the error -> the number of records or lines.
        causes: Kind of failure, class of the error, cause -> the number of records or lines.
        problems: The first problems.
        latency: The latency of acknowledgements.
    """

    def __init__(self) -> None:
        self.acknowledged: int = 0
        self.failed: int = 0
        self.possibly_written: int = 0
        self.rejected: int = 0
        self.sent_bytes = 0
        self.read_bytes = 0
        self.blank = 0
        self.left_out = 0
        self.errors: Counter[str] = Counter()
        self.causes: Counter[tuple[Literal["failed", "rejected"], str, str]] = Counter()
        self.problems: list[Problem] = []
        self.latency: LatencySample = LatencySample()
        self._groups: deque[Group] = deque()
        self._sent_in_closed_groups = 0
        self._open: Group | None = None
        self._started_at: float | None = None
        self._ended_at: float | None = None

    # -- while sending ---

    def open_group(self, source: str, first_line: int) -> Group:
        """Complete the open group, and return a new one for the next deliveries."""
        if self._started_at is None:
            self._started_at = time.monotonic()
        self._close_group()
        self._open = Group(source, first_line)
        self._groups.append(self._open)
        return self._open

    @property
    def sent(self) -> int:
        """Records that the producer accepted."""
        return self._sent_in_closed_groups + (0 if self._open is None else len(self._open.deliveries))

    def reject(self, source: str, line: int, error: Exception) -> None:
        """Count a line that could not be sent."""
        self.rejected += 1
        self._add_problem("rejected", source, line, error)

    @property
    def outstanding(self) -> int:
        """Records without an outcome yet. Checks each that `settle()` has not counted: 10 ms for 200,000."""
        return sum(
            len(group.deliveries) - group.settled - sum(map(_is_done, group.deliveries[group.settled :]))
            for group in self._groups
        )

    @property
    def acknowledged_so_far(self) -> int:
        """As `acknowledged`, with the records behind one that waits; as expensive as `outstanding`."""
        return self.acknowledged + sum(
            delivery.done() and delivery.exception() is None
            for group in self._groups
            for delivery in group.deliveries[group.settled :]
        )

    def settle(self) -> None:
        """Count the newly settled records in the order of sending, up to the first that is not settled.

        So a partition that stalls delays the count of the others. The two properties above do not stop there.
        """
        groups = self._groups
        while groups:
            group = groups[0]
            deliveries = group.deliveries
            if group.settled == 0 and all(map(_is_done, deliveries)):
                self._count(group, len(deliveries))
            else:
                settled = group.settled
                while settled < len(deliveries) and deliveries[settled].done():
                    settled += 1
                self._count(group, settled)
            if group.settled < len(deliveries) or group is self._open:
                return
            groups.popleft()

    def end(self) -> None:
        """Finish the counts: nothing more is sent, and every outcome is known."""
        self._close_group()
        self.settle()
        self._ended_at = time.monotonic()
        if self._groups:
            raise RuntimeError(f"{self.sent - self.acknowledged - self.failed} records were left unsettled")

    def _close_group(self) -> None:
        if self._open is not None:
            self._sent_in_closed_groups += len(self._open.deliveries)
            self._open = None

    def _count(self, group: Group, settled: int) -> None:
        new = group.deliveries[group.settled : settled]
        if any(map(_error_of, new)):
            for index, delivery in enumerate(new, group.settled):
                error = delivery.exception()
                if error is None:
                    self.acknowledged += 1
                else:
                    self._fail(group.source, group.first_line + index, error)
        else:
            self.acknowledged += len(new)
        group.settled = settled

    def _fail(self, source: str, line: int, error: BaseException) -> None:
        self.failed += 1
        if isinstance(error, DeliveryError) and error.possibly_written:
            self.possibly_written += 1
        self._add_problem("failed", source, line, error)

    def _add_problem(
        self, what: Literal["failed", "rejected"], source: str, line: int, error: BaseException
    ) -> None:
        kind = type(error).__name__
        self.errors[kind] += 1
        self.causes[what, kind, cause_of(error)] += 1
        if len(self.problems) < FAILURES_SHOWN:
            self.problems.append(Problem(source, line, kind, f"{error}"))

    # -- results ---

    @property
    def seconds(self) -> float:
        """Seconds from the first record to now, or to the end."""
        if self._started_at is None:
            return 0.0
        ended_at = time.monotonic() if self._ended_at is None else self._ended_at
        return ended_at - self._started_at

    @property
    def rate(self) -> float:
        """Acknowledged records per second."""
        seconds = self.seconds
        return self.acknowledged / seconds if seconds > 0 else 0.0
