"""A batch's result and its futures on a real loop, with the test in the broker's place.

For the tests of `DeliveryFuture`: no producer, no socket. Each case runs on asyncio and on uvloop, some under trio,
with the compiled module and with the same source interpreted.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
import uvloop

from aioproduce.drivers.asyncio import AsyncioRuntime
from aioproduce.drivers.trio_waiting import TrioRuntime
from aioproduce.errors import BrokerRejectedError
from aioproduce.records import TopicPartition
from tests.drivers.concurrency import in_nursery, is_trio, sleep, spawn
from tests.native_builds import BUILDS, native_module

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioproduce._native._delivery_runtime import DeliveryRuntime

    Case = Callable[["Bench"], Coroutine[Any, Any, None]]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Bench:
    """The running loop, one build of `DeliveryFuture`, and what was reported of failures that nobody saw.

    Attributes:
        unobserved: `(topic, partition, error, count)` as the driver gets it.
        noise: What reached the loop's exception handler.
    """

    def __init__(self, build: str) -> None:
        self.native = native_module("delivery", build)
        self.unobserved: list[tuple[str, int, BaseException, int]] = []
        self.noise: list[dict[str, Any]] = []
        self.runtime: DeliveryRuntime
        if is_trio():
            token = trio.lowlevel.current_trio_token()
            self.runtime = TrioRuntime(
                token,
                lambda callback, argument, _: token.run_sync_soon(callback, argument),
                lambda *seen: self.unobserved.append(seen),
            )
            return
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _loop, context: self.noise.append(context))
        self.runtime = AsyncioRuntime(self.loop, lambda *seen: self.unobserved.append(seen))

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call it in the loop's next turn."""
        if is_trio():
            trio.lowlevel.current_trio_token().run_sync_soon(function, *arguments)
        else:
            self.loop.call_soon(function, *arguments)

    def call_later(self, seconds: float, function: Callable[..., object], *arguments: Any) -> None:
        """Call it then."""

        async def call() -> None:
            await sleep(seconds)
            function(*arguments)

        if is_trio():
            spawn(call())
        else:
            self.loop.call_later(seconds, function, *arguments)

    def result(self) -> Any:
        """The result of a batch."""
        return self.native.BatchResult("orders", 3, self.runtime)

    def future(self, result: Any, index: int = 0) -> Any:
        """The future of one of its records: timestamp 1000 + index, a key of 2 bytes, a value of 5."""
        return self.native.make_delivery(result, index, 1000 + index, 2, 5)

    def batch(self, count: int) -> tuple[Any, list[Any]]:
        """A result and the futures of its records."""
        result = self.result()
        return result, [self.future(result, index) for index in range(count)]


def rejection(text: str = "refused") -> BrokerRejectedError:
    """An error as the core makes them: more than its `args`."""
    return BrokerRejectedError(
        text,
        code=87,
        name="INVALID_RECORD",
        topic_partition=TopicPartition("orders", 3),
        possibly_written=False,
        attempts=2,
        retriable=False,
        record_index=4,
    )


async def turns(count: int = 5) -> None:
    """Give the loop a few turns: whatever was scheduled has run."""
    if is_trio():
        await trio.testing.wait_all_tasks_blocked()
    for _ in range(count):
        await sleep(0)


def on_each_loop(case: Case) -> Callable[[str, str], None]:
    """Make a test of a coroutine: on asyncio and uvloop with each build; what nobody expected is a failure."""
    return _on(tuple(LOOPS), case)


def on_every_loop(case: Case) -> Callable[[str, str], None]:
    """The same under trio, too: for a case that does with what `concurrency.py` has."""
    return _on((*LOOPS, "trio"), case)


def _on(loops: tuple[str, ...], case: Case) -> Callable[[str, str], None]:

    def test(loop: str, build: str) -> None:
        async def run() -> None:
            bench = Bench(build)
            await case(bench)
            gc.collect()
            await turns()
            assert bench.noise == []

        async def run_in_nursery() -> None:
            async with in_nursery():
                await run()

        if loop == "trio":
            trio.run(run_in_nursery)
            return
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(run())

    # Not functools.wraps: pytest would look for the case's own parameters.
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(test, name, getattr(case, name))
    marked: Callable[[str, str], None] = pytest.mark.parametrize("build", BUILDS)(
        pytest.mark.parametrize("loop", loops)(test)
    )
    return marked
