"""`Watcher` and `Wakeups`: who is told of an outcome, in which order, how many at a time, and what errors do."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import Any

import pytest

from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime, delivery_error

PER_TURN = 256


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The module under test and those it works with, compiled and interpreted."""
    return native_build(request.param)


class Turns(NoLoopRuntime):
    """A loop whose turns the test takes."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[tuple[Callable[..., object], Any]] = []
        self.failures: list[BaseException] = []

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Any) -> None:
        assert context is None
        self.ready.append((callback, argument))

    def callback_failed(self, callback: Callable[..., object], error: BaseException) -> None:  # type: ignore[override]
        self.failures.append(error)

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback, argument in ready:
            callback(argument)


def deliveries(native: SimpleNamespace, count: int) -> tuple[Turns, Any, list[Any]]:
    """A batch's result and the deliveries of its records."""
    turns = Turns()
    result = native.delivery.BatchResult("t", 0, turns)
    return turns, result, [native.delivery.make_delivery(result, index, 1, 2, 3) for index in range(count)]


def parked(native: SimpleNamespace, delivery: Any, told: list[Any], name: object) -> Any:
    """What a task does with an `await` of a delivery."""
    wait = native.watcher.make_wait(delivery, False)
    assert next(wait) is wait
    assert wait._asyncio_future_blocking
    wait._asyncio_future_blocking = False
    wait.add_done_callback(lambda watcher: told.append((name, watcher)), context=copy_context())
    return wait


def test_all_are_told_once_in_their_order(native: SimpleNamespace) -> None:
    turns, result, [first, second] = deliveries(native, 2)
    told: list[Any] = []
    waits = [parked(native, delivery, told, name) for name, delivery in enumerate((first, second, first))]
    first.add_done_callback(lambda delivery: told.append(("callback", delivery)))
    result.succeed(5)
    assert told == []  # not within the call that settles
    turns.turn()
    # Those of one delivery together: its place is that of the first who watched it.
    assert told == [(0, waits[0]), (2, waits[2]), ("callback", first), (1, waits[1])]
    assert [wait.result() for wait in waits] == [None] * 3
    turns.turn()
    assert len(told) == 4
    for wait, offset in zip(waits, (5, 6, 5), strict=True):
        with pytest.raises(StopIteration) as stop:
            next(wait)
        assert stop.value.value.offset == offset


def test_many_are_told_some_at_a_time(native: SimpleNamespace) -> None:
    turns, result, records = deliveries(native, 2 * PER_TURN + 1)
    told: list[Any] = []
    for name, delivery in enumerate(records):
        parked(native, delivery, told, name)
    result.succeed(0)
    lengths = []
    while turns.ready:
        assert len(turns.ready) == 1
        turns.turn()
        lengths.append(len(told))
    assert lengths == [PER_TURN, 2 * PER_TURN, 2 * PER_TURN + 1]
    assert [name for name, _ in told] == list(range(len(records)))


def test_those_who_ask_when_it_is_done_share_a_turn(native: SimpleNamespace) -> None:
    turns, result, [delivery, other] = deliveries(native, 2)
    result.succeed(0)
    told: list[Any] = []
    for asked in (delivery, other, delivery):
        asked.add_done_callback(told.append)
    assert told == []
    assert len(turns.ready) == 1
    turns.turn()
    assert told == [delivery, other, delivery]
    delivery.add_done_callback(lambda one: one.add_done_callback(told.append))
    turns.turn()
    assert len(told) == 3  # who asks in a callback is told in the turn after it
    turns.turn()
    assert len(told) == 4


def test_each_is_told_in_its_own_context(native: SimpleNamespace) -> None:
    turns, result, [delivery] = deliveries(native, 1)
    variable = ContextVar("variable", default="nobody's")
    told: list[str] = []
    for name in ("a", "b"):
        context = copy_context()
        context.run(variable.set, name)
        delivery.add_done_callback(lambda _: told.append(variable.get()), context=context)
    delivery.add_done_callback(lambda _: told.append(variable.get()))
    result.succeed(0)
    turns.turn()
    assert told == ["a", "b", "nobody's"]


def test_a_callback_that_raises_keeps_nobody_from_being_told(native: SimpleNamespace) -> None:
    turns, result, [delivery] = deliveries(native, 1)
    told: list[Any] = []
    delivery.add_done_callback(lambda _: 1 // 0)
    delivery.add_done_callback(told.append)
    result.succeed(0)
    turns.turn()
    assert told == [delivery]
    assert [type(error) for error in turns.failures] == [ZeroDivisionError]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_loop_leaves_the_others_for_its_next_turn(
    native: SimpleNamespace, kind: type[BaseException]
) -> None:
    turns, result, [delivery] = deliveries(native, 1)
    told: list[Any] = []

    def interrupt(_: object) -> None:
        raise kind

    delivery.add_done_callback(interrupt)
    delivery.add_done_callback(told.append)
    result.succeed(0)
    with pytest.raises(kind):
        turns.turn()
    assert told == []
    turns.turn()
    assert told == [delivery]


def test_a_cancelled_wait_is_told_of_that_and_nobody_else(native: SimpleNamespace) -> None:
    turns, result, [delivery] = deliveries(native, 1)
    told: list[Any] = []
    first, second = (parked(native, delivery, told, name) for name in ("first", "second"))
    assert first.cancel("why")
    assert not first.cancel()
    turns.turn()
    assert told == [("first", first)]
    with pytest.raises(KeyboardInterrupt, match="why"):  # what this runtime says for "cancelled"
        first.result()
    result.succeed(0)
    assert not second.cancel()  # woken already
    turns.turn()
    assert told == [("first", first), ("second", second)]


@pytest.mark.parametrize("end", ["throw", "close"])
def test_a_wait_that_is_given_up_is_told_nothing(native: SimpleNamespace, end: str) -> None:
    turns, result, [delivery] = deliveries(native, 1)
    told: list[Any] = []
    waits = [parked(native, delivery, told, name) for name in range(3)]
    for wait in (waits[1], waits[0]):
        if end == "close":
            wait.close()
        else:
            with pytest.raises(ValueError, match="given up"):
                wait.throw(ValueError("given up"))
    result.succeed(0)
    turns.turn()
    assert told == [(2, waits[2])]


def test_a_wait_resumed_by_nobody_who_was_told_says_so(native: SimpleNamespace) -> None:
    _, _, [delivery] = deliveries(native, 1)
    wait = delivery.__await__()
    next(wait)
    with pytest.raises(RuntimeError, match="in a task of the event loop"):
        next(wait)
    wait = parked(native, delivery, [], "early")
    with pytest.raises(RuntimeError, match="resumed before the delivery was done"):
        next(wait)


def test_a_quiet_wait_asks_for_no_outcome(native: SimpleNamespace) -> None:
    turns, result, [delivery] = deliveries(native, 1)
    result.fail(delivery_error(), 1)
    with pytest.raises(StopIteration) as stop:
        next(delivery._wait_done())
    assert stop.value.value is None
    del result, delivery, stop  # its traceback holds the wait
    assert turns.unobserved == 1


def test_every_failed_batch_tells_even_where_its_memory_had_another(native: SimpleNamespace) -> None:
    for _ in range(3):
        turns, result, [delivery] = deliveries(native, 1)
        result.fail(delivery_error(), 1)
        del result, delivery
        assert turns.unobserved == 1
