"""`StoredPath`: a call of `SpooledProducer.send()` as a coroutine, until its record is stored."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.errors import DeliveryError
from aioproduce.records import TopicPartition
from tests.native_builds import BUILDS, native_build
from tests.unit import test_send_path
from tests.unit.accumulator_harness import NoLoopRuntime


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The module under test and those it works with, compiled and interpreted."""
    return native_build(request.param)


def _error(message: str) -> DeliveryError:
    return DeliveryError(
        message, topic_partition=TopicPartition("t", 0), possibly_written=False, attempts=1, retriable=False
    )


class _NotStoredError(Exception):
    """What the spool makes of a DeliveryError."""


class _Group:
    """A group of the spool: nothing but a place in the log."""

    is_settled = False

    def __init__(self, topic: str, base_offset: int) -> None:
        self.topic = topic
        self.base_offset = base_offset

    def outcome(self, index: int) -> tuple[int, int]:
        return self.base_offset, index

    async def wait(self) -> None:
        await _Suspension()


class _Suspension:
    """Gives what it is resumed with."""

    def __await__(self) -> Generator[str, Any, Any]:
        return (yield "suspended")


class World(test_send_path.World):
    """A spool's path in front of a `SendPath` with one open batch."""

    def __init__(self, native: SimpleNamespace) -> None:
        super().__init__(native)
        self.asked_for: list[tuple[str, int]] = []
        self.groups: weakref.WeakSet[_Group] = weakref.WeakSet()
        world = self

        class Spool(native.stored_send.StoredPath):  # type: ignore[name-defined,misc]
            def _group_at(self, topic: str, offset: int) -> _Group:
                world.asked_for.append((topic, offset))
                group = _Group(topic, offset)
                world.groups.add(group)
                return group

            def _stored_error(self, error: DeliveryError) -> BaseException:
                return _NotStoredError(str(error))

        self.spool = Spool(self.path)

    def open(self, *, is_plain: bool = True) -> None:
        """Open the path with a clock of its own, so that no turn of the loop is due."""
        ways = ({"t": self.appender}, lambda: self.is_running, self.turns.append, self.append)
        self.path._open_path(*ways, is_plain=is_plain, wall_ms=lambda: 1)

    def another_batch(self) -> None:
        """Open another batch in place of the open one."""
        self.buffer = self.native.record_batch.RecordBatchBuffer(bytearray(65536))
        self.result = self.native.delivery.BatchResult("t", 0, NoLoopRuntime())
        self.appender.open(0, self.buffer, self.result)

    def suspended(self, topic: str = "t") -> Any:
        """A call whose record is in the open batch."""
        call = self.spool.send(topic, b"v")
        call.send(None)
        return call


def _resumed(call: Any) -> Any:
    """Resume a call as its task does when the batch is settled; return its result."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it is suspended")


# -- what it returns ---


def test_a_call_returns_when_its_batch_is_stored_and_not_before(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.spool.send("t", b"v", timestamp=7, headers=[("h", b"1")])
    waits_on = call.send(None)
    assert waits_on._asyncio_future_blocking  # it is what a task of asyncio waits on
    waits_on._asyncio_future_blocking = False
    assert list(world.buffer.iter_records()) == [(7, None, b"v", (("h", b"1"),))]
    with pytest.raises(RuntimeError, match="resumed before the delivery was done"):
        call.send(None)
    call = world.spool.send("t", b"v")
    call.send(None)._asyncio_future_blocking = False
    world.result.succeed(40)
    delivery = _resumed(call)
    assert (delivery.topic, delivery.spool_offset) == ("t", 41)
    assert repr(delivery) == "<SpooledDelivery t at 41, on disk>"


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=30), data=st.data())
def test_each_call_gets_its_own_place_in_whatever_order_tasks_wake(
    sizes: list[int], data: st.DataObject
) -> None:
    """Also if all batches are stored before the first task wakes; each batch's group is looked up once."""
    world = World(native_build(data.draw(st.sampled_from(BUILDS))))
    calls = []
    offset = 1 << 40
    for size in sizes:
        for number in range(size):
            call = world.spool.send("t", b"v")
            call.send(None)._asyncio_future_blocking = False
            calls.append((call, offset + number))
        world.result.succeed(offset)
        offset += size
        world.another_batch()
    for call, place in data.draw(st.permutations(calls)):
        assert _resumed(call).spool_offset == place
    assert len(world.asked_for) == len(sizes)


