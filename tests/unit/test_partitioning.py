"""Where keyless records go, with real queues: the rules at work in the accumulator, loads, slow brokers, racks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from aioproduce.config import ProducerConfig
from aioproduce.core.batching.candidates import BrokerLoads
from aioproduce.core.batching.partitioning import make_partitioning
from aioproduce.partitioners import Keyless
from tests.unit.accumulator_harness import TOPIC, AccumulatorHarness
from tests.unit.sender_harness import SenderHarness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCH = 1024
FOREVER = 1e6
LARGE = bytes(BATCH)
"""A record that fills a batch by itself."""


class Recorded:
    """Chance that gives what it is told to, and what it was asked for."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.ranges: list[int] = []

    def __call__(self, stop: int) -> int:
        self.ranges.append(stop)
        return self.numbers.pop(0) if self.numbers else 0


def adaptive(
    leaders: Sequence[int] = (0, 0, 0), choices: Callable[[int], int] | None = None, **settings: object
) -> AccumulatorHarness:
    return AccumulatorHarness(
        leaders,
        batch_size=BATCH,
        memory=1 << 30,
        is_adaptive=True,
        choices=choices,
        **settings,  # type: ignore[arg-type]
    )


def let_time_pass(harness: AccumulatorHarness, seconds: float = 1.0) -> None:
    """The Sender looks round."""
    harness.now += seconds
    harness.partitioning.loads.pass_time(harness.accumulator.readiness.ready.nodes, harness.now)


def fill(harness: AccumulatorHarness, *lengths: int) -> None:
    """Full batches in the queue of each partition."""
    for partition, length in enumerate(lengths):
        for _ in range(length):
            harness.append(partition, value=LARGE)


# -- loads ---


def test_what_waits_decides_what_comes() -> None:
    """Kafka's own example, over real queues: 0, 3 and 1 batches weigh 4, 1 and 3."""
    expected = [0, 0, 0, 0, 1, 2, 2, 2]
    for number, partition in enumerate(expected):
        chance = Recorded(number)
        harness = adaptive(choices=chance)
        fill(harness, 0, 3, 1)
        let_time_pass(harness)
        assert harness.append(key=None, value=LARGE).partition == partition
        assert chance.ranges[0] == 8


def test_of_two_partitions_the_one_with_less_to_send_is_likelier() -> None:
    chance = Recorded(1)
    harness = adaptive((0, 0), choices=chance)
    fill(harness, 3)
    let_time_pass(harness)
    assert harness.append(key=None, value=LARGE).partition == 1
    assert chance.ranges[0] == 5, "weights 1 and 4"


def test_where_all_are_alike_the_choice_is_uniform() -> None:
    chance = Recorded(2)
    harness = adaptive(choices=chance)
    fill(harness, 2, 2, 2)
    let_time_pass(harness)
    assert harness.append(key=None, value=LARGE).partition == 2
    assert chance.ranges[0] == 3


def test_a_partition_that_never_had_a_batch_counts_as_empty() -> None:
    """Java's choice is uniform until each has had one."""
    chance = Recorded(3)
    harness = adaptive(choices=chance)
    fill(harness, 1)
    let_time_pass(harness)
    assert harness.append(key=None, value=LARGE).partition == 2
    assert chance.ranges[0] == 5, "weights 1, 2 and 2"


def test_the_load_evens_out() -> None:
    """Java's adaptiveBuiltInPartitioner: frequencies are reciprocal to what waits."""
    harness = adaptive(choices=Random(5).randrange)
    fill(harness, 100, 0, 0)
    let_time_pass(harness)
    chosen = Counter(harness.append(key=None, value=LARGE).partition for _ in range(1000))
    # The table is that of the beginning: no time has passed. Weights 1, 101 and 101.
    assert chosen[0] < 20
    assert abs(chosen[1] - chosen[2]) < 160, "five standard deviations"


