"""What an `await` gives, and by what: nothing keeps it once the await is over, and what others hold is left alone.

On CPython 3.12 and later that is a StopIteration which is given out again (`am_send.pxd`); before, and interpreted,
the same must hold.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import types
import weakref
from collections.abc import Coroutine, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from aioproduce._native.key_hash import MURMUR2
from tests.native_builds import BUILDS, native_build
from tests.unit.accumulator_harness import NoLoopRuntime, delivery_error


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The modules under test, compiled and interpreted."""
    return native_build(request.param)


class World:
    """A path with one topic, whose one partition has an open batch."""

    def __init__(self, native: SimpleNamespace, runtime: NoLoopRuntime | None = None) -> None:
        self.native = native
        self.runtime = runtime or NoLoopRuntime()
        self.result = native.delivery.BatchResult("t", 0, self.runtime)
        appender = native.topic_appender.TopicAppender(MURMUR2)
        appender.set_partition_count(1)
        appender.open(0, native.record_batch.RecordBatchBuffer(bytearray(65536)), self.result)
        appender.set_sticky(0, 1 << 30)

        class Path(native.send_path.SendPath):  # type: ignore[name-defined,misc]
            async def _send_slowly(self, *_arguments: Any) -> Any:
                return await asyncio.get_running_loop().create_future()

        self.path = Path()
        self.path._open_path(
            {"t": appender}, lambda: True, lambda _: None, lambda *_: None, is_plain=True, wall_ms=lambda: 1
        )

    def send(self, topic: str = "t") -> Any:
        """A call, to be awaited."""
        return self.path.send(topic, b"value", timestamp=1)

    def settled(self) -> Any:
        """A delivery that is acknowledged."""
        result = self.native.delivery.BatchResult("t", 0, self.runtime)
        result.succeed(5)
        return self.native.delivery.make_delivery(result, 0, 1, 2, 3)


def awaited(awaitable: Any) -> Any:
    """What an `await` in a coroutine gives, where it does not suspend."""

    async def wait() -> Any:
        return await awaitable

    return ended(wait())


