"""Scenario 67: every public coroutine cancelled wherever it waits, and at the very moment when it is woken.

`tests.simulation.scenario` plays and judges it: what was cancelled is in the log once or not at all, and the same
producer goes on.
"""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce.errors import DeliveryTimeoutError
from aioproduce.records import TopicPartition
from aioproduce.testing.simulation.cluster import host_of
from tests.simulation.case import TOPIC
from tests.simulation.scenario import Scenario
from tests.simulation.sides import AsyncioSide

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from aioproduce import Producer

MOMENTS = ("while it waits", "as it is woken")
MOST_WAITS = 40


class Cancelled:
    """Runs something in a task, and cancels that task at one of its suspensions.

    Attributes:
        waits: How often it has suspended.
        was_cancelled: Whether it came to that suspension, and ended by it.
    """

    def __init__(self, at: int, moment: str) -> None:
        self._at = at
        self._moment = moment
        self.waits = 0
        self.was_cancelled = False

    def begin(self, what: Awaitable[Any]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(what))

    async def _run(self, what: Awaitable[Any]) -> Any:
        return await self._stepwise(what)

    async def end(self) -> None:
        try:
            await self._task
        except asyncio.CancelledError:
            self.was_cancelled = True

    async def run(self, what: Awaitable[Any]) -> None:
        self.begin(what)
        await self.end()

    @coroutine
    def _stepwise(self, what: Awaitable[Any]) -> Generator[Any, Any, Any]:
        steps = what.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            self.waits += 1
            if self.waits == self._at:
                self._cancel(waited_for)
            error = None
            try:
                yield waited_for
            except BaseException as raised:
                error = raised

    def _cancel(self, waited_for: Any) -> None:
        if self._moment == MOMENTS[0] or waited_for is None:
            asyncio.get_running_loop().call_soon(self._task.cancel)
        else:
            # Before the task's own callback: woken and cancelled in one turn.
            waited_for.add_done_callback(lambda _: self._task.cancel())


def at_every_wait(play: Callable[[Cancelled], None], moment: str) -> None:
    """Play again and again, cancelled one wait later each time, until it is through before that."""
    for at in range(1, MOST_WAITS):
        cancelled = Cancelled(at, moment)
        play(cancelled)
        if cancelled.waits < at:
            assert at > 1, "it never waits: nothing was tried"
            return
    pytest.fail(f"more than {MOST_WAITS} waits")


def producer_of(scene: Scenario) -> Producer:
    assert isinstance(scene.side, AsyncioSide)
    return scene.side.producer


@pytest.mark.scenario(67, "S")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["idempotent", "acks=1"])
@pytest.mark.parametrize("room", ["topic unknown", "buffer full"])
def test_send(mode: str, room: str, moment: str) -> None:
    def play(cancelled: Cancelled) -> None:
        settings = {"batch_size": 1000, "buffer_memory": 4000, "linger_ms": 0}
        scene = Scenario(mode, "asyncio", settings, seed=cancelled._at)

        async def story() -> None:
            before = []
            if room == "buffer full":
                await scene.warm_up()
                scene.network.set_latency(scene.host(), 0.2, 0.0)
                before = await scene.send(count=4, size=900)
            entry = scene.ledger.offer(0, 900)

            async def send() -> None:
                await scene._send(entry)

            cancelled.begin(send())
            task = asyncio.ensure_future(scene.send(count=3, size=900))  # waits behind it
            await cancelled.end()
            behind = await task
            await scene.side.flush()
            if cancelled.was_cancelled:
                # It was not accepted: nobody has its future, so it must not be sent.
                assert entry.accepted_at is None
                assert scene.copies([entry]) == [0]
                del scene.ledger.entries[entry.value]
            else:
                scene.assert_acknowledged([entry], 1)
            scene.assert_acknowledged([*before, *behind], 1)

        scene.play(story())

    at_every_wait(play, moment)


@pytest.mark.scenario(67, "S")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("mode", ["idempotent", "acks=1"])
def test_send_and_wait(mode: str, moment: str) -> None:
    def play(cancelled: Cancelled) -> None:
        scene = Scenario(mode, "asyncio", seed=cancelled._at)

        async def story() -> None:
            entry = scene.ledger.offer(0, 10)
            # Cancelled while it waits for the acknowledgement, it goes all the same: once or not at all.
            scene.ledger.refuse(
                entry,
                DeliveryTimeoutError(
                    "cancelled",
                    topic_partition=TopicPartition(TOPIC, 0),
                    possibly_written=True,
                    attempts=1,
                    retriable=True,
                ),
            )
            await cancelled.run(
                producer_of(scene).send_and_wait(TOPIC, entry.value, partition=0, timestamp=entry.timestamp)
            )
            await scene.side.flush()
            assert scene.copies([entry])[0] in ((0, 1) if cancelled.was_cancelled else (1,))

        scene.play(story())

    at_every_wait(play, moment)


@pytest.mark.scenario(67, "S")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("call", ["flush", "partitions_for", "check"])
def test_calls_that_wait_for_news(call: str, moment: str) -> None:
    def play(cancelled: Cancelled) -> None:
        scene = Scenario("idempotent", "asyncio", seed=cancelled._at)

        async def story() -> None:
            entries = await scene.send(count=3) if call == "flush" else []
            arguments = (TOPIC,) if call == "partitions_for" else ()
            await cancelled.run(getattr(producer_of(scene), call)(*arguments))
            await scene.side.flush()
            scene.assert_acknowledged(entries)

        scene.play(story())

    at_every_wait(play, moment)


@pytest.mark.scenario(67, "S")
@pytest.mark.scenario(68, "S")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("timeout", [None, 3.0])
@pytest.mark.parametrize("is_reachable", [True, False])
def test_close(is_reachable: bool, timeout: float | None, moment: str) -> None:
    def play(cancelled: Cancelled) -> None:
        scene = Scenario("idempotent", "asyncio", seed=cancelled._at)

        async def story() -> None:
            await scene.warm_up()
            if not is_reachable:
                for broker in range(3):
                    scene.network.hold(host_of(broker))
            entries = await scene.send(count=3)
            await cancelled.run(producer_of(scene).close(timeout))
            await scene.sleep(10.0)
            assert all(len(entry.outcomes) == 1 for entry in entries)
            await producer_of(scene).close()  # nothing is left to do, and it does no harm

        scene.play(story(), is_closed=True)

    at_every_wait(play, moment)
