"""`SendPath`: the short way of `send()`, what it leaves to the long one, and its calls as coroutines."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from aioproduce._native.key_hash import MURMUR2
from aioproduce.errors import InvalidHeadersError
from aioproduce.records import NOT_GIVEN
from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The module under test and those it works with, compiled and interpreted."""
    return native_build(request.param)


class World:
    """A path with one topic of three partitions, of which the first has an open batch."""

    def __init__(self, native: SimpleNamespace, *, is_plain: bool = True) -> None:
        self.native = native
        self.slow: list[tuple[Any, ...]] = []
        self.turns: list[Callable[[], None]] = []
        self.is_running = True
        self.asked: list[tuple[Any, ...]] = []
        self.new_batch: Callable[[], Any] | None = None
        self.appender = native.topic_appender.TopicAppender(MURMUR2)
        self.appender.set_partition_count(3)
        self.buffer = native.record_batch.RecordBatchBuffer(bytearray(65536))
        self.result = native.delivery.BatchResult("t", 0, NoLoopRuntime())
        self.appender.open(0, self.buffer, self.result)
        self.appender.set_sticky(0, 1 << 30)
        world = self

        class Path(native.send_path.SendPath):  # type: ignore[name-defined,misc]
            async def _send_slowly(self, *arguments: Any) -> Any:
                world.slow.append(arguments)
                return await _Suspension()

        self.path = Path()
        self.open(is_plain=is_plain)

    def open(self, *, is_plain: bool = True) -> None:
        self.path._open_path(
            {"t": self.appender}, lambda: self.is_running, self.turns.append, self.append, is_plain=is_plain
        )

    def append(self, *record: Any) -> Any:
        """What opens a batch for a record, or leaves it to the long way."""
        self.asked.append(record)
        return self.new_batch() if self.new_batch is not None else None

    def takes(self, *arguments: Any, **keywords: Any) -> Any:
        """The delivery, if the short way took it."""
        call = self.path.send(*arguments, **keywords)
        try:
            call.send(None)
        except StopIteration as stop:
            return stop.value
        call.close()
        return None


class _Suspension:
    """Gives what it is resumed with."""

    def __await__(self) -> Generator[str, Any, Any]:
        return (yield "suspended")


def test_a_plain_record_is_accepted_without_suspending(native: SimpleNamespace) -> None:
    world = World(native)
    delivery = world.takes("t", b"value", b"key", partition=0, timestamp=7, headers=[("h", b"1")])
    assert type(delivery) is native.delivery.DeliveryFuture
    assert next(world.buffer.iter_records()) == (7, b"key", b"value", (("h", b"1"),))
    assert world.slow == []


def test_a_record_without_a_timestamp_gets_the_time(native: SimpleNamespace) -> None:
    world = World(native)
    before = time.time_ns() // 1_000_000
    assert world.takes("t", None) is not None
    assert before - 1 <= next(world.buffer.iter_records())[0] <= time.time_ns() // 1_000_000
    assert next(world.buffer.iter_records())[1:] == (None, None, ())


def test_a_key_without_a_value_is_a_tombstone(native: SimpleNamespace) -> None:
    world = World(native)
    assert world.takes("t", key=b"k", partition=0, timestamp=7) is not None
    assert world.takes("t", None, partition=0, timestamp=8) is not None
    assert list(world.buffer.iter_records()) == [(7, b"k", None, ()), (8, None, None, ())]
    assert world.slow == []


def test_a_record_with_neither_is_for_the_long_way_to_refuse(native: SimpleNamespace) -> None:
    world = World(native)
    for arguments in ({}, {"headers": [("h", b"1")]}, {"partition": 0}):
        assert world.takes("t", **arguments) is None
        assert world.slow.pop()[:3] == ("t", NOT_GIVEN, None)
    assert list(world.buffer.iter_records()) == []


class _Text(str):
    __slots__ = ()