def test_a_record_that_was_not_stored_raises_the_spools_error(native: SimpleNamespace) -> None:
    world = World(native)
    calls = [world.spool.send("t", b"v") for _ in range(3)]
    for call in calls:
        call.send(None)._asyncio_future_blocking = False
    failure = _error("no room")
    bug = ZeroDivisionError("a bug")
    world.result.fail(failure, 3, {1: bug})
    with pytest.raises(_NotStoredError, match="no room") as caught:
        calls[0].send(None)
    assert isinstance(caught.value.__cause__, DeliveryError)
    with pytest.raises(ZeroDivisionError):  # what is no outcome of the delivery is raised as it is
        calls[1].send(None)
    with pytest.raises(_NotStoredError) as again:
        calls[2].send(None)
    assert again.value is not caught.value
    assert world.result.take_unobserved() == 0
    assert world.asked_for == []


def test_a_spool_that_has_failed_takes_no_call(native: SimpleNamespace) -> None:
    world = World(native)
    before = world.spool.send("t", b"v")
    before.send(None)._asyncio_future_blocking = False
    waiting = world.spool.send("u", b"v")
    assert waiting.send(None) == "suspended"
    world.spool._failure = ZeroDivisionError("a bug")
    call = world.spool.send("t", b"v")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        call.send(None)
    assert world.buffer.record_count == 1
    world.result.succeed(5)
    assert _resumed(before).spool_offset == 5  # it is stored
    waiting.close()


# -- the long way ---


