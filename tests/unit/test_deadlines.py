"""Deadlines: order, moving, removing; the same against a naive model; memory bounded by the live keys."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aioproduce.core.deadlines import Deadlines


def test_due_keys_come_in_order_of_time() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule("late", 3.0)
    deadlines.schedule("early", 1.0)
    deadlines.schedule("middle", 2.0)
    assert deadlines.next_at() == 1.0
    assert deadlines.pop_due(2.0) == ["early", "middle"]
    assert deadlines.next_at() == 3.0
    assert len(deadlines) == 1


def test_equal_times_come_in_order_of_insertion() -> None:
    deadlines: Deadlines = Deadlines()
    for key in ("c", "a", "b"):
        deadlines.schedule(key, 1.0)
    assert deadlines.pop_due(1.0) == ["c", "a", "b"]


def test_keys_need_no_order_among_themselves() -> None:
    deadlines: Deadlines = Deadlines()
    first, second = object(), object()
    deadlines.schedule(first, 1.0)
    deadlines.schedule(second, 1.0)
    assert deadlines.pop_due(1.0) == [first, second]


def test_schedule_keeps_the_earlier_one() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule("key", 5.0)
    deadlines.schedule("key", 9.0)
    assert deadlines.at("key") == 5.0
    deadlines.schedule("key", 2.0)
    assert deadlines.at("key") == 2.0
    assert deadlines.pop_due(10.0) == ["key"]
    assert deadlines.pop_due(10.0) == []


def test_reschedule_moves_both_ways() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.reschedule("key", 5.0)
    deadlines.reschedule("key", 9.0)
    assert deadlines.next_at() == 9.0
    assert deadlines.pop_due(8.9) == []
    deadlines.reschedule("key", 1.0)
    assert deadlines.next_at() == 1.0


def test_moving_away_and_back_is_a_new_insertion() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule("first", 1.0)
    deadlines.schedule("second", 1.0)
    deadlines.reschedule("first", 2.0)
    deadlines.reschedule("first", 1.0)
    deadlines.reschedule("second", 1.0)  # where it is: nothing
    assert deadlines.pop_due(1.0) == ["second", "first"]


def test_an_old_entry_of_a_key_that_was_taken_out_and_put_in_again_does_not_count() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule("key", 1.0)
    deadlines.cancel("key")
    deadlines.schedule("key", 5.0)
    assert deadlines.pop_due(4.0) == []
    assert deadlines.next_at() == 5.0


def test_cancel_and_clear() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule("a", 1.0)
    deadlines.schedule("b", 2.0)
    deadlines.cancel("a")
    deadlines.cancel("a")
    deadlines.cancel("never seen")
    assert "a" not in deadlines
    assert deadlines.at("a") is None
    assert deadlines.next_at() == 2.0
    deadlines.clear()
    assert deadlines.next_at() is None
    assert deadlines.pop_due(float("inf")) == []


def test_a_key_that_is_moved_for_ever_takes_no_memory() -> None:
    deadlines: Deadlines = Deadlines()
    for step in range(50_000):
        deadlines.reschedule(step % 10, float(step))
        assert len(deadlines._heap) <= 2 * 10 + 64
    for step in range(50_000):  # each one moved to the front: the head is never stale
        deadlines.reschedule(step % 10, float(-step))
        assert len(deadlines._heap) <= 2 * 10 + 64


def test_what_is_popped_leaves_no_stale_entries_behind() -> None:
    deadlines: Deadlines = Deadlines()
    for key in range(1000):
        deadlines.schedule(key, 10.0)
    for key in range(1000):
        deadlines.schedule(key, 5.0)
    assert deadlines.pop_due(5.0) == list(range(1000))
    assert len(deadlines._heap) <= 64


def test_what_is_cancelled_leaves_no_stale_entries_behind() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule(-1, 0.0)  # in front of them all, so that nothing else clears them away
    for key in range(1000):
        deadlines.schedule(key, 1.0)
        deadlines.cancel(key)
    assert len(deadlines._heap) <= 2 + 64
    for key in range(1000):
        deadlines.schedule(key, 1.0)
    for key in range(1000):
        deadlines.cancel(key)
    assert len(deadlines._heap) <= 2 + 64


def test_scheduling_the_same_instant_again_is_nothing() -> None:
    deadlines: Deadlines = Deadlines()
    deadlines.schedule("first", 1.0)
    deadlines.schedule("second", 1.0)
    deadlines.schedule("first", 1.0)
    assert deadlines.pop_due(1.0) == ["first", "second"]


class DeadlinesAgainstModel(RuleBasedStateMachine):
    """The model: a list of (key, instant) in order of insertion, looked through whole each time."""

    keys = st.integers(0, 12)
    instants = st.integers(0, 20).map(float)

    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines = Deadlines()
        self.model: list[tuple[int, float]] = []

    def instant_of(self, key: int) -> float | None:
        return dict(self.model).get(key)

    def put(self, key: int, at: float) -> None:
        self.model = [entry for entry in self.model if entry[0] != key] + [(key, at)]

    @rule(key=keys, at=instants)
    def schedule(self, key: int, at: float) -> None:
        self.deadlines.schedule(key, at)
        known = self.instant_of(key)
        if known is None or at < known:
            self.put(key, at)

    @rule(key=keys, at=instants)
    def reschedule(self, key: int, at: float) -> None:
        self.deadlines.reschedule(key, at)
        if self.instant_of(key) != at:
            self.put(key, at)

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        self.deadlines.cancel(key)
        self.model = [entry for entry in self.model if entry[0] != key]

    @rule(now=instants)
    def pop_due(self, now: float) -> None:
        due = sorted((entry for entry in self.model if entry[1] <= now), key=lambda entry: entry[1])
        assert self.deadlines.pop_due(now) == [key for key, _ in due]
        self.model = [entry for entry in self.model if entry[1] > now]

    @rule(key=keys, moves=st.integers(100, 300))
    def move_often(self, key: int, moves: int) -> None:
        for move in range(moves):
            self.reschedule(key, float(20 + move))

    @invariant()
    def agrees(self) -> None:
        assert self.deadlines.next_at() == min((at for _, at in self.model), default=None)
        assert len(self.deadlines) == len(self.model)
        for key in range(13):
            assert self.deadlines.at(key) == self.instant_of(key)
            assert (key in self.deadlines) == (self.instant_of(key) is not None)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.deadlines._heap) <= 2 * len(self.model) + 64


TestDeadlinesAgainstModel = DeadlinesAgainstModel.TestCase
TestDeadlinesAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
