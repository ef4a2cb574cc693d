"""Measurements: totals, rates, averages and maxima over Kafka's sampled windows, and histograms.

`metrics` calls them once per batch or request, never once per record. `now` is an argument, in seconds.

The windows are Kafka's (`metrics.num.samples` of `metrics.sample.window.ms` each): a rate covers the time since
the oldest sample began, and at least all windows but one. An average or a maximum covers all samples in which
something happened. Kafka has only an average and a maximum; here the same numbers can also fill a histogram.

Invariants:

1. The cost of `record()` does not depend on the number of recorded values. Values older than the windows use no
   memory.
2. Totals and histogram counts only grow, as Prometheus and OpenTelemetry require.
3. A percentile is at most one twentieth too high: that is the width of a bucket, whose upper end is reported.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from aioproduce._native.collector import untrack

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from math import ceil, log2, pow

# Buckets between a power of two and the next, from 2**-20 to 2**40: microseconds and years, bytes and gigabytes.
_SUB_BUCKETS: Final = 16
_LOWEST: Final = 2.0**-20
_BUCKETS: Final = 60 * _SUB_BUCKETS


class Windows:
    """The windows over which recorded values count.

    Attributes:
        samples: The number of samples: `metrics.num.samples`.
        seconds: The length of a sample: `metrics.sample.window.ms`; at least a millisecond, because Kafka accepts
            0, which would be a divisor.
    """

    def __init__(self, samples: cython.Py_ssize_t = 2, seconds: cython.double = 30.0) -> None:
        self.samples = samples
        self.seconds: float = max(seconds, 0.001)


@cython.no_gc
@cython.cclass
class _Sample:
    def __init__(self, former: dict[int, int], now: float) -> None:
        self.counts: dict[int, int] = {}
        self.former = former  # where the counts of a histogram go when the sample is used again
        self.reset(now)

    def reset(self, now: float) -> None:
        self.began_at = now
        self.last_at = now
        self.count = 0
        self.total = 0.0
        self.highest = -math.inf
        if self.counts:
            for bucket, count in self.counts.items():
                self.former[bucket] = self.former.get(bucket, 0) + count
            self.counts = {}


@cython.no_gc
@cython.cclass
class _Windowed:
    """The samples of one sensor, as in Kafka's SampledStat."""

    # The latest sample and the length of a window are here, too: a batch updates a dozen sensors with a cold cache,
    # and each further object costs a wait for memory.
    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._seconds = windows.seconds
        self._latest: _Sample | None = None
        self._samples: list[_Sample] = []
        untrack(self._samples)
        self._former: dict[int, int] = {}
        self._current = -1

    def _sample(self, now: float) -> _Sample:
        """Return the sample of the time `now`."""
        latest = self._latest
        if latest is not None and now - latest.began_at < self._seconds:
            return latest
        samples = self._samples
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(samples):
            samples.append(_Sample(self._former, now))
        sample: _Sample = samples[self._current]
        sample.reset(now)
        self._latest = sample
        return sample

    def _fresh(self, now: float) -> list[_Sample]:
        """Return the samples within the windows."""
        span = self._windows.samples * self._windows.seconds
        sample: _Sample
        for sample in self._samples:
            if now - sample.last_at >= span:
                sample.reset(now)
        return self._samples

    def _count(self, now: float) -> int:
        """Return the number of values within the windows."""
        count = 0
        sample: _Sample
        for sample in self._fresh(now):
            count += sample.count
        return count

    def _total(self, now: float) -> float:
        """Return the sum of the values within the windows."""
        total = 0.0
        sample: _Sample
        for sample in self._fresh(now):
            total += sample.total
        return total

    def _elapsed(self, now: float) -> float:
        """Return the seconds that a rate covers."""
        windows = self._windows
        samples = self._fresh(now)
        if not samples:
            return windows.seconds * max(windows.samples - 1, 1)
        sample: _Sample
        first = now
        for sample in samples:
            first = min(first, sample.began_at)
        elapsed = now - first
        full = int(elapsed / windows.seconds)
        if full < windows.samples - 1:
            elapsed += (windows.samples - 1 - full) * windows.seconds
        return max(elapsed, 0.001)


@cython.no_gc
@cython.cclass
class Meter(_Windowed):
    """A count of events: the total, and the rate per second.

    Attributes:
        total: The sum of all that was recorded.

    Example:
        >>> records = Meter(Windows())
        >>> records.record(150, 0.0)
        >>> records.total, records.rate(30.0)
        (150.0, 5.0)
    """

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        self.total: float = 0.0

    def record(self, value: float, now: float) -> None:
        """Add `value` to the total."""
        sample = self._sample(now)
        sample.total += value
        sample.last_at = now
        self.total += value

    def rate(self, now: float) -> float:
        """Return the rate per second over the windows."""
        return self._total(now) / self._elapsed(now)


