"""The stages of a batch's life (KIP-91): each as the script's clock has it, and together the whole of it."""

from __future__ import annotations

from math import ceil
from random import Random
from statistics import fmean

import pytest

from aioproduce.wire import error_codes as codes
from tests.metrics.measured_harness import MeasuredHarness

STAGES = ("batching-time", "await-send-time", "in-flight-time", "retry-time")


def totals(h: MeasuredHarness) -> dict[str, float]:
    """Milliseconds in each stage, of all batches together."""
    found = h.read()
    return {name: found.histogram(name).total for name in (*STAGES, "delivery-time")}


def assert_stages(h: MeasuredHarness, **expected: float) -> None:
    """These milliseconds, nothing in the others, and their sum is the delivery time."""
    told = {name.replace("_", "-") + "-time": value for name, value in expected.items()}
    found = totals(h)
    assert found == pytest.approx(
        {**dict.fromkeys(STAGES, 0.0), **told, "delivery-time": sum(told.values())}, abs=1e-6
    )


def test_lingered_sent_and_acknowledged() -> None:
    h = MeasuredHarness(linger_ms=100)
    h.append()
    h.advance(0.1)
    h.advance(0.03)
    h.acknowledge()
    assert_stages(h, batching=100, in_flight=30)


def test_full_before_its_linger_is_over() -> None:
    h = MeasuredHarness(linger_ms=100, batch_size=200, max_in_flight_requests_per_connection=1)
    h.append(0, bytes(100))
    h.advance(0.02)
    h.append(0, bytes(100))  # a new batch: the first is full now
    h.run()
    assert len(h.produces) == 1
    h.advance(0.5)
    h.acknowledge()  # the other's linger was over for 420 ms
    h.advance(0.04)
    h.acknowledge()
    assert_stages(h, batching=20 + 100, await_send=0 + 400, in_flight=500 + 40)


def test_full_before_its_linger_is_over_and_the_next_record_goes_elsewhere() -> None:
    """What keyless records do with every batch: no other is begun behind the one that is full."""
    h = MeasuredHarness(
        linger_ms=100, batch_size=200, max_in_flight_requests_per_connection=1, partitioner_class="sticky"
    )
    h.append(0, bytes(100))
    h.advance(0.1)  # it is sent, and its broker takes one request at a time
    h.append(None, bytes(100))
    h.advance(0.02)
    h.append(None, bytes(100))
    h.advance(0.03)
    h.acknowledge()
    [full] = h.produce().batches
    h.advance(0.02)
    h.acknowledge()
    h.advance(0.06)
    [lingered] = h.produce().batches
    assert full.partition != lingered.partition
    h.advance(0.02)
    h.acknowledge()
    assert_stages(h, batching=100 + 20 + 100, await_send=0 + 30 + 0, in_flight=50 + 20 + 30)


def test_flushed_before_its_linger_is_over() -> None:
    h = MeasuredHarness(linger_ms=100)
    h.append()
    h.advance(0.04)
    h.sender.begin_flush(lambda: None, h.now)
    h.run()
    h.advance(0.005)
    h.acknowledge()
    assert_stages(h, batching=40, in_flight=5)


def test_waited_for_its_broker() -> None:
    h = MeasuredHarness(linger_ms=10)
    h.move(0, -1)
    h.refresh()
    h.append()
    h.advance(0.3)
    h.move(0, 0)
    sent_after = h.now - h.records[0].accepted_at
    h.refresh()
    waited = 1000 * (h.produce().sent_at - h.records[0].accepted_at)
    assert waited >= 1000 * sent_after
    h.advance(0.02)
    answered = 1000 * (h.now - h.produce().sent_at)
    h.acknowledge()
    assert_stages(h, batching=10, await_send=waited - 10, in_flight=answered)


def test_retried_twice() -> None:
    h = MeasuredHarness()
    h.send()
    h.advance(0.01)
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    h.advance(0.05)
    h.advance(0.02)
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    h.advance(0.05)
    h.advance(0.04)
    h.acknowledge()
    # From the first failure on it is all retry: back-offs and attempts.
    assert_stages(h, in_flight=10, retry=50 + 20 + 50 + 40)


def test_the_connection_was_lost() -> None:
    h = MeasuredHarness()
    h.send()
    h.advance(0.3)
    h.lose()
    h.advance(0.06)
    h.advance(0.1)
    h.acknowledge()
    assert_stages(h, in_flight=300, retry=160)


def test_split_in_halves_that_fare_differently() -> None:
    h = MeasuredHarness(linger_ms=10)
    h.append(0, b"1")
    h.append(0, b"2")
    h.advance(0.01)
    h.advance(0.1)
    h.answer(code=codes.MESSAGE_TOO_LARGE)
    h.advance(0.02)
    h.acknowledge()
    h.advance(0.03)
    h.acknowledge()
    # Each half has the whole's history: 10 ms of linger, 100 ms until it was refused.
    assert_stages(h, batching=10 + 10, in_flight=100 + 100, retry=20 + 50)
    assert h.read().histogram("delivery-time").count == 2


def test_expired_in_the_queue() -> None:
    h = MeasuredHarness(linger_ms=100)
    h.move(0, -1)
    h.refresh()
    h.append()
    h.advance(1.6)
    assert not h.attempts
    assert_stages(h, batching=100, await_send=1400)
    # It never was in flight: its 0 is not counted either.
    assert h.read().histogram("in-flight-time").count == 0