@pytest.mark.parametrize(("partitions", "passes"), [(3, 1), (2000, 5)])
def test_a_table_is_made_at_a_bounded_rate(partitions: int, passes: int) -> None:
    """Never for each record, and the more partitions a topic has, the more seldom."""
    harness = adaptive([0] * partitions, choices=Random(6).randrange)
    harness.append(0, value=LARGE)
    let_time_pass(harness)
    harness.append(key=None, value=LARGE)
    assert harness.accumulator.appenders

    def chosen() -> Counter[int]:
        return Counter(harness.append(key=None, value=LARGE).partition for _ in range(300))

    # Partition 1 gets long after the table was made.
    fill(harness, 0, 10_000)
    for _ in range(passes):
        assert 1 in chosen() or partitions > 3
        let_time_pass(harness, 0.001)
    for _ in range(passes):
        let_time_pass(harness, 0.006)
    assert chosen()[1] <= 1


def test_nothing_happens_while_time_stands_still() -> None:
    loads = BrokerLoads(0.0)
    loads.pass_time((), 100.0)
    assert loads.refreshes == 1
    loads.pass_time((), 100.004)
    assert loads.refreshes == 1
    loads.pass_time((), 100.006)
    assert loads.refreshes == 2


def test_a_partition_without_a_leader_is_in_no_table() -> None:
    harness = adaptive((0, -1, 0), choices=Random(7).randrange)
    fill(harness, 5, 0, 1)
    let_time_pass(harness)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 2}
    # A table that was made before is not used after.
    harness.move(2, -1)
    harness.append(key=None, value=LARGE)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0}


# -- slow brokers (partitioner.availability.timeout.ms) ---


def test_a_broker_that_keeps_batches_waiting_is_left_out() -> None:
    harness = adaptive((0, 1, 2), choices=Random(8).randrange, availability_timeout=2.0)
    fill(harness, 1, 1, 1)
    loads = harness.partitioning.loads
    loads.blocked(1, harness.now)
    let_time_pass(harness, 2.0)
    assert loads.slow == set(), "not longer than the time-out yet"
    let_time_pass(harness, 0.1)
    assert loads.slow == {1}
    harness.append(key=None, value=LARGE)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 2}

    loads.drained(1)
    let_time_pass(harness, 0.1)
    harness.append(key=None, value=LARGE)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(500)} == {0, 1, 2}


def test_without_a_time_out_no_broker_is_ever_slow() -> None:
    harness = adaptive((0, 1))
    harness.partitioning.loads.blocked(1, harness.now)
    let_time_pass(harness, FOREVER)
    assert harness.partitioning.loads.slow == set()


def test_a_broker_for_which_nothing_waits_any_more_is_tried_again() -> None:
    """Java leaves it out until a record with a key goes there."""
    harness = adaptive((0, 1), choices=Random(9).randrange, availability_timeout=1.0)
    fill(harness, 1, 1)
    harness.partitioning.loads.blocked(1, harness.now)
    let_time_pass(harness, 1.1)
    assert harness.partitioning.loads.slow == {1}
    harness.now += harness.accumulator.expired(1e9)[0].deadline
    harness.expire()
    assert not harness.ready()
    let_time_pass(harness)
    assert harness.partitioning.loads.slow == set()


def test_a_slow_broker_is_left_out_also_where_nothing_was_ever_sent_to_its_partition() -> None:
    """It is slow for what another topic has to send. Java compares no queues until each partition had a batch."""
    harness = adaptive((0, 1, 2), choices=Random(14).randrange, availability_timeout=1.0)
    harness.partitioning.loads.blocked(1, harness.now)
    harness.partitioning.loads.pass_time([1], harness.now + 1.1)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 2}


def test_a_broker_that_cannot_be_sent_to_is_slow_until_it_is_drained() -> None:
    """Java's `nodeLatencyStats`: what a broker has kept waiting for long decides where keyless records go."""
    h = SenderHarness(brokers=2, partitioner_availability_timeout_ms=100, delivery_timeout_ms=5000)
    h.move(0, 1)
    h.refresh()
    h.send(0)
    h.answer(throttle=0.5)
    loads = h.sender.partitioning.loads

    waiting = h.send(0)
    h.advance(0.09)
    h.send(1)
    h.acknowledge()
    assert loads.slow == set(), "not longer than the time-out yet"
    h.advance(0.3)
    h.send(1)
    h.acknowledge()
    assert loads.slow == {1}
    # Where chance always takes the first.
    keyless = [h.send(None, bytes(h.config.batch_size)) for _ in range(4)]
    assert {request.node_id for request in h.produces} == {0}

    h.advance(0.2)
    assert h.produces[-1].node_id == 1
    assert loads.slow == set()
    while h.produces:
        h.acknowledge()
    assert waiting.is_done
    assert all(record.is_done for record in keyless)