@cython.no_gc
@cython.cclass
class Spread(_Windowed):
    """A size or a duration: its average and its maximum over the windows.

    Attributes:
        count: The number of recorded values.
        total: Their sum.
        highest: The largest value ever.

    Example:
        >>> latency = Spread(Windows())
        >>> for seconds in (0.001, 0.002, 0.006):
        ...     latency.record(seconds, 1.0)
        >>> latency.average(2.0), latency.maximum(2.0)
        (0.003, 0.006)
    """

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        self.count: int = 0
        self.total: float = 0.0
        self.highest: float = -math.inf

    def record(self, value: float, now: float) -> None:
        """Record one value, which is never negative."""
        Spread.record_sum(self, value, 1, value, now)

    def record_sum(self, total: float, count: cython.longlong, highest: float, now: float) -> None:
        """Record `count` values by their sum and the largest of them."""
        sample = self._sample(now)
        sample.count += count
        sample.total += total
        sample.last_at = now
        sample.highest = max(sample.highest, highest)
        self.highest = max(self.highest, highest)
        self.count += count
        self.total += total

    def rate(self, now: float) -> float:
        """Return the number of values per second over the windows."""
        return self._count(now) / self._elapsed(now)

    def sum_rate(self, now: float) -> float:
        """Return the sum of values per second over the windows."""
        return self._total(now) / self._elapsed(now)

    def average(self, now: float) -> float:
        """Return the average over the windows; NaN without values, as in Kafka."""
        count = self._count(now)
        return self._total(now) / count if count else math.nan

    def maximum(self, now: float) -> float:
        """Return the maximum over the windows; NaN without values."""
        highest = -math.inf
        sample: _Sample
        for sample in self._fresh(now):
            highest = max(highest, sample.highest)
        return highest if highest != -math.inf else math.nan


@cython.no_gc
@cython.cclass
class Distribution(Spread):
    """A `Spread` with percentiles, and with a histogram of all values ever recorded.

    Example:
        >>> sizes = Distribution(Windows())
        >>> for size in (1.0, 2.0, 64.0):
        ...     sizes.record(size, 1.0)
        >>> sizes.percentile(0.5, 1.0), sizes.histogram((2.0, 100.0))
        (2.0, [2, 3, 3])
    """

    def record(self, value: float, now: float) -> None:
        """Record one value, which is never negative."""
        Spread.record(self, value, now)
        sample: _Sample = self._latest  # type: ignore[assignment]  # there is one now
        bucket = bucket_of(value)
        sample.counts[bucket] = sample.counts.get(bucket, 0) + 1

    def percentile(self, share: float, now: float) -> float:
        """Return the value that a share (0 to 1) of the values does not exceed; NaN without values."""
        counts: dict[int, int] = {}
        sample: _Sample
        for sample in self._fresh(now):
            for bucket, count in sample.counts.items():
                counts[bucket] = counts.get(bucket, 0) + count
        count = sum(counts.values())
        if not count:
            return math.nan
        rank = max(math.ceil(share * count), 1)
        for bucket in sorted(counts):
            rank -= counts[bucket]
            if rank <= 0:
                return min(upper_end(bucket), self.maximum(now))
        raise AssertionError("the counts add up")

    def histogram(self, bounds: tuple[float, ...]) -> list[int]:
        """Return how many of all values are at most each of the ascending bounds; the last number is of all.

        A value counts for a bound if the upper end of its bucket does. So no value is reported as too small.
        """
        of_each = [0] * (len(bounds) + 1)
        all_counts = [self._former]
        sample: _Sample
        for sample in self._samples:
            all_counts += [sample.counts]
        for counts in all_counts:
            for bucket, count in counts.items():
                of_each[bisect_left(bounds, upper_end(bucket))] += count
        return list(accumulate(of_each))


def bucket_of(value: cython.double) -> cython.Py_ssize_t:
    """Return the bucket of a number: 16 from each power of two to the next, beginning at 2**-20."""
    if value <= _LOWEST:
        return 0
    bucket: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, ceil(_SUB_BUCKETS * log2(value / _LOWEST)))
    return bucket if bucket < _BUCKETS else _BUCKETS


def upper_end(bucket: cython.Py_ssize_t) -> cython.double:
    """Return the upper end of a bucket."""
    return float(_LOWEST * pow(2.0, bucket / _SUB_BUCKETS))