def test_expired_in_flight() -> None:
    h = MeasuredHarness(request_timeout_ms=1400, linger_ms=100)
    h.append()
    h.advance(0.1)
    h.jump(1.4)  # both time-outs are due, and that of the delivery is dealt with first
    h.run()
    assert h.records[0].is_done
    assert_stages(h, batching=100, in_flight=1400)
    assert h.read().histogram("retry-time").count == 0


def test_expired_while_it_backed_off() -> None:
    h = MeasuredHarness(retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)
    h.send()
    h.advance(0.2)
    h.answer(code=codes.NOT_ENOUGH_REPLICAS)
    h.advance(2.0)
    assert h.records[0].is_done
    assert_stages(h, in_flight=200, retry=1300)


def test_given_up_on_by_close_before_its_linger_was_over() -> None:
    h = MeasuredHarness(linger_ms=100)
    h.append()
    h.advance(0.03)
    h.sender.abort(h.now)
    h.run()
    assert_stages(h, batching=30)


def test_an_answer_after_the_time_out_counts_no_more() -> None:
    h = MeasuredHarness(request_timeout_ms=1500)
    h.send()
    h.jump(1.5)
    h.sender.handle_timer(h.now)
    before = totals(h)
    h.advance(0.1)
    assert totals(h) == before


@pytest.mark.parametrize("seed", range(30))
def test_whatever_befalls_them_the_stages_add_up(seed: int) -> None:
    """Records that are batches of their own, so that each one's delivery time is known to the test."""
    random = Random(seed)
    h = MeasuredHarness(partitions=3, brokers=2, retries=random.choice([2, 100]), batch_size=1)
    h.move(2, 1)
    h.refresh()
    answers = (
        codes.NONE, codes.NONE, codes.NOT_ENOUGH_REPLICAS, codes.NOT_LEADER_OR_FOLLOWER, codes.INVALID_RECORD,
        codes.UNKNOWN_SERVER_ERROR,
    )  # fmt: skip
    for _ in range(120):
        what = random.random()
        if what < 0.4:
            h.send(random.randrange(3))
        elif what < 0.75 and h.produces:
            h.answer(h.first_of(random.choice(h.produces).connection_id), random.choice(answers))
        elif what < 0.8:
            h.lose(random.randrange(2))
        else:
            h.advance(random.choice([0.001, 0.02, 0.05, 0.7]))
    h.sender.abort(h.now)
    h.run()

    found = h.read()
    assert all(record.is_done for record in h.records)
    lives = [1000 * (record.settled_at - record.accepted_at) for record in h.records]
    assert found.histogram("delivery-time").count == len(lives) > 20
    assert found.histogram("delivery-time").total == pytest.approx(sum(lives))
    parts = totals(h)
    assert sum(parts[name] for name in STAGES) == pytest.approx(parts["delivery-time"], rel=1e-12)
    for name in STAGES:
        assert parts[name] >= 0
    failed = sum(record.error is not None for record in h.records)
    assert 0 < failed == found.value("record-error-total")


def test_averages_maxima_and_percentiles_of_each_stage() -> None:
    """Batches one after the other, each with stages of its own length; every fourth fails first."""
    h = MeasuredHarness(linger_ms=1000, delivery_timeout_ms=60_000, request_timeout_ms=30_000, partitions=1)
    told: dict[str, list[float]] = {name: [] for name in (*STAGES, "delivery-time")}
    for number in range(1, 41):
        stages = [0.001 * number, 0.002 * number, 0.011 * number, 0.0]
        h.append()
        h.advance(stages[0])
        h.sender.begin_flush(lambda: None, h.now)  # closes it, and its broker is slow to take it:
        h.jump(stages[1])
        h.run()
        h.advance(stages[2])
        if number % 4 == 0:
            h.answer(code=codes.NOT_ENOUGH_REPLICAS)
            failed_at = h.now
            h.advance(0.05 + 0.003 * number)
            h.acknowledge()
            stages[3] = h.now - failed_at
            told["retry-time"].append(1000 * stages[3])
        else:
            h.acknowledge()
        # A flush closes no batch by the clock: what waits for its turn then counts as batching.
        told["batching-time"].append(1000 * (stages[0] + stages[1]))
        told["await-send-time"].append(0.0)
        told["in-flight-time"].append(1000 * stages[2])
        told["delivery-time"].append(1000 * sum(stages))

    found = h.read()
    assert h.now - 1000 < 30, "all of it within the windows"
    for name, values in told.items():
        assert found.value(f"{name}-avg") == pytest.approx(fmean(values), abs=1e-6), name
        assert found.value(f"{name}-max") == pytest.approx(max(values), abs=1e-6), name
        for suffix, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            exact = sorted(values)[ceil(share * len(values)) - 1]
            # A bucket is a sixteenth of a power of two wide.
            assert found.value(f"{name}-{suffix}") == pytest.approx(exact, rel=0.045, abs=2e-6), (
                name,
                suffix,
            )
            assert found.value(f"{name}-{suffix}") >= exact - 1e-6
        histogram = found.histogram(name)
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            # A value that a bucket's end lies above the bound of counts for the next one.
            assert sum(value <= bound * 0.957 for value in values) <= count
            assert count <= sum(value <= bound * (1 + 1e-9) for value in values)
        assert histogram.count == len(values)
