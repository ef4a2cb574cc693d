"""`PositionalCalls`: aiokafka's way to call `send()`, on the same short way, in both builds."""

from __future__ import annotations

import asyncio
import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.native_builds import BUILDS, native_build
from tests.unit.test_send_path import World


@pytest.fixture(params=BUILDS)
def native(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The module under test and those it works with, compiled and interpreted."""
    return native_build(request.param)


def outcome(call: Any) -> Any:
    """What a call gives at once; None if it suspends."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    call.close()
    return None


def test_a_record_goes_the_short_way(native: SimpleNamespace) -> None:
    world = World(native)
    calls = native.positional_calls.PositionalCalls(world.path)
    delivery = outcome(calls.send("t", b"value", b"key", 0, 7, [("h", b"1")]))
    assert type(delivery) is native.delivery.DeliveryFuture
    named = {"value": b"2", "key": None, "partition": 0, "timestamp_ms": 8, "headers": None}
    assert type(outcome(calls.send(topic="t", **named))) is native.delivery.DeliveryFuture
    assert next(world.buffer.iter_records()) == (7, b"key", b"value", (("h", b"1"),))
    assert list(world.buffer.iter_records())[1] == (8, None, b"2", ())
    assert world.slow == []


def test_a_record_goes_the_long_way(native: SimpleNamespace) -> None:
    world = World(native)
    calls = native.positional_calls.PositionalCalls(world.path)
    for call in (calls.send, calls.send_and_wait):
        assert outcome(call("unknown", b"value", "text", 5, 1.5, ())) is None
    assert world.slow == [("unknown", b"value", "text", 5, 1.5, (), None, None)] * 2
    assert world.buffer.record_count == 0


def test_a_record_of_nothing_never_goes_the_short_way(native: SimpleNamespace) -> None:
    world = World(native)
    calls = native.positional_calls.PositionalCalls(world.path)
    for call in (calls.send, calls.send_and_wait):
        waiting = call("t")
        assert inspect.iscoroutine(waiting)
        assert world.buffer.record_count == 0
        assert outcome(waiting) is None
    assert world.slow == [("t", None, None, None, None, None, None, None)] * 2


async def test_the_acknowledgement_is_waited_for(native: SimpleNamespace) -> None:
    world = World(native)
    calls = native.positional_calls.PositionalCalls(world.path)
    world.result.succeed(41)
    metadata = await calls.send_and_wait("t", b"value", partition=0)
    assert metadata.offset == 41


def test_a_call_that_nobody_awaits_warns(native: SimpleNamespace) -> None:
    calls = native.positional_calls.PositionalCalls(World(native).path)
    with pytest.warns(RuntimeWarning, match="was never awaited: nothing was sent"):
        calls.send("t", b"value")


def test_they_are_methods_to_be_extended_and_known_as_async(native: SimpleNamespace) -> None:
    class Extended(native.positional_calls.PositionalCalls):  # type: ignore[name-defined,misc]
        def send(self, *arguments: Any, **keywords: Any) -> Any:
            return super().send("t", *arguments[1:], **keywords)

    world = World(native)
    assert outcome(Extended(world.path).send("other", b"value", partition=0)) is not None
    is_async = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    for name in ("send", "send_and_wait"):
        assert is_async(getattr(native.positional_calls.PositionalCalls, name))