def test_a_call_that_the_producer_decides_waits_there_first(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.spool.send("u", b"v", timeout=3)
    assert call.send(None) == "suspended"
    assert world.slow == [("u", b"v", None, None, None, None, 3, None)]
    delivery = world.takes("t", b"v")
    call.send(delivery)._asyncio_future_blocking = False  # what it is resumed with goes to the producer
    world.result.succeed(7)
    assert _resumed(call).spool_offset == 7


def test_what_is_thrown_in_reaches_the_producer_which_may_go_on(native: SimpleNamespace) -> None:
    world = World(native)

    async def stubborn(*_: Any) -> Any:
        try:
            await _Suspension()
        except KeyError:
            await _Suspension()
        return world.takes("t", b"v")

    with mock.patch.object(type(world.path), "_send_slowly", stubborn, create=True):
        call = world.spool.send("u", b"v")
        call.send(None)
        assert call.throw(KeyError("one")) == "suspended"
        with pytest.raises(KeyError, match="two"):
            call.throw(KeyError("two"))
        with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
            call.send(None)


def test_a_producer_that_ends_in_spite_of_an_exception_goes_on_to_the_disk(native: SimpleNamespace) -> None:
    world = World(native)

    async def calm(*_: Any) -> Any:
        try:
            await _Suspension()
        except KeyError:
            return world.takes("t", b"v")

    with mock.patch.object(type(world.path), "_send_slowly", calm, create=True):
        call = world.spool.send("u", b"v")
        call.send(None)
        call.throw(KeyError("ignored"))._asyncio_future_blocking = False
    world.result.succeed(3)
    assert _resumed(call).spool_offset == 3


# -- a loop with a wait of its own ---


class _ForeignRuntime(NoLoopRuntime):
    async def wait(self, delivery: Any, is_quiet: bool) -> None:
        assert is_quiet
        while not delivery.done():
            try:
                await _Suspension()
            except KeyError:
                return


def test_a_loop_with_a_wait_of_its_own_waits_by_it(native: SimpleNamespace) -> None:
    world = World(native)
    world.result = native.delivery.BatchResult("t", 0, _ForeignRuntime())
    world.appender.open(0, world.buffer, world.result)
    calls = [world.spool.send("t", b"v") for _ in range(4)]
    for call in calls:
        assert call.send(None) == "suspended"
        assert call.send(None) == "suspended"  # nothing has come yet
    with pytest.raises(ValueError, match="cancelled"):
        calls[0].throw(ValueError("cancelled"))
    calls[1].close()
    world.result.succeed(9)
    with pytest.raises(StopIteration) as ended:
        calls[2].throw(KeyError("in vain"))
    assert ended.value.value.spool_offset == 11
    assert _resumed(calls[3]).spool_offset == 12


# -- a call is a coroutine ---


def test_nothing_happens_before_the_await(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.spool.send("t", b"v")
    assert isinstance(call, Coroutine)
    assert asyncio.iscoroutine(call)
    assert world.buffer.record_count == 0
    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        call.send("too early")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call.close()
        del call
    assert world.buffer.record_count == 0


@pytest.mark.parametrize("act", ["throw", "fail"])
def test_a_call_that_ends_before_it_began_sends_nothing_and_does_not_warn(
    native: SimpleNamespace, act: str
) -> None:
    world = World(native)
    call = world.spool.send("t", b"v")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if act == "throw":
            with pytest.raises(ValueError, match="ended"):
                call.throw(ValueError("ended"))
        else:
            world.spool._failure = ValueError("ended")
            with pytest.raises(ValueError, match="ended"):
                call.send(None)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
            call.throw(ValueError("late"))
        del call
    assert world.buffer.record_count == 0


def test_a_call_that_is_never_awaited_warns_once_with_the_line_that_dropped_it(
    native: SimpleNamespace,
) -> None:
    world = World(native)

    def drop() -> int:
        world.spool.send("t", b"v")
        return sys._getframe().f_lineno - 1

    message = "'SpooledProducer.send' was never awaited: nothing was stored"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        line = drop()
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


def test_a_cancelled_wait_leaves_the_record_and_the_other_waits(native: SimpleNamespace) -> None:
    world = World(native)
    calls = [world.spool.send("t", b"v") for _ in range(3)]
    for call in calls:
        call.send(None)._asyncio_future_blocking = False
    with pytest.raises(asyncio.CancelledError):
        calls[0].throw(asyncio.CancelledError())
    calls[1].close()
    world.result.succeed(20)
    assert _resumed(calls[2]).spool_offset == 22
    assert world.buffer.record_count == 3


def test_a_call_is_awaited_once_and_by_one(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.suspended()
    with pytest.raises(RuntimeError, match="being awaited already"):
        call.__await__()
    call.close()
    again: Callable[[], Any]
    for again in (lambda: call.send(None), lambda: next(iter(call)), lambda: call.throw(ValueError("late"))):
        with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
            again()


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_neither_a_call_nor_a_delivery_is_copied_or_pickled(
    native: SimpleNamespace, act: Callable[[object], object]
) -> None:
    call = World(native).spool.send("t", b"v")
    with pytest.raises(TypeError, match=r"cannot copy or pickle <coroutine object SpooledProducer\.send>"):
        act(call)
    call.close()
    with pytest.raises(TypeError, match="cannot copy or pickle <SpooledDelivery t at 7"):
        act(native.stored_send.SpooledDelivery(_Group("t", 4), 3))


def test_a_call_is_made_by_send_only(native: SimpleNamespace) -> None:
    call = World(native).spool.send("t", b"v")
    assert (call.__name__, call.__qualname__) == ("SpooledProducer.send",) * 2
    with pytest.raises(AttributeError, match="no attribute 'cr_frame'"):
        call.cr_frame  # noqa: B018  # trio asks for it
    call.close()
    with pytest.raises(TypeError, match=r"made by send\(\)"):
        type(call)()


def test_to_a_mock_it_is_an_async_function(native: SimpleNamespace) -> None:
    spool = World(native).spool
    is_async = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert is_async(spool.send)
    assert isinstance(mock.MagicMock(spec=spool).send, mock.AsyncMock)


def test_a_path_of_its_own_leaves_the_spools_part_to_it(native: SimpleNamespace) -> None:
    path = native.stored_send.StoredPath(World(native).path)
    with pytest.raises(NotImplementedError):
        path._group_at("t", 0)
    with pytest.raises(NotImplementedError):
        path._stored_error(_error("no"))


def test_a_path_without_a_producer_takes_no_call(native: SimpleNamespace) -> None:
    """Compiled, a call without a path to send by would crash once awaited."""
    path_type = native.stored_send.StoredPath
    with pytest.raises((RuntimeError, AttributeError)):
        path_type.__new__(path_type).send("t", b"v")


# -- what it keeps ---


def test_a_call_that_waits_keeps_nothing_of_its_record(native: SimpleNamespace) -> None:
    """A thousand tasks that wait for a slow disk hold no second copy of what is in the batch."""
    world = World(native)
    headers = [("h", b"1")]
    alone = sys.getrefcount(headers)
    call = world.spool.send("t", b"v", headers=headers)
    assert sys.getrefcount(headers) == alone + 1
    call.send(None)
    assert sys.getrefcount(headers) == alone
    call.close()


def test_a_delivery_keeps_its_group_alone(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.spool.send("t", b"v")
    call.send(None)._asyncio_future_blocking = False
    result = world.result
    result.succeed(1)
    delivery = _resumed(call)
    held = sys.getrefcount(result)
    del delivery
    assert sys.getrefcount(result) == held
    assert len(world.groups) == 1
    del call, result
    world.another_batch()
    assert len(world.groups) == 0


def test_a_delivery_has_no_outcome_before_its_group(native: SimpleNamespace) -> None:
    delivery = native.stored_send.SpooledDelivery(_Group("t", 4), 3)
    assert not delivery.done()
    with pytest.raises(RuntimeError, match="not acknowledged yet"):
        delivery.result()


def test_awaiting_a_delivery_waits_for_its_group(native: SimpleNamespace) -> None:
    group = _Group("t", 30)
    delivery = native.stored_send.SpooledDelivery(group, 2)

    async def wait() -> Any:
        return await delivery

    waiting = wait()
    assert waiting.send(None) == "suspended"
    group.is_settled = True
    assert _resumed(waiting) == (30, 2)
    assert _resumed(wait()) == (30, 2)
    assert delivery.done()
    assert delivery.result() == (30, 2)
    assert repr(delivery) == "<SpooledDelivery t at 32, settled>"
