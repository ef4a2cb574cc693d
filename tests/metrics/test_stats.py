"""Windows, rates and percentiles: scenarios of Kafka's MetricsTest and SampledStatTest, and plain statistics."""

from __future__ import annotations

import math
import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce._native.stats import Distribution, Meter, Spread, Windows, bucket_of, upper_end

TWO = Windows(2, 30.0)


def test_a_rate_over_windows_as_kafka_has_it() -> None:
    """MetricsTest.testRateWindowing: elapsed counts from the oldest sample."""
    meter = Meter(TWO)
    now, total = 0.0, 0.0
    for _ in range(3):
        meter.record(100, now)
        total += 100
        now += 15.0
    # 45 s since the first sample began; one full window, and one is the least.
    assert meter.rate(now) == pytest.approx(total / 45.0)
    # At once: as if all but one of the windows had passed, so that the first record is no burst.
    fresh = Meter(TWO)
    fresh.record(300, 1000.0)
    assert fresh.rate(1000.0) == pytest.approx(10.0)


def test_what_is_older_than_all_windows_counts_no_more() -> None:
    meter = Meter(TWO)
    meter.record(600, 0.0)
    assert meter.rate(59.9) > 0
    assert meter.rate(60.0) == 0.0
    assert meter.total == 600.0
    distribution = Distribution(TWO)
    distribution.record(7.0, 0.0)
    assert distribution.maximum(59.9) == 7.0
    assert math.isnan(distribution.maximum(60.0))
    assert math.isnan(distribution.average(60.0))
    assert math.isnan(distribution.percentile(0.5, 60.0))
    assert (distribution.count, distribution.total, distribution.highest) == (1, 7.0, 7.0)


def test_nothing_was_recorded() -> None:
    distribution = Distribution(TWO)
    assert math.isnan(distribution.average(5.0))
    assert math.isnan(distribution.maximum(5.0))
    assert Meter(TWO).rate(5.0) == 0.0
    assert distribution.histogram((1.0, 2.0)) == [0, 0, 0]


def test_a_sample_is_used_again() -> None:
    """Three samples are kept for two windows: the fourth takes the first one's place."""
    distribution = Distribution(TWO)
    for number in range(7):
        distribution.record(float(number), 30.0 * number)
    assert distribution.maximum(180.0) == 6.0
    # What was recorded at 120 and 150 counts still; at 210 so does what was recorded after 150.
    assert distribution.average(180.0) in (5.0, 5.5)
    assert distribution.average(209.0) == pytest.approx(statistics.fmean([6.0, 5.0]), abs=0.51)


@given(st.lists(st.floats(1e-6, 1e8), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_a_percentile_is_hardly_above_the_true_one(values: list[float], share: float) -> None:
    distribution = Distribution(TWO)
    for value in values:
        distribution.record(value, 1.0)
    true = sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
    found = distribution.percentile(share, 2.0)
    assert true * (1 - 1e-9) <= found <= true * (1 + 1 / 14)
    assert distribution.average(2.0) == pytest.approx(statistics.fmean(values))
    assert distribution.maximum(2.0) == max(values)


@given(st.floats(0, 1e9))
def test_a_number_lies_in_its_bucket(value: float) -> None:
    bucket = bucket_of(value)
    if value < upper_end(48 * 16):
        assert value <= upper_end(bucket) * (1 + 1e-12)
    if bucket:
        assert value > upper_end(bucket - 1) * (1 - 1e-12)


def test_a_sum_is_as_its_parts() -> None:
    one, summed = Spread(TWO), Spread(TWO)
    random = Random(1)
    for second in range(50):
        values = [random.uniform(0, 10) for _ in range(random.randrange(1, 9))]
        summed.record_sum(sum(values), len(values), max(values), float(second))
        for value in values:
            one.record(value, float(second))
    assert summed.average(50.0) == pytest.approx(one.average(50.0))
    assert (summed.maximum(50.0), summed.count) == (one.maximum(50.0), one.count)


def test_a_histogram_is_of_all_that_ever_was() -> None:
    distribution = Distribution(TWO)
    for second in range(1000):
        distribution.record(0.25 if second % 4 else 1.0, float(second))
    assert distribution.histogram((0.1, 0.25, 0.9, 1.0)) == [0, 750, 750, 1000, 1000]
