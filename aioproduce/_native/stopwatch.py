# cython: boundscheck=False, wraparound=False, cdivision=True
"""How long records took from the call of `send()` to their acknowledgement, every one, at a few nanoseconds each.

Used by `aioproduce perf`, which hands over the deliveries of records sent one after another, without a pause
between them, and the two instants between which that was. The records of a batch are acknowledged at one instant,
so that only the first has a callback. Between the two instants sends count as evenly spread.

Invariants:

1. Each record counts once: as outstanding, then as acknowledged or failed; a batch that is split keeps its count.
2. A latency is never told shorter than it was by more than the time that the sends of its group took, nor a
   percentile by more: buckets are at most a 64th wide, and their upper end is told, or the maximum.
3. What is settled costs no memory.

One source, two builds, as `delivery.py`; no module calls this one in C, so there is no `stopwatch.pxd`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if cython.compiled:
    from cython.cimports.aioproduce._native.delivery import (  # type: ignore[import-untyped,import-not-found,no-redef,unused-ignore]
        _PENDING,
        _SPLIT,
        BatchResult,
        DeliveryFuture,
        make_delivery,
    )
    from cython.cimports.libc.math import (  # type: ignore[import-untyped,import-not-found,no-redef,unused-ignore]
        floor,
        ldexp,
        log2,
    )
else:
    from math import floor, ldexp, log2

    from aioproduce._native.delivery import _PENDING, _SPLIT, BatchResult, DeliveryFuture, make_delivery

# C's numbers when compiled. Buckets, equally wide, from each power of two to the next:
_STEPS: int = cython.declare(cython.int, 64)
# from 2**-20 seconds, a microsecond, to 2**14, which is four hours and a half.
_LOWEST_POWER: int = cython.declare(cython.int, -20)
_BUCKETS: int = cython.declare(cython.int, 34 * 64)


@cython.cclass
class Latencies:
    """A histogram of seconds, with the bytes of the records that took them.

    Example:
        >>> latencies = Latencies()
        >>> latencies.add_run(100, 1000, 0.001, 0.001)
        >>> latencies.count, latencies.size, latencies.highest, round(latencies.percentile(0.5), 3)
        (100, 1000, 0.1, 0.052)
    """

    __slots__ = ("_count", "_counts", "_highest", "_size", "_total")

    _count: cython.longlong
    _size: cython.longlong
    _total: cython.double
    _highest: cython.double
    _counts: dict[int, int]

    def __init__(self) -> None:
        self._count = 0
        self._size = 0
        self._total = 0.0
        self._highest = 0.0
        self._counts = {}

    @cython.ccall
    def add_run(
        self, count: cython.longlong, size: cython.longlong, lowest: cython.double, step: cython.double
    ) -> None:
        """So many more, each `step` longer than the one before, of so many bytes together."""
        first: cython.longlong = 0
        following: cython.longlong
        bucket: cython.Py_ssize_t
        value: cython.double
        highest: cython.double = lowest + step * (count - 1)
        if count <= 0:
            return
        self._count += count
        self._size += size
        self._total += count * (lowest + highest) / 2
        self._highest = max(self._highest, highest)
        counts = self._counts
        while first < count:
            value = lowest + step * first
            bucket = _bucket_of(value)
            following = count
            if step > 0 and bucket < _BUCKETS and value + step * (count - first - 1) > _upper_end(bucket):
                following = first + cython.cast(
                    cython.longlong, floor((_upper_end(bucket) - value) / step) + 1
                )
                following = min(following, count)
            counts[bucket] = counts.get(bucket, 0) + following - first
            first = following

    def add(self, other: Latencies) -> None:
        """All that another has."""
        self._count += other._count
        self._size += other._size
        self._total += other._total
        self._highest = max(self._highest, other._highest)
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def percentile(self, share: float) -> float:
        """The latency at this share (0 to 1) of all in their order, counted as Kafka's tool does; NaN of none."""
        rank = min(math.floor(share * self._count) + 1, self._count)
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return min(_upper_end(bucket), self._highest) if bucket < _BUCKETS else self._highest
        return math.nan

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self._size

    @property
    def highest(self) -> float:
        """The longest, in seconds; 0 of none."""
        return self._highest

    @property
    def average(self) -> float:
        """Seconds; NaN of none."""
        return self._total / self._count if self._count else math.nan


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bucket_of(value: cython.double) -> cython.Py_ssize_t:
    """The bucket whose lower end is at most a value, and its upper end above it."""
    power: cython.int
    bucket: cython.Py_ssize_t
    if value < ldexp(1.0, _LOWEST_POWER):
        return 0
    power = cython.cast(cython.int, floor(log2(value)))
    # How far above that power of two, in steps; log2 may round up just below the next.
    bucket = cython.cast(cython.Py_ssize_t, floor((ldexp(value, -power) - 1.0) * _STEPS))
    bucket = max(bucket, 0) + (power - _LOWEST_POWER) * _STEPS
    return min(bucket, _BUCKETS)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _upper_end(bucket: cython.Py_ssize_t) -> cython.double:
    """What all of a bucket is less than."""
    power: cython.int = cython.cast(cython.int, bucket // _STEPS) + _LOWEST_POWER
    return float(ldexp(1.0 + cython.cast(cython.double, bucket % _STEPS + 1) / _STEPS, power))


@cython.final
@cython.cclass
class _Batch:
    """The records of one batch: runs of `(count, bytes, first sent at, seconds between two, is steady)`."""

    __slots__ = ("_count", "_result", "_runs", "_stopwatch")

    _stopwatch: Stopwatch
    _result: BatchResult
    _runs: list[tuple[int, int, float, float, bool]]
    _count: cython.longlong

    def __init__(self, stopwatch: Stopwatch, result: BatchResult) -> None:
        self._stopwatch = stopwatch
        self._result = result
        self._runs = []
        self._count = 0

    def settled(self, _metadata: Any, error: BaseException | None) -> None:
        """The delivery callback of the first record."""
        self._stopwatch._forget(self._result)
        if self._result._status == _SPLIT:
            self._divide()
        else:
            self._account(error)

    @cython.cfunc
    def _account(self, error: BaseException | None) -> None:
        if error is not None:
            # The others are told of, too: by their number.
            self._result._unobserved = 0
            self._stopwatch._fail(self._count, error)
        else:
            self._stopwatch._acknowledge(self._runs)
        self._runs = []

    @cython.cfunc
    def _divide(self) -> None:
        """The broker found the batch too large: its records went into several."""
        children = self._result._children
        assert children is not None
        for place, (first, child) in enumerate(children):
            following = children[place + 1][0] if place + 1 < len(children) else self._count
            part = _Batch(self._stopwatch, child)
            part._runs = _cut(self._runs, first, following)
            part._count = following - first
            part._begin()

    @cython.cfunc
    def _begin(self) -> None:
        """Wait for the outcome, or see that it is there already."""
        result: BatchResult = self._result
        if result._status == _PENDING:
            make_delivery(result, 0, 0, -1, -1).add_delivery_callback(self.settled)
        else:
            self.settled(None, result._error)


def _cut(
    runs: list[tuple[int, int, float, float, bool]], first: int, following: int
) -> list[tuple[int, int, float, float, bool]]:
    """The runs of the records from `first` to before `following`, counted over all runs."""
    parts: list[tuple[int, int, float, float, bool]] = []
    for count, size, at, step, is_steady in runs:
        begin, end = max(first, 0), min(following, count)
        if begin < end:
            # A share of the bytes, such that those of all parts add up.
            part = size * end // count - size * begin // count
            parts.append((end - begin, part, at + step * begin, step, is_steady))
        first -= count
        following -= count
    return parts


@cython.final
@cython.cclass
class Stopwatch:
    """Measures the records of one run.

    Args:
        clock: Tells the time, in seconds.
        on_settled: Called with the time after every batch.
    """

    __slots__ = (
        "_acknowledged",
        "_batches",
        "_clock",
        "_errors",
        "_failed",
        "_on_settled",
        "_sent",
        "_sinks",
        "_steady_sinks",
    )

    _clock: Any
    _on_settled: Any
    _batches: dict[BatchResult, _Batch]
    _sent: cython.longlong
    _acknowledged: cython.longlong
    _failed: cython.longlong
    _errors: dict[str, list[Any]]
    _sinks: list[Latencies]
    _steady_sinks: list[Latencies]

    def __init__(self, clock: Callable[[], float], on_settled: Callable[[float], object]) -> None:
        self._clock = clock
        self._on_settled = on_settled
        self._batches = {}
        self._sent = 0
        self._acknowledged = 0
        self._failed = 0
        self._errors = {}
        self._sinks = []
        self._steady_sinks = []

    def record(
        self,
        deliveries: list[DeliveryFuture],
        began_at: float,
        ended_at: float,
        is_steady: bool,
        value_size: cython.longlong = -1,
    ) -> None:
        """Records that were sent one after another without a pause: `send()` called from the first instant on.

        To be called before the event loop has its turn: what is settled by then is only now seen to be. Where all
        values have the same size, `value_size` saves looking at each record.
        """
        delivery: DeliveryFuture
        result: BatchResult
        batch: _Batch | None
        place: cython.Py_ssize_t = 0
        first: cython.Py_ssize_t
        size: cython.longlong
        count: cython.Py_ssize_t = len(deliveries)
        at: cython.double = began_at
        if count == 0:
            return
        self._sent += count
        step: cython.double = (ended_at - at) / count
        while place < count:
            delivery = deliveries[place]
            if delivery._result._status == _SPLIT:
                delivery._follow_split()
            result = delivery._result
            index: cython.Py_ssize_t = delivery._index
            first = place
            size = 0
            if value_size >= 0:
                delivery = deliveries[count - 1]
                if delivery._result is result and delivery._index - index == count - 1 - first:
                    # As many places in the batch as records: all of them are in it.
                    size = value_size * (count - first)
                    place = count
            while place < count:
                delivery = deliveries[place]
                if delivery._result is not result:
                    break
                size += max(delivery._value_size, 0)
                place += 1
            batch = self._batches.get(result)
            run = (place - first, size, at + step * first, step, is_steady)
            if batch is not None:
                batch._runs.append(run)
                batch._count += place - first
                continue
            batch = _Batch(self, result)
            batch._runs.append(run)
            batch._count = place - first
            if result._status == _PENDING:
                self._batches[result] = batch
                delivery = deliveries[first]
                delivery.add_delivery_callback(batch.settled)
            else:
                batch.settled(None, result._error)

    def refused(self, error: BaseException) -> None:
        """`send()` raised: one more that failed."""
        self._sent += 1
        self._fail(1, error)

    @property
    def sent(self) -> int:
        """Records handed over."""
        return self._sent

    @property
    def acknowledged(self) -> int:
        """Of them."""
        return self._acknowledged

    @property
    def failed(self) -> int:
        """Of them."""
        return self._failed

    @property
    def errors(self) -> dict[str, list[Any]]:
        """Class of the error -> `[records, text of the first]`."""
        return self._errors

    @property
    def sinks(self) -> list[Latencies]:
        """What is acknowledged is added to each of these."""
        return self._sinks

    @property
    def steady_sinks(self) -> list[Latencies]:
        """What is acknowledged and was sent as steady is added to each of these, too."""
        return self._steady_sinks

    @property
    def outstanding(self) -> int:
        """Records that are neither acknowledged nor failed."""
        return self._sent - self._acknowledged - self._failed

    @cython.cfunc
    def _forget(self, result: BatchResult) -> None:
        self._batches.pop(result, None)

    @cython.cfunc
    def _fail(self, count: cython.longlong, error: BaseException) -> None:
        self._failed += count
        told = self._errors.setdefault(type(error).__name__, [0, str(error)])
        told[0] += count

    @cython.cfunc
    def _acknowledge(self, runs: list[tuple[int, int, float, float, bool]]) -> None:
        now: cython.double = self._clock()
        count: cython.longlong
        size: cython.longlong
        at: cython.double
        step: cython.double
        sink: Latencies
        for count, size, at, step, is_steady in runs:
            self._acknowledged += count
            # The last one sent waited least.
            lowest: cython.double = now - (at + step * (count - 1))
            for sink in self._sinks:
                sink.add_run(count, size, lowest, step)
            if is_steady:
                for sink in self._steady_sinks:
                    sink.add_run(count, size, lowest, step)
        self._on_settled(now)
