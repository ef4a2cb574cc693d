"""The stopwatch of `aioproduce perf`: its histogram against sorted lists, its counts through splits and failures.

Both builds, side by side (`native_builds`).
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.native_builds import BUILDS, native_build

SHARES = (0.0, 0.1, 0.5, 0.95, 0.99, 0.999, 1.0)


class Runtime:
    """The driver's side, of which nothing is asked here but to hear of what nobody observed."""

    def __init__(self) -> None:
        self.unobserved = 0

    def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
        self.unobserved += count


class Bench:
    """A stopwatch whose clock stands where the test puts it, and batches by hand."""

    def __init__(self, native: SimpleNamespace) -> None:
        self.native = native
        self.now = 0.0
        self.settled_at: list[float] = []
        self.watch = native.stopwatch.Stopwatch(lambda: self.now, self.settled_at.append)
        self.latencies = native.stopwatch.Latencies()
        self.steady = native.stopwatch.Latencies()
        self.watch.sinks.append(self.latencies)
        self.watch.steady_sinks.append(self.steady)
        self.runtime = Runtime()

    def batch(self) -> Any:
        return self.native.delivery.BatchResult("t", 0, self.runtime)

    def deliveries(self, result: Any, first: int, count: int, size: int = 10) -> list[Any]:
        make = self.native.delivery.make_delivery
        return [make(result, index, 0, -1, size) for index in range(first, first + count)]

    def counts(self) -> tuple[int, int, int, int]:
        watch = self.watch
        return watch.sent, watch.acknowledged, watch.failed, watch.outstanding