def ended(coroutine: Coroutine[Any, Any, Any] | Generator[Any, Any, Any]) -> Any:
    """What a coroutine returns that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it is suspended")


def ended_with(iterator: Any) -> StopIteration:
    """The exception by which an iterator ends, as the interpreter has it."""
    try:
        next(iterator)
    except StopIteration as stop:
        return stop
    raise AssertionError("it goes on")


def references(value: object) -> int:
    """How many there are to this, those of the calls included."""
    return sys.getrefcount(value)


def _of_a_variable() -> int:
    alone = object()
    return references(alone)


ALONE = _of_a_variable()


def test_nobody_keeps_what_was_awaited(native: SimpleNamespace) -> None:
    world = World(native)
    delivery = awaited(world.send())
    assert type(delivery) is native.delivery.DeliveryFuture
    assert references(delivery) == ALONE
    settled = world.settled()
    metadata = awaited(settled)
    assert metadata.offset == 5
    assert references(metadata) == references(settled) == ALONE


def test_a_batch_dies_with_the_last_of_its_deliveries(native: SimpleNamespace) -> None:
    told = []

    class Runtime(NoLoopRuntime):
        def unobserved_failure(self, topic: str, partition: int, error: BaseException, count: int) -> None:
            told.append(awaited(other.send()))  # an await within the death of what was awaited before

    world, other = World(native, Runtime()), World(native)
    delivery = awaited(world.send())
    world.result.fail(delivery_error(), 1)
    del world
    assert told == []
    del delivery
    assert [type(one) for one in told] == [native.delivery.DeliveryFuture]
    within = told.pop()
    assert references(within) == ALONE


def test_the_exception_that_a_tracer_holds_is_its_own(native: SimpleNamespace) -> None:
    world = World(native)
    held: dict[int, BaseException] = {}

    def trace(_frame: Any, event: str, argument: Any) -> Any:
        if event == "exception" and isinstance(argument[1], StopIteration):
            held[id(argument[1])] = argument[1]
        return trace

    async def sends(count: int) -> list[Any]:
        return [await world.send() for _ in range(count)]

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        deliveries = ended(sends(5))
    finally:
        sys.settrace(before)
    untraced = awaited(world.send())
    given = [error.value for error in held.values() if isinstance(error, StopIteration)]
    assert [value for value in given if type(value) is native.delivery.DeliveryFuture] == deliveries
    assert references(untraced) == ALONE
    del given
    held.clear()
    gc.collect()  # tracebacks hold frames
    assert [references(delivery) for delivery in deliveries] == [ALONE + 1] * 5  # the list


def test_what_was_done_to_an_exception_is_not_in_the_next(native: SimpleNamespace) -> None:
    world = World(native)
    for spoil in (
        lambda stop: setattr(stop, "mark", "mark"),
        lambda stop: setattr(stop, "args", ("mark",)),
        lambda stop: setattr(stop, "__cause__", ValueError("mark")),
        lambda stop: setattr(stop, "__context__", ValueError("mark")),
        lambda stop: setattr(stop, "__suppress_context__", True),
        lambda stop: setattr(stop, "value", "mark"),
        lambda stop: stop.add_note("mark"),
        lambda stop: None,
    ):
        first = ended_with(world.send().__await__())
        spoil(first)
        del first
        following = ended_with(world.send().__await__())
        assert type(following.value) is native.delivery.DeliveryFuture
        assert "mark" not in following.args
        assert following.__cause__ is following.__context__ is None
        assert not following.__suppress_context__
        assert following.__dict__ == {}
        assert not hasattr(following, "__notes__")


def test_an_exception_with_a_value_of_its_own_is_not_changed(native: SimpleNamespace) -> None:
    world = World(native)
    held, deliveries = [], []
    for _ in range(3):
        held.append(ended_with(world.send().__await__()))
        deliveries.append(held[-1].value)
        awaited(world.send())
    assert [error.value for error in held] == deliveries
    assert len(set(map(id, held))) == 3


def test_who_finds_one_that_is_spare_keeps_it(native: SimpleNamespace) -> None:
    world = World(native)
    awaited(world.send())
    gc.collect()
    found = [thing for thing in gc.get_objects() if isinstance(thing, StopIteration)]
    values = [stop.value for stop in found]
    assert not any(type(value) is native.delivery.DeliveryFuture for value in values)
    delivery = awaited(world.send())
    assert [stop.value for stop in found] == values
    assert references(delivery) == ALONE


def test_awaits_leave_nothing_for_the_garbage_collector(native: SimpleNamespace) -> None:
    world = World(native)
    settled = world.settled()

    async def rounds(count: int) -> None:
        for _ in range(count):
            await world.send()
            await settled

    ended(rounds(5))
    gc.collect()
    before = len(gc.get_objects())
    ended(rounds(500))
    assert len(gc.get_objects()) - before < 50
    assert gc.collect() < 50


def test_an_await_within_an_except_block_keeps_no_exception(native: SimpleNamespace) -> None:
    class HandledError(Exception):
        pass

    world = World(native)
    handled: list[weakref.ref[HandledError]] = []

    async def wait() -> Any:
        try:
            raise HandledError
        except HandledError as error:
            handled.append(weakref.ref(error))
            return await world.send()

    delivery = ended(wait())
    assert handled[0]() is None
    assert references(delivery) == ALONE


@types.coroutine
def _by_generator(awaitable: Any) -> Generator[Any, Any, Any]:
    return (yield from awaitable.__await__())


def test_every_way_of_driving_one_gives_the_same(native: SimpleNamespace) -> None:
    world = World(native)
    metadata = awaited(world.settled())

    async def nested() -> tuple[Any, Any]:
        delivery = await _by_generator(world.send())
        return delivery, await _by_generator(world.settled())

    delivery, of_generator = ended(nested())
    assert type(ended(world.send())) is type(delivery) is native.delivery.DeliveryFuture
    assert ended(world.settled().__await__()) == of_generator == metadata
    with pytest.raises(StopIteration) as stop:
        world.send().send(None)
    assert type(stop.value) is StopIteration
    assert ended(world.settled()._wait_done()) is None


def test_tasks_gather_and_cancellation(native: SimpleNamespace) -> None:
    world = World(native)

    async def one() -> Any:
        delivery = await world.send()
        assert references(delivery) == ALONE
        return delivery

    async def main() -> None:
        wanted = native.delivery.DeliveryFuture
        of_tasks = await asyncio.gather(*[one() for _ in range(50)], world.send(), world.send())
        assert [type(delivery) for delivery in of_tasks] == [wanted] * 52
        assert len(set(map(id, of_tasks))) == 52
        for _ in range(5):
            waiting = asyncio.ensure_future(world.send("a topic that is not known"))
            within = asyncio.ensure_future(asyncio.wait_for(world.send("neither"), None))
            await asyncio.sleep(0)
            waiting.cancel()
            within.cancel()
            ended_with = await asyncio.gather(waiting, within, return_exceptions=True)
            assert [type(end) for end in ended_with] == [asyncio.CancelledError] * 2
            assert type(await one()) is wanted

    asyncio.run(main())


def test_threads_get_their_own(native: SimpleNamespace) -> None:
    failures: list[BaseException] = []
    interval = sys.getswitchinterval()

    def work(offset: int) -> None:
        try:
            result = native.delivery.BatchResult("t", 0, NoLoopRuntime())
            result.succeed(offset)
            delivery = native.delivery.make_delivery(result, 0, 1, 2, 3)

            async def rounds() -> None:
                for _ in range(500):
                    metadata = await delivery
                    assert metadata.offset == offset
                    assert references(metadata) == ALONE

            ended(rounds())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number * 1000]) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