class _Bytes(bytes):
    __slots__ = ()


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        pytest.param((_Text("t"), b"v"), {}, id="a str subclass as topic"),
        pytest.param((7, b"v"), {}, id="an int as topic"),
        pytest.param(("u", b"v"), {}, id="a topic that is not known"),
        pytest.param(("t", "text"), {}, id="a str as value"),
        pytest.param(("t", _Bytes(b"v")), {}, id="a bytes subclass as value"),
        pytest.param(("t", bytearray(b"v")), {}, id="a bytearray as value"),
        pytest.param(("t", b"v", "key"), {}, id="a str as key"),
        pytest.param(("t", b"v"), {"partition": True}, id="a bool as partition"),
        pytest.param(("t", b"v"), {"partition": "0"}, id="a str as partition"),
        pytest.param(("t", b"v"), {"partition": -1}, id="a negative partition"),
        pytest.param(("t", b"v"), {"partition": 2**31}, id="a partition beyond int32"),
        pytest.param(("t", b"v"), {"partition": 10**40}, id="a huge partition"),
        pytest.param(("t", b"v"), {"partition": 1}, id="a partition without an open batch"),
        pytest.param(("t", b"v"), {"partition": 3}, id="a partition that is not there"),
        pytest.param(("t", b"v"), {"timestamp": -1}, id="a negative timestamp"),
        pytest.param(("t", b"v"), {"timestamp": 2**63}, id="a timestamp beyond int64"),
        pytest.param(("t", b"v"), {"timestamp": 1.5}, id="a float as timestamp"),
        pytest.param(("t", b"v"), {"headers": {"a": b"b"}}, id="a dict as headers"),
        pytest.param(("t", b"v"), {"headers": iter(())}, id="an iterator as headers"),
        pytest.param(("t", b"x" * 70000), {}, id="a record that does not fit"),
    ],
)
def test_whatever_else_goes_the_long_way_as_it_was_given(
    native: SimpleNamespace, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    world = World(native)
    assert world.takes(*arguments, timeout=3, **keywords) is None
    given = dict(zip(("topic", "value", "key"), arguments, strict=False)) | keywords
    names = ("topic", "value", "key", "partition", "timestamp", "headers")
    [slow] = world.slow
    expected = [*(given.get(name) for name in names), 3, None]
    assert all(got is want for got, want in zip(slow, expected, strict=True))
    assert world.buffer.record_count == 0


def test_what_the_record_itself_refuses_is_raised_and_nothing_is_queued(native: SimpleNamespace) -> None:
    world = World(native)
    with pytest.raises(InvalidHeadersError):
        world.takes("t", b"v", headers=[("only a name",)])
    assert world.buffer.record_count == 0
    assert world.slow == []


def test_a_path_that_is_shut_takes_nothing(native: SimpleNamespace) -> None:
    world = World(native)
    world.path._shut_path()
    assert world.takes("t", b"v") is None
    world.open()
    assert world.takes("t", b"v") is not None
    world.is_running = False  # the loop of _open_path() stopped, another runs in this thread
    assert world.takes("t", b"v") is None
    assert world.buffer.record_count == 1


def test_a_record_without_room_is_appended_to_a_new_batch(native: SimpleNamespace) -> None:
    world = World(native)
    opened = world.takes("t", b"v")

    def new_batch() -> Any:
        return opened

    world.new_batch = new_batch
    headers = [("h", b"1")]
    assert world.takes("t", b"v" * 70_000, b"k", partition=0, timestamp=7, headers=headers) is opened
    assert world.asked == [("t", b"k", b"v" * 70_000, headers, 0, 7)]
    world.new_batch = None
    assert world.takes("t", b"v" * 70_000) is None  # it waits, by the long way
    assert len(world.asked) == 2
    assert world.takes("other", b"v") is None
    assert len(world.asked) == 2


def test_a_path_that_was_never_open_takes_nothing(native: SimpleNamespace) -> None:
    call = native.send_path.SendPath().send("t", b"v")
    with pytest.raises(NotImplementedError):
        call.send(None)


def test_another_thread_goes_the_long_way(native: SimpleNamespace) -> None:
    world = World(native)
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(world.takes("t", b"v")))
    thread.start()
    thread.join()
    assert taken == [None]
    assert world.buffer.record_count == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_a_forked_child_goes_the_long_way(native: SimpleNamespace) -> None:
    world = World(native)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: this process has threads
        child = os.fork()
    if child == 0:
        os._exit(0 if world.takes("t", b"v") is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert world.takes("t", b"v") is not None


def test_who_wants_to_see_records_or_to_serialize_them_gets_them_all(native: SimpleNamespace) -> None:
    world = World(native, is_plain=False)
    assert world.takes("t", b"v") is None
    assert len(world.slow) == 1


def test_the_loop_is_given_its_turn(native: SimpleNamespace) -> None:
    world = World(native)
    assert world.takes("t", b"v") is not None
    [turn_came] = world.turns  # the first of a turn asks to be told of the next
    # However fast this machine is: the turn is over after so much sending, and one goes the long way.
    while not world.path._turn_is_due():
        assert world.takes("u") is None
    taken = 0
    while world.takes("t") is not None:
        taken += 1
        assert taken <= 16
    turn_came()
    assert world.takes("t", b"v") is not None
    assert len(world.turns) == 2


# -- a call is a coroutine ---


def test_nothing_happens_before_the_await(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.path.send("t", b"v")
    assert isinstance(call, Coroutine)
    assert asyncio.iscoroutine(call)
    assert world.buffer.record_count == 0
    call.close()
    assert world.buffer.record_count == 0
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        call.send(None)


def test_a_call_that_is_never_awaited_warns(native: SimpleNamespace) -> None:
    world = World(native)
    for name in ("send", "send_and_wait"):
        with pytest.warns(RuntimeWarning, match=f"'Producer.{name}' was never awaited: nothing was sent"):
            getattr(world.path, name)("t", b"v")


@pytest.mark.parametrize("name", ["send", "send_and_wait"])
def test_the_warning_names_the_line_that_dropped_the_call(native: SimpleNamespace, name: str) -> None:
    world = World(native)

    def drop() -> int:
        getattr(world.path, name)("t", b"v")
        return sys._getframe().f_lineno - 1

    with pytest.warns(RuntimeWarning, match="never awaited") as caught:
        line = drop()
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


def test_a_call_that_did_not_begin_takes_no_value(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.path.send("t", b"v")
    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        call.send("too early")
    assert world.buffer.record_count == 0
    with pytest.raises(StopIteration):  # it was not begun, and can still be
        call.send(None)
    assert world.buffer.record_count == 1


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_call_is_neither_copied_nor_pickled(
    native: SimpleNamespace, act: Callable[[object], object]
) -> None:
    call = World(native).path.send("t", b"v")
    with pytest.raises(TypeError, match=r"cannot copy or pickle <coroutine object Producer\.send>"):
        act(call)
    call.close()


def test_a_call_is_made_by_send_only(native: SimpleNamespace) -> None:
    call = World(native).path.send("t", b"v")
    call.close()
    # One without a path to send by would crash once awaited.
    with pytest.raises(TypeError, match=r"made by send\(\)"):
        type(call)()


@pytest.mark.parametrize("name", ["send", "send_and_wait"])
def test_to_a_mock_it_is_an_async_function(native: SimpleNamespace, name: str) -> None:
    """`asyncio.iscoroutinefunction` is what mocks of 3.11 ask, and what web frameworks choose a thread by."""
    path = World(native).path
    is_async = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert is_async(getattr(path, name))
    assert is_async(getattr(type(path), name))
    assert isinstance(getattr(mock.MagicMock(spec=path), name), mock.AsyncMock)


def test_asyncio_may_be_loaded_after_it(native: SimpleNamespace) -> None:
    """Then opening the path makes up for it."""
    for method in (native.send_path.SendPath.send, native.send_path.SendPath.send_and_wait):
        vars(method).pop("_is_coroutine", None)
    World(native)
    test_to_a_mock_it_is_an_async_function(native, "send")
    test_to_a_mock_it_is_an_async_function(native, "send_and_wait")


def test_a_call_is_awaited_once(native: SimpleNamespace) -> None:
    call = World(native).path.send("t", b"v")
    with pytest.raises(StopIteration):
        call.send(None)
    again: Callable[[], Any]
    for again in (lambda: call.send(None), lambda: next(iter(call)), lambda: call.throw(ValueError("late"))):
        with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
            again()
    call.close()


def test_a_call_that_is_awaited_already_refuses_the_next_and_goes_on(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.path.send("unknown", b"v")
    assert call.__await__().send(None) == "suspended"
    with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
        call.__await__()
    with pytest.raises(StopIteration) as stop:
        call.send("resumed with")
    assert stop.value.value == "resumed with"


@pytest.mark.parametrize("name", ["send", "send_and_wait"])
def test_a_call_that_ended_does_not_keep_the_record(native: SimpleNamespace, name: str) -> None:
    """A task keeps its coroutine for as long as somebody keeps the task."""
    world = World(native)
    value = b"value" * 100
    before = sys.getrefcount(value)
    call = getattr(world.path, name)("t", value)
    if name == "send_and_wait":
        call.send(None)._asyncio_future_blocking = False
    world.result.succeed(0)
    with pytest.raises(StopIteration):
        call.send(None)
    assert sys.getrefcount(value) == before
    with pytest.raises(RuntimeError, match="cannot reuse"):  # it is still there
        call.send(None)


def test_an_exception_before_the_start_is_raised_and_nothing_sent(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.path.send("t", b"v")
    with pytest.raises(ValueError, match="early"):
        call.throw(ValueError("early"))
    assert world.buffer.record_count == 0


def test_the_long_way_is_driven_as_it_wants(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.path.send("unknown", b"v")
    assert call.send(None) == "suspended"
    with pytest.raises(StopIteration) as stop:
        call.send("resumed with")
    assert stop.value.value == "resumed with"

    call = world.path.send("unknown", b"v")
    call.send(None)
    with pytest.raises(ValueError, match="thrown"):
        call.throw(ValueError, ValueError("thrown"), None)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        call.send(None)


def test_send_and_wait_waits_for_the_acknowledgement(native: SimpleNamespace) -> None:
    world = World(native)
    call = world.path.send_and_wait("t", b"v")
    parked_on = call.send(None)
    assert parked_on._asyncio_future_blocking
    parked_on._asyncio_future_blocking = False
    world.result.succeed(70)
    with pytest.raises(StopIteration) as stop:
        call.send(None)
    assert stop.value.value.offset == 70


def test_its_names_are_for_people(native: SimpleNamespace) -> None:
    path = World(native).path
    for name in ("send", "send_and_wait"):
        call = getattr(path, name)("t")
        assert (call.__name__, call.__qualname__) == (f"Producer.{name}", f"Producer.{name}")
        assert repr(call) == f"<coroutine object Producer.{name}>"
        with pytest.raises(AttributeError, match="cr_frame"):
            _ = call.cr_frame
        call.close()