def test_where_all_are_slow_all_are_taken() -> None:
    harness = adaptive((0, 1), choices=Random(10).randrange, availability_timeout=1.0)
    fill(harness, 1, 1)
    for node in (0, 1):
        harness.partitioning.loads.blocked(node, harness.now)
    let_time_pass(harness, 1.1)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 1}


# -- racks (KIP-1123) ---


def test_keyless_records_stay_in_the_rack() -> None:
    harness = adaptive((0, 1, 2, 0), choices=Random(11).randrange, rack="a", racks=("a", "b", "a", None))
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 2, 3}
    # A key decides, wherever that is.
    assert {harness.append(key=b"%d" % n).partition for n in range(50)} == {0, 1, 2, 3}


@pytest.mark.parametrize(("is_aware", "expected"), [(True, {1}), (False, {0, 1, 2})])
def test_the_rack_counts_only_where_the_setting_says_so(is_aware: bool, expected: set[int]) -> None:
    """`partitioner.rack.aware` is false unless it is set; `client.rack` alone keeps nothing near."""
    metadata = AccumulatorHarness((0, 1, 0), racks=("a", "b")).metadata
    config = ProducerConfig.from_keywords(
        bootstrap_servers="h:9092", client_rack="b", partitioner_rack_aware=is_aware, batch_size=1
    )
    partitioning = make_partitioning(config, metadata, Random(16).randrange)
    view = metadata.topic(TOPIC)
    assert view is not None
    chosen: set[int] = set()
    for _ in range(50):
        choice = partitioning.make_choice(partitioning.make_appender(), {})
        chosen.add(choice.choose(view, can_switch=True))
    assert chosen == expected


def test_a_leader_that_moves_into_the_rack_is_near_at_once() -> None:
    harness = adaptive((1, 1), choices=Random(12).randrange, rack="a", racks=("a", "b", "b", "b"))
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 1}, "none is near"
    harness.move(1, 0)
    harness.append(key=None, value=LARGE)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {1}
    harness.move(1, 2)
    harness.append(key=None, value=LARGE)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 1}


@pytest.mark.parametrize("near", [1, 2])
def test_where_all_that_are_near_are_slow_those_far_away_are_taken(near: int) -> None:
    """As where no leader is near: KIP-1123 prefers what is near, and demands nothing."""
    leaders = (1, 2, *[0] * near)
    harness = adaptive(
        leaders, choices=Random(15).randrange, rack="a", racks=("a", "b", "b", "b"), availability_timeout=1.0
    )
    harness.partitioning.loads.blocked(0, harness.now)
    harness.partitioning.loads.pass_time([0], harness.now + 1.1)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {0, 1}
    for node in (1, 2):
        harness.partitioning.loads.blocked(node, harness.now)
    harness.partitioning.loads.pass_time([0, 1, 2], harness.now + 2.2)
    harness.append(key=None, value=LARGE)
    chosen = {harness.append(key=None, value=LARGE).partition for _ in range(100)}
    assert chosen == set(range(2, 2 + near)), "all are slow"


def test_while_one_that_is_near_is_not_slow_no_record_goes_far_away() -> None:
    harness = adaptive(
        (0, 1, 3),
        choices=Random(17).randrange,
        rack="a",
        racks=("a", "b", "b", "a"),
        availability_timeout=1.0,
    )
    harness.partitioning.loads.blocked(0, harness.now)
    harness.partitioning.loads.pass_time([0], harness.now + 1.1)
    assert {harness.append(key=None, value=LARGE).partition for _ in range(100)} == {2}


# -- the other rules, over queues ---


