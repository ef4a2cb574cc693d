"""The rules for keyless records, each by itself.

The scenarios of Java's BuiltInPartitionerTest, StickyPartitionCacheTest and RoundRobinPartitionerTest, and
KIP-794's and KIP-480's own words.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.config.kinds import PARTITIONERS
from aioproduce.partitioners import (
    NAMED,
    LoadTable,
    RoundRobin,
    StickyPerBatch,
    TopicView,
    UniformRandom,
    UniformSticky,
    partition_for_key,
)
from tests.vectors import record_format


@dataclass
class Topic:
    """A topic's partitions as a test wants them."""

    partition_count: int
    available: Sequence[int]


def sequential() -> Callable[[int], int]:
    """As the Java test's SequentialPartitioner: 0, 1, 2, ... in place of chance."""
    numbers = count()
    return lambda n: next(numbers) % n


def never(n: int) -> int:
    raise AssertionError("no choice was due")


def test_sticky_partitioning() -> None:
    topic = Topic(3, [0, 1, 2])
    partitioner = UniformSticky(3, sequential())
    first = partitioner.peek(topic)
    for _ in range(3):
        assert partitioner.peek(topic) == first
        partitioner.on_appended(first, 1, topic)
    assert partitioner.peek(topic) != first


def test_switching_works_with_one_partition() -> None:
    topic = Topic(1, [0])
    partitioner = UniformSticky(1, sequential())
    for _ in range(10):
        assert partitioner.peek(topic) == 0
        partitioner.on_appended(0, 1, topic)


def test_unavailable_partitions_are_not_chosen() -> None:
    chance = random.Random(1).randrange
    without_1 = Topic(3, [0, 2])
    partitioner = UniformSticky(1, chance)
    chosen = []
    for _ in range(101):
        chosen.append(partitioner.peek(without_1))
        partitioner.on_appended(chosen[-1], 1, without_1)
    assert set(chosen) == {0, 2}

    only_1 = Topic(2, [1])
    partitioner = UniformSticky(1, chance)
    for _ in range(101):
        assert partitioner.peek(only_1) == 1
        partitioner.on_appended(1, 1, only_1)


def test_without_any_leader_all_partitions_are_chosen_from() -> None:
    partitioner = UniformSticky(1, sequential())
    assert partitioner.peek(Topic(1, [])) == 0

    leaderless = Topic(4, [])
    partitioner = UniformSticky(1, sequential())
    chosen = []
    for _ in range(8):
        chosen.append(partitioner.peek(leaderless))
        partitioner.on_appended(chosen[-1], 1, leaderless)
    assert chosen == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("size", [0, -1])
def test_sticky_batch_size_is_positive(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        UniformSticky(size, never)
    UniformSticky(1, never)


def test_a_fractional_batch_defers_the_switch_up_to_twice_the_size() -> None:
    topic = Topic(2, [0, 1])
    partitioner = UniformSticky(100, sequential())
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 150, topic, can_switch=False)
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 49, topic, can_switch=False)
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 1, topic, can_switch=False)
    assert partitioner.peek(topic) == 1
    # The count starts again with the new partition.
    partitioner.on_appended(1, 99, topic)
    assert partitioner.peek(topic) == 1
    partitioner.on_appended(1, 1, topic)
    assert partitioner.peek(topic) == 0


def test_a_deferred_switch_is_made_up_for_without_further_bytes() -> None:
    topic = Topic(2, [0, 1])
    partitioner = UniformSticky(100, sequential())
    partitioner.on_appended(partitioner.peek(topic), 120, topic, can_switch=False)
    partitioner.on_appended(0, 0, topic, can_switch=False)
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 0, topic)
    assert partitioner.peek(topic) == 1


def test_bytes_for_another_partition_are_not_counted() -> None:
    topic = Topic(2, [0, 1])
    partitioner = UniformSticky(100, sequential())
    assert partitioner.peek(topic) == 0
    # An append that waited for memory while the choice changed; and keyed records.
    partitioner.on_appended(1, 1000, topic)
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 99, topic)
    assert partitioner.peek(topic) == 0


def test_a_choice_outlives_its_leader_until_its_bytes_are_full() -> None:
    partitioner = UniformSticky(100, sequential())
    assert partitioner.peek(Topic(2, [0, 1])) == 0
    leader_lost = Topic(2, [1])
    assert partitioner.peek(leader_lost) == 0
    partitioner.on_appended(0, 100, leader_lost)
    assert partitioner.peek(leader_lost) == 1


def test_a_topic_made_again_with_fewer_partitions_gets_a_new_choice() -> None:
    choices = iter([7, 1, 0])
    partitioner = UniformSticky(100, lambda n: next(choices))
    assert partitioner.peek(Topic(8, range(8))) == 7
    partitioner.on_appended(7, 99, Topic(8, range(8)))
    smaller = Topic(2, [0, 1])
    assert partitioner.peek(smaller) == 1
    # What went to the partition that is gone does not count for the new one.
    partitioner.on_appended(1, 99, smaller)
    assert partitioner.peek(smaller) == 1
    partitioner.on_appended(1, 1, smaller)
    assert partitioner.peek(smaller) == 0


@given(
    seed=st.integers(),
    leaders=st.sets(st.integers(0, 9)),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=200),
    switches=st.randoms(use_true_random=False),
)
def test_between_one_and_two_batches_go_to_a_partition_before_the_next(
    seed: int, leaders: set[int], sizes: list[int], switches: random.Random
) -> None:
    topic: TopicView = Topic(10, sorted(leaders))
    source = random.Random(seed)
    switched = 0

    def chance(n: int) -> int:
        nonlocal switched
        switched += 1
        return source.randrange(n)

    partitioner = UniformSticky(100, chance)
    produced = 0
    for size in sizes:
        partition = partitioner.peek(topic)
        assert partition in (leaders or range(10))
        before = switched
        can_switch = switches.random() < 0.5
        partitioner.on_appended(partition, size, topic, can_switch=can_switch)
        produced += size
        if switched > before:
            assert produced >= (100 if can_switch else 200)
            produced = 0
        else:
            assert produced < (100 if can_switch else 200)


