"""The built-in partitioner without its adaptive part: the scenarios of Java's BuiltInPartitionerTest, and KIP-794.

`adaptivePartitionsTest` is left out: the adaptive part comes later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.partitioners import BuiltInPartitioner, TopicView, partition_for_key
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
    partitioner = BuiltInPartitioner("topicA", 3, sequential())
    first = partitioner.peek(topic)
    for _ in range(3):
        assert partitioner.peek(topic) == first
        partitioner.on_appended(first, 1, topic)
    assert partitioner.peek(topic) != first


def test_switching_works_with_one_partition() -> None:
    topic = Topic(1, [0])
    partitioner = BuiltInPartitioner("topicB", 1, sequential())
    for _ in range(10):
        assert partitioner.peek(topic) == 0
        partitioner.on_appended(0, 1, topic)


def test_unavailable_partitions_are_not_chosen() -> None:
    chance = random.Random(1).randrange
    without_1 = Topic(3, [0, 2])
    partitioner = BuiltInPartitioner("topicA", 1, chance)
    chosen = []
    for _ in range(101):
        chosen.append(partitioner.peek(without_1))
        partitioner.on_appended(chosen[-1], 1, without_1)
    assert set(chosen) == {0, 2}

    only_1 = Topic(2, [1])
    partitioner = BuiltInPartitioner("topicB", 1, chance)
    for _ in range(101):
        assert partitioner.peek(only_1) == 1
        partitioner.on_appended(1, 1, only_1)


def test_without_any_leader_all_partitions_are_chosen_from() -> None:
    partitioner = BuiltInPartitioner("topicC", 1, sequential())
    assert partitioner.peek(Topic(1, [])) == 0

    leaderless = Topic(4, [])
    partitioner = BuiltInPartitioner("topicD", 1, sequential())
    chosen = []
    for _ in range(8):
        chosen.append(partitioner.peek(leaderless))
        partitioner.on_appended(chosen[-1], 1, leaderless)
    assert chosen == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("size", [0, -1])
def test_sticky_batch_size_is_positive(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BuiltInPartitioner("topicA", size, never)
    BuiltInPartitioner("topicA", 1, never)


def test_a_fractional_batch_defers_the_switch_up_to_twice_the_size() -> None:
    topic = Topic(2, [0, 1])
    partitioner = BuiltInPartitioner("t", 100, sequential())
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
    partitioner = BuiltInPartitioner("t", 100, sequential())
    partitioner.on_appended(partitioner.peek(topic), 120, topic, can_switch=False)
    partitioner.on_appended(0, 0, topic, can_switch=False)
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 0, topic)
    assert partitioner.peek(topic) == 1


def test_bytes_for_another_partition_are_not_counted() -> None:
    topic = Topic(2, [0, 1])
    partitioner = BuiltInPartitioner("t", 100, sequential())
    assert partitioner.peek(topic) == 0
    # An append that waited for memory while the choice changed; and keyed records.
    assert partitioner.is_changed(1)
    assert not partitioner.is_changed(0)
    partitioner.on_appended(1, 1000, topic)
    assert partitioner.peek(topic) == 0
    partitioner.on_appended(0, 99, topic)
    assert partitioner.peek(topic) == 0


def test_a_choice_outlives_its_leader_until_its_bytes_are_full() -> None:
    partitioner = BuiltInPartitioner("t", 100, sequential())
    assert partitioner.peek(Topic(2, [0, 1])) == 0
    leader_lost = Topic(2, [1])
    assert partitioner.peek(leader_lost) == 0
    partitioner.on_appended(0, 100, leader_lost)
    assert partitioner.peek(leader_lost) == 1


def test_a_topic_made_again_with_fewer_partitions_gets_a_new_choice() -> None:
    choices = iter([7, 1, 0])
    partitioner = BuiltInPartitioner("t", 100, lambda n: next(choices))
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

    partitioner = BuiltInPartitioner("t", 100, chance)
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
