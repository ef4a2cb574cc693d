# cython: boundscheck=False, wraparound=False, cdivision=True
"""The latency of every record, from the call of `send()` to its acknowledgement, at a few nanoseconds a record.

`aioproduce perf` uses it. It passes the deliveries of records that it sent one after another without a pause, and
the times of the first and the last call. Between these times the sends count as evenly spread. The records of a
batch are acknowledged at one time, so only the first has a callback.

Invariants:

1. Each record counts once: as outstanding, then as acknowledged or failed. Splitting a batch keeps its count.
2. A reported latency or percentile is too short by at most the time that the sends of its group took. Buckets are
   at most a 64th wide, and the reported value is their upper end or the maximum.
3. A settled batch uses no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from aioproduce._native.delivery import BatchResult, DeliveryFuture

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from math import floor, ldexp, log2

    from aioproduce._native.delivery import _PENDING, _SPLIT, make_delivery

# Compiled, these are C numbers. The number of equally wide buckets from one power of two to the next.
_STEPS: int = cython.declare(cython.int, 64)
# The buckets reach from 2**-20 seconds (a microsecond) to 2**14 (four and a half hours).
_LOWEST_POWER: int = cython.declare(cython.int, -20)
_BUCKETS: int = cython.declare(cython.int, 34 * 64)


_Run: TypeAlias = tuple[int, int, float, float, bool]
"""Records of one batch: count, bytes, time of the first send, seconds between two sends, whether steady."""


class Latencies:
    """A histogram of latencies in seconds, with the total bytes of the records.

    Attributes:
        count: The number of records.
        size: Their total bytes.
        highest: The longest latency in seconds; 0 without records.

    Example:
        >>> latencies = Latencies()
        >>> latencies.add_run(100, 1000, 0.001, 0.001)
        >>> latencies.count, latencies.size, latencies.highest, round(latencies.percentile(0.5), 3)
        (100, 1000, 0.1, 0.052)
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.size: int = 0
        self._total = 0.0
        self.highest: float = 0.0
        self._counts: dict[int, int] = {}

    def add_run(
        self, count: cython.longlong, size: cython.longlong, lowest: cython.double, step: cython.double
    ) -> None:
        """Add `count` latencies, from `lowest` on in steps of `step`, of records with `size` bytes in total."""
        first: cython.longlong = 0
        highest: cython.double = lowest + step * (count - 1)
        if count <= 0:
            return
        self.count += count
        self.size += size
        self._total += count * (lowest + highest) / 2
        self.highest = max(self.highest, highest)
        counts = self._counts
        while first < count:
            value: cython.double = lowest + step * first
            bucket: cython.Py_ssize_t = _bucket_of(value)
            following: cython.longlong = count
            if step > 0 and bucket < _BUCKETS and value + step * (count - first - 1) > _upper_end(bucket):
                following = first + cython.cast(
                    cython.longlong, floor((_upper_end(bucket) - value) / step) + 1
                )
                following = min(following, count)
            counts[bucket] = counts.get(bucket, 0) + following - first
            first = following

    def add(self, other: Latencies) -> None:
        """Add all latencies of another histogram."""
        self.count += other.count
        self.size += other.size
        self._total += other._total
        self.highest = max(self.highest, other.highest)
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def percentile(self, share: float) -> float:
        """Return the latency at a share (0 to 1) of the sorted records, as Kafka's tool does; NaN without any."""
        rank = min(math.floor(share * self.count) + 1, self.count)
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return min(_upper_end(bucket), self.highest) if bucket < _BUCKETS else self.highest
        return math.nan

    @property
    def average(self) -> float:
        """The average latency in seconds; NaN without records."""
        return self._total / self.count if self.count else math.nan


def _bucket_of(value: cython.double) -> cython.Py_ssize_t:
    """Return the bucket that holds a value: lower end <= value < upper end."""
    if value < ldexp(1.0, _LOWEST_POWER):
        return 0
    power: cython.int = cython.cast(cython.int, floor(log2(value)))
    # The distance from that power of two, in steps; log2 may round up just below the next power.
    bucket: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, floor((ldexp(value, -power) - 1.0) * _STEPS))
    bucket = max(bucket, 0) + (power - _LOWEST_POWER) * _STEPS
    return min(bucket, _BUCKETS)