def test_round_robin_gives_each_its_turn_also_where_batches_are_begun() -> None:
    """KAFKA-9965: Java's gives every other partition nothing, when each record begins a batch."""
    harness = AccumulatorHarness((0, 0, 0, 0), batch_size=BATCH, memory=1 << 30, keyless=Keyless.ROUND_ROBIN)
    assert [harness.append(key=None, value=LARGE).partition for _ in range(600)] == [0, 1, 2, 3] * 150
    assert [harness.append(key=None).partition for _ in range(8)] == [0, 1, 2, 3] * 2


def test_round_robin_waits_for_its_turn_where_there_is_no_memory() -> None:
    harness = AccumulatorHarness((0, 0), batch_size=BATCH, memory=BATCH, keyless=Keyless.ROUND_ROBIN)
    assert harness.append(key=None).partition == 0
    assert harness.try_append(key=None) is None
    assert harness.try_append(key=None) is None
    harness.accumulator.begin_flush(harness.now)
    [batch] = harness.drain()
    harness.succeed(batch)
    assert harness.append(key=None).partition == 1


@pytest.mark.parametrize("keyless", [Keyless.UNIFORM_STICKY, Keyless.STICKY_PER_BATCH])
def test_a_sticky_choice_is_left_with_its_leader(keyless: Keyless) -> None:
    harness = AccumulatorHarness((0, 0, 0), batch_size=BATCH, linger=FOREVER, keyless=keyless)
    first = harness.append(key=None).partition
    assert harness.append(key=None).partition == first
    harness.move(first, -1)
    second = harness.append(key=None).partition
    assert second != first
    harness.move(second, 1)
    assert harness.append(key=None).partition == second  # another leader is a leader
    for partition in {0, 1, 2} - {first}:
        harness.move(partition, -1)
    assert harness.append(key=None).partition == second  # without any, nothing is better


def test_bytes_count_for_a_choice_also_where_metadata_comes_between() -> None:
    runs = []
    for refreshes in (False, True):
        harness = AccumulatorHarness(
            (0, 0, 0), batch_size=BATCH, linger=FOREVER, memory=1 << 30, choices=Random(5).randrange
        )
        chosen = []
        for _ in range(60):
            chosen.append(harness.append(key=None, value=bytes(100)).partition)
            if refreshes:
                harness.refresh()
        runs.append(chosen)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


def test_round_robin_after_a_leader_was_lost() -> None:
    harness = AccumulatorHarness((0, 0, 0), batch_size=BATCH, linger=FOREVER, keyless=Keyless.ROUND_ROBIN)
    assert [harness.append(key=None).partition for _ in range(3)] == [0, 1, 2]
    harness.move(1, -1)
    assert Counter(harness.append(key=None).partition for _ in range(20)) == {0: 10, 2: 10}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 16])
def test_round_robin_goes_on_where_it_was_when_metadata_comes(count: int) -> None:
    """Turns are drawn 256 ahead, a multiple of most partition counts: to drop them would start again each time."""
    harness = AccumulatorHarness(
        [0] * count, batch_size=BATCH, linger=FOREVER, memory=1 << 30, keyless=Keyless.ROUND_ROBIN
    )
    chosen = []
    for _ in range(100):
        chosen += [harness.append(key=None).partition for _ in range(3)]
        harness.refresh()
    assert chosen == [number % count for number in range(300)]


def test_sticky_per_batch_changes_with_the_batch() -> None:
    harness = AccumulatorHarness(
        (0, 0, 0), batch_size=BATCH, linger=FOREVER, memory=1 << 30, keyless=Keyless.STICKY_PER_BATCH
    )
    runs = []
    for _ in range(20):
        chosen = {harness.append(key=None, value=bytes(64)).partition for _ in range(5)}
        assert len(chosen) == 1
        runs.append(chosen.pop())
        harness.accumulator.begin_flush(harness.now)
        for batch in harness.drain():
            harness.succeed(batch)
    assert all(a != b for a, b in pairwise(runs))


def test_random_needs_no_order() -> None:
    harness = AccumulatorHarness(
        (0, 0, 0), batch_size=BATCH, linger=FOREVER, keyless=Keyless.RANDOM, choices=Random(13).randrange
    )
    chosen = Counter(harness.append(key=None, value=b"").partition for _ in range(300))
    assert all(60 < chosen[partition] < 140 for partition in range(3))
