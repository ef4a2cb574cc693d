"""Who pays for which stretch of time, by a tree of processes that is played by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.gate import meter as module
from tests.gate.measure import Stretch
from tests.gate.meter import Meter, Speed, Unit


class Played:
    """Gives out what the test puts in; remembers who adopted what was born."""

    def __init__(self) -> None:
        self.next = Stretch(0, 0, 0, 0, 0, [])
        self.is_born = False
        self.adopted: list[object] = []

    def read(self) -> Stretch:
        stretch, self.next = self.next, Stretch(0, 0, 0, 0, 0, [])
        return stretch

    def adopt(self, owner: object) -> bool:
        if self.is_born:
            self.adopted.append(owner)
        was_born, self.is_born = self.is_born, False
        return was_born

    def happens(
        self,
        wall: float,
        cpu: float = 0.0,
        queue: float = 0.0,
        guessed: float = 0.0,
        living: list[tuple[object, float, float]] | None = None,
    ) -> None:
        self.next = Stretch(wall, cpu, queue, guessed, 0.0, living or [])


class PlayedSpeed:
    """The reference loop takes a second, or what the test says."""

    def __init__(self) -> None:
        self.reference_s = 1.0

    def between(self) -> float:
        return self.reference_s


def new(speed: PlayedSpeed | None = None) -> tuple[Played, Meter, Unit]:
    tree, rest = Played(), Unit("rest", "rest")
    meter = Meter(tree, rest, speed or PlayedSpeed())
    rest.cpu = rest.loops = 0.0
    return tree, meter, rest


def test_the_innermost_pays() -> None:
    tree, meter, rest = new()
    test, fixture = Unit("test", "tests/unit"), Unit("fixture", "fixture")

    tree.happens(1, cpu=1)
    meter.enter_test(test, [])
    tree.happens(2, cpu=2)
    meter.enter(fixture)
    tree.happens(30, cpu=10)
    meter.leave_fixture(fixture)
    tree.happens(4, cpu=3)
    meter.leave_test()
    tree.happens(5, cpu=5)
    meter.cut()

    assert (test.cpu, test.waiting, test.wall) == (5, 1, 6)
    assert (fixture.cpu, fixture.waiting) == (10, 20)
    assert (rest.cpu, rest.waiting) == (6, 0)


def test_waiting_is_neither_work_nor_the_run_queue_and_never_negative() -> None:
    tree, meter, _ = new()
    test = Unit("test", "row")

    meter.enter_test(test, [])
    tree.happens(10, cpu=2, queue=3, living=[(None, 1, 0.5)])
    meter.cut()
    assert test.waiting == 3.5
    # Two processors at once; what was waited for before stays.
    tree.happens(1, cpu=1, living=[(None, 1, 0)])
    meter.leave_test()

    assert (test.waiting, test.cpu) == (3.5, 5)


def test_what_is_sure_allows_for_a_wrong_estimate() -> None:
    tree, meter, _ = new()
    test = Unit("test", "row")

    meter.enter_test(test, [])
    tree.happens(10, cpu=2, queue=4, guessed=2)
    meter.cut()
    assert (test.waiting, test.surely) == (4, 3)
    tree.happens(10, cpu=2, queue=7, guessed=6)
    meter.leave_test()

    assert (test.waiting, test.surely) == (5, 3)


def test_a_broker_works_for_the_tests_that_use_it_and_else_for_its_fixture() -> None:
    tree, meter, rest = new()
    broker, user, other = Unit("broker", "fixture broker"), Unit("user", "kafka"), Unit("other", "tests/unit")

    meter.enter_test(user, [])
    meter.enter(broker)
    tree.is_born = True
    assert meter.leave_fixture(broker)
    assert tree.adopted == [broker]
    tree.happens(1, living=[(broker, 0.25, 0.25)])
    meter.leave_test()
    assert (user.cpu, user.waiting, broker.cpu) == (0.25, 0.5, 0)

    meter.enter_test(other, [])
    tree.happens(1, cpu=0.5, living=[(broker, 0.25, 0.25)])
    meter.leave_test()
    assert (other.cpu, other.waiting, broker.cpu) == (0.5, 0.5, 0.25)

    tree.happens(1, living=[(broker, 0.25, 0)])
    meter.enter_test(user, [broker])
    assert (broker.cpu, broker.waiting, rest.waiting) == (0.5, 0, 1)
    tree.happens(1, living=[(broker, 0.25, 0)])
    meter.enter(broker)
    tree.happens(1, living=[(broker, 0.25, 0)])
    meter.leave_fixture(broker)
    assert (user.cpu, broker.cpu) == (0.5, 0.75)


def test_a_broker_that_a_test_restarts_belongs_to_the_fixture_still() -> None:
    tree, meter, _ = new()
    broker, test = Unit("broker", "fixture broker"), Unit("test", "kafka")

    meter.enter_test(test, [broker])
    tree.is_born = True
    meter.leave_test()
    assert tree.adopted == [broker]

    meter.enter_test(test, [])
    tree.is_born = True
    meter.leave_test()
    assert tree.adopted == [broker, None]


def test_a_fixture_that_starts_nothing_owns_nothing() -> None:
    _, meter, _ = new()
    fixture = Unit("fixture", "fixture")
    meter.enter(fixture)

    assert not meter.leave_fixture(fixture)


def test_each_stretch_is_paid_at_the_speed_of_its_time() -> None:
    speed = PlayedSpeed()
    tree, meter, rest = new(speed)
    test, broker = Unit("test", "row"), Unit("fixture broker", "fixture broker")

    meter.enter_test(test, [])
    tree.happens(3, cpu=2)
    meter.cut()
    speed.reference_s = 0.5
    tree.happens(3, cpu=2, living=[(None, 1, 0), (broker, 4, 0)])
    meter.leave_test()
    tree.happens(3, cpu=3)
    meter.cut()

    assert (test.cpu, test.loops) == (5, 8)
    assert (broker.cpu, broker.loops) == (4, 8)
    assert (rest.cpu, rest.loops) == (3, 6)


def test_the_speed_is_measured_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loops = [100.0], iter([9.0, 1.0, 2.0, 4.0, 8.0, 3.0])
    began = [True]
    works = [0.0]

    def thread_time() -> float:
        if not began[0]:
            works[0] += next(loops)
        began[0] = not began[0]
        return works[0]

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=thread_time))
    speed = Speed(every_s=2.0)

    assert speed.reference_s == 2.0
    now[0] += 1.9
    assert speed.between() == 2.0
    now[0] += 0.1
    assert speed.between() == 3.0
    assert speed.between() == speed.reference_s == 4.0


def test_the_reference_loop_takes_processor_time() -> None:
    assert 1e-5 < Speed().reference_s < 1.0