@pytest.fixture(params=BUILDS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(native_build(request.param))


def test_percentiles_are_those_of_the_sorted_list_or_a_64th_more(bench: Bench) -> None:
    generator = random.Random(1)
    latencies = bench.latencies
    values: list[float] = []
    size = 0
    for _ in range(300):
        count = generator.randrange(1, 70)
        lowest, step = (
            10 ** generator.uniform(-5.5, 1),
            generator.choice((0, 10 ** generator.uniform(-8, -3))),
        )
        latencies.add_run(count, 7 * count, lowest, step)
        values += [lowest + step * place for place in range(count)]
        size += 7 * count
    values.sort()

    assert latencies.count == len(values)
    assert latencies.size == size
    assert latencies.highest == pytest.approx(values[-1], rel=1e-12)
    assert latencies.average == pytest.approx(sum(values) / len(values), rel=1e-9)
    for share in SHARES:
        # Kafka's tool: the value at index int(share * count) of the sorted list.
        exact = values[min(int(share * len(values)), len(values) - 1)]
        assert exact * (1 - 1e-12) <= latencies.percentile(share) <= exact * (1 + 1 / 64) + 2e-6


@pytest.mark.parametrize("value", [0.0, 1e-9, 2.0**-20, 0.5, 1.0, 1.0 - 2**-53, 2.0, 100_000.0])
def test_one_value_is_every_percentile(bench: Bench, value: float) -> None:
    bench.latencies.add_run(1, 1, value, 0.0)

    assert [bench.latencies.percentile(share) for share in SHARES] == [value] * len(SHARES)


def test_nothing_has_no_percentile(bench: Bench) -> None:
    assert str(bench.latencies.percentile(0.5)) == str(bench.latencies.average) == "nan"
    bench.latencies.add_run(0, 0, 1.0, 1.0)
    assert bench.latencies.count == 0


def test_histograms_add_up(bench: Bench) -> None:
    other = bench.native.stopwatch.Latencies()
    bench.latencies.add_run(10, 100, 0.001, 0.001)
    other.add_run(90, 50, 0.011, 0.001)
    bench.latencies.add(other)

    assert (bench.latencies.count, bench.latencies.size) == (100, 150)
    assert bench.latencies.average == pytest.approx(0.0505)
    assert bench.latencies.percentile(0.5) == pytest.approx(0.051, rel=1 / 64)


def test_latency_is_from_each_records_own_send_to_the_settling(bench: Bench) -> None:
    result = bench.batch()
    # Four records sent between 1.0 and 1.4: at 1.0, 1.1, 1.2 and 1.3; acknowledged at 2.0.
    bench.watch.record(bench.deliveries(result, 0, 4), 1.0, 1.4, False)
    assert bench.counts() == (4, 0, 0, 4)

    bench.now = 2.0
    result.succeed(17)
    assert result.run_callbacks() == []

    assert bench.counts() == (4, 4, 0, 0)
    assert bench.settled_at == [2.0]
    assert bench.latencies.size == 40
    assert bench.latencies.average == pytest.approx((1.0 + 0.9 + 0.8 + 0.7) / 4)
    assert bench.latencies.highest == pytest.approx(1.0)
    assert bench.latencies.percentile(0.0) == pytest.approx(0.7, rel=1 / 64)
    assert bench.steady.count == 0


def test_a_batch_that_fills_over_several_groups_and_groups_of_several_batches(bench: Bench) -> None:
    one, two = bench.batch(), bench.batch()
    bench.watch.record(bench.deliveries(one, 0, 3) + bench.deliveries(two, 0, 1), 0.0, 0.4, False)
    bench.watch.record(bench.deliveries(two, 1, 2) + bench.deliveries(one, 3, 2), 1.0, 1.4, True)

    bench.now = 2.0
    two.succeed(0)
    two.run_callbacks()
    assert bench.counts() == (8, 3, 0, 5)
    assert bench.steady.count == 2
    # Sent at 0.3, 1.0 and 1.1.
    assert bench.latencies.average == pytest.approx((1.7 + 1.0 + 0.9) / 3)

    bench.now = 3.0
    one.succeed(0)
    one.run_callbacks()
    assert bench.counts() == (8, 8, 0, 0)
    assert bench.steady.count == 4
    assert bench.steady.highest == pytest.approx(1.8)


def test_failures_are_counted_told_once_and_have_no_latency(bench: Bench) -> None:
    result = bench.batch()
    bench.watch.record(bench.deliveries(result, 0, 5), 0.0, 0.1, False)
    result.fail(ValueError("the first"), 5)
    assert result.run_callbacks() == []
    del result

    assert bench.counts() == (5, 0, 5, 0)
    assert bench.latencies.count == 0
    assert bench.runtime.unobserved == 0
    bench.watch.refused(ValueError("the second"))
    bench.watch.refused(KeyError("another"))
    assert bench.counts() == (7, 0, 7, 0)
    assert bench.watch.errors == {"ValueError": [6, "the first"], "KeyError": [1, "'another'"]}


def test_what_is_settled_before_it_is_handed_over_counts_all_the_same(bench: Bench) -> None:
    done, failed = bench.batch(), bench.batch()
    deliveries = bench.deliveries(done, 0, 2) + bench.deliveries(failed, 0, 1)
    done.succeed(0)
    failed.fail(ValueError("no"), 1)
    bench.now = 5.0
    bench.watch.record(deliveries, 1.0, 1.0, False)

    assert bench.counts() == (3, 2, 1, 0)
    assert bench.latencies.highest == 4.0


def test_a_split_batch_keeps_its_records_and_their_bytes(bench: Bench) -> None:
    whole, left, right = bench.batch(), bench.batch(), bench.batch()
    bench.watch.record(bench.deliveries(whole, 0, 3, size=11), 0.0, 0.3, False)
    bench.watch.record(bench.deliveries(whole, 3, 4, size=5), 1.0, 1.4, True)
    whole.split([(0, left), (4, right)])
    half, rest = bench.batch(), bench.batch()
    right.split([(0, half), (2, rest)])

    bench.now = 2.0
    left.succeed(0)
    left.run_callbacks()
    assert bench.counts() == (7, 4, 0, 3)
    half.succeed(4)
    half.run_callbacks()
    rest.fail(ValueError("no"), 1)
    rest.run_callbacks()

    assert bench.counts() == (7, 6, 1, 0)
    # Of the second group three of four: 5 bytes each; the share of the first is whole.
    assert bench.latencies.size == 3 * 11 + 3 * 5
    # Sent at 0, 0.1, 0.2; 1.0, 1.1, 1.2.
    assert bench.latencies.average == pytest.approx((2.0 + 1.9 + 1.8 + 1.0 + 0.9 + 0.8) / 6)
    assert bench.steady.count == 3


def test_records_handed_over_after_their_batch_was_split(bench: Bench) -> None:
    whole, left, right = bench.batch(), bench.batch(), bench.batch()
    deliveries = bench.deliveries(whole, 0, 4)
    whole.split([(0, left), (1, right)])
    bench.watch.record(deliveries, 0.0, 0.4, False)
    bench.now = 1.0
    for result in (left, right):
        result.succeed(0)
        result.run_callbacks()

    assert bench.counts() == (4, 4, 0, 0)
    assert bench.latencies.average == pytest.approx((1.0 + 0.9 + 0.8 + 0.7) / 4)


def test_nothing_sent_is_nothing(bench: Bench) -> None:
    bench.watch.record([], 0.0, 1.0, False)

    assert bench.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("value_size", [-1, 10])
def test_a_size_told_gives_the_same_as_sizes_read(bench: Bench, value_size: int) -> None:
    one, two = bench.batch(), bench.batch()
    # All in one batch; in two; in turn in both, beginning and ending in the same one.
    bench.watch.record(bench.deliveries(one, 0, 4), 0.0, 0.4, False, value_size)
    bench.watch.record(bench.deliveries(one, 4, 1) + bench.deliveries(two, 0, 3), 1.0, 1.4, False, value_size)
    mixed = [bench.deliveries(result, index, 1)[0] for result, index in ((two, 3), (one, 5), (two, 4))]
    bench.watch.record(mixed, 2.0, 2.3, False, value_size)

    bench.now = 3.0
    two.succeed(0)
    two.run_callbacks()
    assert (bench.latencies.count, bench.latencies.size) == (5, 50)
    assert bench.latencies.average == pytest.approx((1.9 + 1.8 + 1.7 + 1.0 + 0.8) / 5)
    one.succeed(0)
    one.run_callbacks()
    assert (bench.latencies.count, bench.latencies.size) == (11, 110)
