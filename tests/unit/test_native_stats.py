"""The sensors in both builds: what is recorded in one is read the same in the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_builds import BUILDS, native_build

if TYPE_CHECKING:
    from types import SimpleNamespace

RECORDED = st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 40)), max_size=40)
"""Values, and the seconds until the next."""

BOUNDS = tuple(2.0**power for power in range(-6, 30, 3))


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """All modules, compiled or interpreted."""
    return native_build(request.param)


def readings(native: SimpleNamespace, recorded: list[tuple[float, float]]) -> list[Any]:
    """All that can be read of all sensors, after all this was recorded."""
    stats = native.stats
    windows = stats.Windows(3, 10.0)
    meter, spread = stats.Meter(windows), stats.Spread(windows)
    summed, distribution = stats.Spread(windows), stats.Distribution(windows)
    now = 5.0
    for value, pause in recorded:
        meter.record(value, now)
        spread.record(value, now)
        distribution.record(value, now)
        summed.record_sum(3 * value, 3, value, now)
        now += pause
    return [
        meter.total,
        meter.rate(now),
        *(
            reading
            for one in (spread, summed, distribution)
            for reading in (
                one.count,
                one.total,
                one.highest,
                one.rate(now),
                one.sum_rate(now),
                one.average(now),
                one.maximum(now),
            )
        ),
        *(distribution.percentile(share, now) for share in (0.0, 0.5, 0.99, 1.0)),
        *distribution.histogram(BOUNDS),
    ]


@given(recorded=RECORDED)
def test_both_builds_count_alike(recorded: list[tuple[float, float]]) -> None:
    compiled, interpreted = (readings(native_build(build), recorded) for build in BUILDS)
    assert compiled == pytest.approx(interpreted, nan_ok=True, rel=1e-12)


@given(value=st.floats(0, 1e12))
def test_both_builds_have_the_same_buckets(value: float) -> None:
    compiled, interpreted = (native_build(build).stats for build in BUILDS)
    assert compiled.bucket_of(value) == interpreted.bucket_of(value)
    bucket = compiled.bucket_of(value)
    assert compiled.upper_end(bucket) == pytest.approx(interpreted.upper_end(bucket))


def test_batches(native: SimpleNamespace) -> None:
    metrics = native.sensors.BatchMetrics(native.stats.Windows())
    header = native.record_batch.RECORD_BATCH_OVERHEAD
    metrics.batch_sent("a", 2, header + 17, 9, header + 17, 2.0, 3.0)
    metrics.batch_sent("b", 1, header + 27, 27, 70, 2.0, 3.0)
    metrics.request_sent(3, 3.0)
    metrics.batch_sent("b", 1, header + 27, 27, 70, 3.0, 4.0)
    metrics.request_sent(1, 4.0)
    assert (metrics.records.total, metrics.records_per_request.average(4.0)) == (4, 2.0)
    assert metrics.size.maximum(4.0) == header + 17
    assert metrics.queue_time.maximum(4.0) == 3000.0
    assert metrics.record_size.average(4.0) == (17 + 27 + 27) / 4
    assert metrics.record_size.maximum(4.0) == 27
    assert metrics.compression.average(4.0) == (1 + 2 * (70 - header) / 27) / 3
    assert (metrics.topics["a"].records.total, metrics.topics["b"].records.total) == (2, 2)
    assert (metrics.topics["a"].bytes.total, metrics.topics["b"].bytes.total) == (header + 17, 140)


def test_the_stages_of_a_batch_add_up(native: SimpleNamespace) -> None:
    metrics = native.sensors.BatchMetrics(native.stats.Windows())
    metrics.batch_retried("a", 2, 3.25)
    metrics.batch_ended(1.0, 1.5, 3.0, 3.25, 5.0)
    stages = [
        metrics.batching_time.total,
        metrics.await_send_time.total,
        metrics.in_flight_time.total,
        metrics.retry_time.total,
    ]
    assert stages == [500.0, 1500.0, 250.0, 1750.0]
    assert metrics.delivery_time.total == sum(stages)
    assert (metrics.retries.total, metrics.topics["a"].retries.total) == (2, 2)


def test_a_batch_that_was_never_sent_has_no_time_in_flight(native: SimpleNamespace) -> None:
    metrics = native.sensors.BatchMetrics(native.stats.Windows())
    metrics.batch_ended(1.0, math.inf, math.inf, math.inf, 4.0)
    metrics.batch_failed("a", 3, 4.0)
    assert (metrics.in_flight_time.count, metrics.retry_time.count) == (0, 0)
    assert (
        metrics.batching_time.total + metrics.await_send_time.total == metrics.delivery_time.total == 3000.0
    )
    assert metrics.errors.total == metrics.topics["a"].errors.total == 3


def test_brokers_and_all_of_them_together(native: SimpleNamespace) -> None:
    windows = native.stats.Windows()
    together = native.sensors.NodeMetrics(windows)
    one, two = (native.sensors.NodeMetrics(windows, together) for _ in range(2))
    one.sent(100, 1.0)
    two.sent(50, 1.0)
    one.received(7, 2, 2.0)
    two.received(3, 0, 2.0)
    assert (one.requests.count, one.outgoing.total, one.incoming.total, one.responses.total) == (1, 100, 7, 2)
    assert (together.requests.count, together.outgoing.total) == (2, 150)
    assert (together.incoming.total, together.responses.total, together.operations.total) == (10, 2, 4)
    assert together.requests.maximum(2.0) == 100