def test_keys_go_where_java_sends_them() -> None:
    for key, _, of_6, _ in record_format("murmur2"):
        assert partition_for_key(b"" if key == "-" else bytes.fromhex(key), 6) == int(of_6)


def test_what_can_be_named_is_what_there_is() -> None:
    assert set(NAMED) == set(PARTITIONERS)


# -- loads (KIP-794) ---


def test_kafkas_own_example() -> None:
    """The comment in BuiltInPartitioner.updatePartitionLoadStats."""
    table = LoadTable([0, 1, 2], [0, 3, 1])
    assert table.total == 8
    assert [table.partition_at(number) for number in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]


def test_frequencies_are_the_reciprocals_of_queues() -> None:
    """Java's adaptivePartitionsTest."""
    queues = [5, 0, 3, 0, 1]
    table = LoadTable(range(5), queues)
    topic = Topic(5, range(5))
    partitioner = UniformSticky(1, sequential(), lambda _: table)
    chosen = [0] * 5
    for _ in range(table.total * 2):
        partition = partitioner.peek(topic)
        chosen[partition] += 1
        partitioner.on_appended(partition, 1, topic)
    assert chosen == [2 * (6 - length) for length in queues]


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 100)), min_size=1, max_size=50))
def test_each_partition_is_drawn_as_often_as_it_weighs(loads: list[tuple[int, int]]) -> None:
    partitions = list(range(0, 3 * len(loads), 3))
    lengths = [length for _, length in loads]
    table = LoadTable(partitions, lengths)
    drawn = [table.partition_at(number) for number in range(table.total)]
    assert [drawn.count(partition) for partition in partitions] == [
        max(lengths) + 1 - each for each in lengths
    ]


# -- sticky per batch (KIP-480) ---


def test_sticky_until_a_new_batch() -> None:
    """Java's testStickyPartitionCache."""
    topic = Topic(3, [0, 1, 2])
    partitioner = StickyPerBatch(sequential())
    first = partitioner.peek(topic)
    partitioner.on_appended(first, 10**9, topic, can_switch=False)
    assert partitioner.peek(topic) == first
    partitioner.on_appended(first, 0, topic)
    second = partitioner.peek(topic)
    assert second != first
    # Nothing is there yet: its first batch must be begun, however often it is asked.
    partitioner.on_appended(second, 0, topic)
    partitioner.on_appended(first, 50, topic)
    assert partitioner.peek(topic) == second


def test_sticky_per_batch_without_a_leader() -> None:
    """Java's unavailablePartitionsTest."""
    chance = random.Random(2).randrange
    for topic, allowed in (
        (Topic(3, [0, 2]), {0, 2}),
        (Topic(2, [1]), {1}),
        (Topic(1, []), {0}),
        (Topic(2, []), {0, 1}),
    ):
        partitioner = StickyPerBatch(chance)
        chosen = []
        for _ in range(100):
            chosen.append(partitioner.peek(topic))
            partitioner.on_appended(chosen[-1], 1, topic)
        assert set(chosen) == allowed
        if len(allowed) > 1:
            assert all(a != b for a, b in pairwise(chosen)), "another one each time"


def test_the_next_one_is_any_of_the_others() -> None:
    topic = Topic(5, [0, 1, 2, 3, 4])
    partitioner = StickyPerBatch(random.Random(3).randrange)
    followers: Counter[tuple[int, int]] = Counter()
    before = partitioner.peek(topic)
    for _ in range(20_000):
        partitioner.on_appended(before, 1, topic)
        followers[before, partitioner.peek(topic)] += 1
        before = partitioner.peek(topic)
    assert len(followers) == 20
    # 1,000 each; five standard deviations of that count are 154.
    assert all(846 < count < 1154 for count in followers.values())


def test_a_topic_made_again_with_fewer_partitions_sticky_per_batch() -> None:
    partitioner = StickyPerBatch(lambda n: n - 1)
    assert partitioner.peek(Topic(5, [0, 1, 2, 3, 4])) == 4
    assert partitioner.peek(Topic(2, [0, 1])) == 1


# -- in turns ---


def test_round_robin_goes_round() -> None:
    """Java's testRoundRobinWithKeyBytes, without what KAFKA-9965 left out."""
    topic = Topic(3, [0, 1, 2])
    partitioner = RoundRobin(lambda n: 1)
    assert [partitioner.next(topic) for _ in range(7)] == [1, 2, 0, 1, 2, 0, 1]


def test_round_robin_leaves_out_what_has_no_leader() -> None:
    """Java's testRoundRobinWithUnavailablePartitions."""
    partitioner = RoundRobin(lambda n: 0)
    chosen = [partitioner.next(Topic(3, [0, 2])) for _ in range(100)]
    assert (chosen.count(0), chosen.count(1), chosen.count(2)) == (50, 0, 50)
    assert {partitioner.next(Topic(2, [])) for _ in range(4)} == {0, 1}


def test_random_takes_any() -> None:
    partitioner = UniformRandom(random.Random(4).randrange)
    chosen = Counter(partitioner.next(Topic(5, [0, 2, 3, 4])) for _ in range(40_000))
    assert set(chosen) == {0, 2, 3, 4}
    # 10,000 each; five standard deviations of that count are 433.
    assert all(9_567 < count < 10_433 for count in chosen.values())
    assert {partitioner.next(Topic(2, [])) for _ in range(50)} == {0, 1}