def _upper_end(bucket: cython.Py_ssize_t) -> cython.double:
    """Return the upper end of a bucket, which is not in it."""
    power: cython.int = cython.cast(cython.int, bucket // _STEPS) + _LOWEST_POWER
    return float(ldexp(1.0 + cython.cast(cython.double, bucket % _STEPS + 1) / _STEPS, power))


class _Batch:
    """The records of one batch, as runs (`_Run`)."""

    def __init__(self, stopwatch: Stopwatch, result: BatchResult) -> None:
        self._stopwatch = stopwatch
        self._result = result
        self._runs: list[_Run] = []
        self._count = 0

    def settled(self, _metadata: Any, error: BaseException | None) -> None:
        """Count the batch's records; the delivery callback of the first record."""
        self._stopwatch._batches.pop(self._result, None)
        if self._result.status == _SPLIT:
            self._divide()
        elif error is not None:
            # `_fail()` reports the other records as well, by their number.
            self._result.take_unobserved()
            self._stopwatch._fail(self._count, error)
        else:
            self._stopwatch._acknowledge(self._runs)

    def _divide(self) -> None:
        """Divide the runs among the parts: the broker refused the batch as too large, so it was split."""
        children = self._result._children
        assert children is not None
        for place, (first, child) in enumerate(children):
            following = children[place + 1][0] if place + 1 < len(children) else self._count
            part = _Batch(self._stopwatch, child)
            part._runs = _cut(self._runs, first, following)
            part._count = following - first
            part._begin()

    def _begin(self) -> None:
        """Wait for the outcome, or count it if it is known already."""
        result: BatchResult = self._result
        if result.status == _PENDING:
            self._stopwatch._batches[result] = self
            make_delivery(result, 0, 0, -1, -1)._add_delivery_callback(self.settled)
        else:
            self.settled(None, result.error)


def _cut(runs: list[_Run], first: int, following: int) -> list[_Run]:
    """Return the runs of the records from `first` to before `following`, counted over all runs."""
    parts: list[_Run] = []
    for count, size, at, step, is_steady in runs:
        begin, end = max(first, 0), min(following, count)
        if begin < end:
            # Rounded so that the bytes of all parts add up.
            part = size * end // count - size * begin // count
            parts.append((end - begin, part, at + step * begin, step, is_steady))
        first -= count
        following -= count
    return parts


class Stopwatch:
    """Measures the records of one run.

    Args:
        clock: Returns the time in seconds.
        on_settled: Called with the time after each acknowledged batch.

    Attributes:
        sent: The number of records.
        acknowledged: The number of acknowledged records.
        failed: The number of failed records.
        errors: Class of the error -> `[records, text of the first]`.
        sinks: Histograms that get every acknowledged record.
        steady_sinks: Histograms that get every acknowledged record that was sent as steady.
    """

    def __init__(self, clock: Callable[[], float], on_settled: Callable[[float], object]) -> None:
        self._clock: Any = clock
        self._on_settled: Any = on_settled
        self._batches: dict[BatchResult, _Batch] = {}
        self.sent: int = 0
        self.acknowledged: int = 0
        self.failed: int = 0
        self.errors: dict[str, list[Any]] = {}
        self.sinks: list[Latencies] = []
        self.steady_sinks: list[Latencies] = []

    def record(
        self,
        deliveries: list[DeliveryFuture],
        began_at: float,
        ended_at: float,
        is_steady: bool,
        value_size: cython.longlong = -1,
    ) -> None:
        """Measure records that were sent one after another without a pause, from `began_at` to `ended_at`.

        Call it before the event loop runs again: a batch that was settled before the call counts as settled now. If
        all values have the same size, `value_size` saves a look at each record.
        """
        place: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = len(deliveries)
        at: cython.double = began_at
        if count == 0:
            return
        self.sent += count
        step: cython.double = (ended_at - at) / count
        while place < count:
            delivery: DeliveryFuture = deliveries[place]
            if delivery._result.status == _SPLIT:
                delivery._follow_split()
            result: BatchResult = delivery._result
            index: cython.Py_ssize_t = delivery._index
            first: cython.Py_ssize_t = place
            size: cython.longlong = 0
            if value_size >= 0:
                delivery = deliveries[count - 1]
                if delivery._result is result and delivery._index - index == count - 1 - first:
                    # The batch has as many places between the two as there are records: all of them are in it.
                    size = value_size * (count - first)
                    place = count
            while place < count:
                delivery = deliveries[place]
                if delivery._result is not result:
                    break
                size += max(delivery._value_size, 0)
                place += 1
            batch: _Batch | None = self._batches.get(result)
            is_new: cython.bint = batch is None
            if batch is None:
                batch = _Batch(self, result)
            batch._runs.append((place - first, size, at + step * first, step, is_steady))
            batch._count += place - first
            if is_new:
                batch._begin()

    def refused(self, error: BaseException) -> None:
        """Count one failed record, because `send()` raised."""
        self.sent += 1
        self._fail(1, error)

    @property
    def outstanding(self) -> int:
        """Records that are neither acknowledged nor failed."""
        return self.sent - self.acknowledged - self.failed

    def _fail(self, count: cython.longlong, error: BaseException) -> None:
        self.failed += count
        told = self.errors.setdefault(type(error).__name__, [0, str(error)])
        told[0] += count

    def _acknowledge(self, runs: list[_Run]) -> None:
        now: cython.double = self._clock()
        count: cython.longlong
        size: cython.longlong
        at: cython.double
        step: cython.double
        sink: Latencies
        for count, size, at, step, is_steady in runs:
            self.acknowledged += count
            # The last record sent waited least.
            lowest: cython.double = now - (at + step * (count - 1))
            for sink in self.sinks:
                sink.add_run(count, size, lowest, step)
            if is_steady:
                for sink in self.steady_sinks:
                    sink.add_run(count, size, lowest, step)
        self._on_settled(now)
