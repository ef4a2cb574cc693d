"""`BatchResult` and `DeliveryFuture` on a loop whose turns the test takes; `tests/drivers` has real loops."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime, delivery_error


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The module under test and those it works with, compiled and interpreted."""
    return native_build(request.param)


class Turns(NoLoopRuntime):
    """A loop whose turns the test takes, and that can be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[tuple[Callable[..., object], Any]] = []
        self.is_closed = False

    def call_soon(self, callback: Callable[..., object], argument: Any, context: Any) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        self.ready.append((callback, argument))

    def run(self) -> None:
        while self.ready:
            callback, argument = self.ready.pop(0)
            callback(argument)


def batch(native: SimpleNamespace, count: int) -> tuple[Turns, Any, list[Any]]:
    turns = Turns()
    result = native.delivery.BatchResult("t", 0, turns)
    return turns, result, [native.delivery.make_delivery(result, index, 1, 2, 3) for index in range(count)]


class Topic(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not the topic"


def test_the_topic_may_be_of_a_subclass_of_str(native: SimpleNamespace) -> None:
    result = native.delivery.BatchResult(Topic("t"), 0, Turns())
    assert result.topic == "t"
    result.succeed(4)
    assert native.delivery.make_delivery(result, 0, 1, 2, 3).result()[:3] == ("t", 0, 4)


# -- delivery callbacks ---


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("error", [None, delivery_error()])
def test_what_a_callback_raises_is_for_the_caller_to_log(
    native: SimpleNamespace, kind: type[BaseException], error: BaseException | None
) -> None:
    """A CancelledError that got out would end the task that runs the callbacks: the sender's."""
    _, result, [first, second] = batch(native, 2)
    told: list[int] = []

    def fail(metadata: Any, error: object) -> None:
        raise kind("mine")

    first._add_delivery_callback(fail)
    second._add_delivery_callback(lambda metadata, error: told.append(metadata.offset))
    if error is None:
        result.succeed(5)
    else:
        result.fail(error, 2)
    assert [type(raised) for raised in result.run_callbacks()] == [kind]
    assert told == [6 if error is None else -1]
    assert result.run_callbacks() == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_waits_for_the_other_callbacks(
    native: SimpleNamespace, kind: type[BaseException]
) -> None:
    _, result, deliveries = batch(native, 3)
    told: list[int] = []

    def end(metadata: Any, error: object) -> None:
        raise kind

    def tell(metadata: Any, error: object) -> None:
        told.append(metadata.offset)

    for callback, delivery in zip((tell, end, tell), deliveries, strict=True):
        delivery._add_delivery_callback(callback)
    result.succeed(5)
    with pytest.raises(kind):
        result.run_callbacks()
    assert told == [5, 7]
    assert not result.has_callbacks


# -- who asks late ---


@pytest.mark.parametrize("count", [1, 256, 257, 600])
def test_callbacks_asked_for_late_leave_nothing_behind(native: SimpleNamespace, count: int) -> None:
    """The collector does not see deliveries: what a result kept of those who were told would stay for ever."""
    turns, result, deliveries = batch(native, count)
    result.succeed(0)
    told: list[object] = []
    for delivery in deliveries:
        delivery.add_done_callback(lambda _: told.append(None))
    turns.run()
    assert len(told) == count
    kept = weakref.ref(turns)
    del turns, result, deliveries, delivery
    gc.collect()
    assert kept() is None


def test_who_asks_of_a_closed_loop_is_told_so_every_time(native: SimpleNamespace) -> None:
    turns, result, [delivery] = batch(native, 1)
    result.succeed(0)
    turns.is_closed = True
    kept = weakref.ref(turns)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            delivery.add_done_callback(print)
    del turns, result, delivery
    gc.collect()
    assert kept() is None


# -- what there are no copies of ---


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_delivery_and_who_waits_for_it_are_neither_copied_nor_pickled(
    native: SimpleNamespace, act: Callable[[object], object]
) -> None:
    """Nobody would wake who waits on a copy: it is in no batch's list."""
    _, _, [delivery] = batch(native, 1)
    with pytest.raises(TypeError, match="cannot copy or pickle <DeliveryFuture t-0 pending>"):
        act(delivery)
    with pytest.raises(TypeError, match="cannot copy or pickle"):
        act(delivery.__await__())


def test_only_the_producer_makes_deliveries(native: SimpleNamespace) -> None:
    """One without a batch would crash once asked."""
    _, _, [delivery] = batch(native, 1)
    for kind in (type(delivery), type(delivery.__await__())):
        with pytest.raises(TypeError, match="made by"):
            kind()
