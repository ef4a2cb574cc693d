"""What drivers do alike with the core, on a loop that is played by hand: no event loop, no socket, no clock."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioproduce._native.stats import Windows
from aioproduce.core.effects import Close, Connect, Offload, Send
from aioproduce.drivers.compression_workers import compression_threads
from aioproduce.drivers.core_step import FOREVER, CoreStep
from aioproduce.metrics import ProducerMetrics
from aioproduce.security.mechanism import Work

if TYPE_CHECKING:
    from collections.abc import Callable


class Bug(Exception):
    pass


class HandAlarm:
    def __init__(self, came: Callable[[float], None]) -> None:
        self._came = came
        self.at = FOREVER
        self.set_to: list[float] = []

    def set(self, at: float) -> None:
        self.at = at
        self.set_to.append(at)

    def ring(self) -> None:
        at, self.at = self.at, FOREVER
        self._came(at)


class HandLoop:
    """A loop whose turns the test takes: `step()` runs the sender task to its next rest."""

    def __init__(self) -> None:
        self.instant = 100.0
        self.now = self.work_clock = lambda: self.instant
        self.is_now_exact = True
        self.call_in_loop = lambda callback: callback()
        self.make_executor = compression_threads
        self.alarms: list[HandAlarm] = []
        self.wakes = 0
        self.rests: list[bool] = []
        self.calls: list[object] = []

    def wake(self) -> None:
        self.wakes += 1

    def make_alarm(self, came: Callable[[float], None]) -> HandAlarm:
        self.alarms.append(alarm := HandAlarm(came))
        return alarm

    def connect(self, effect: Connect) -> Any:
        number = effect.connection_id
        return SimpleNamespace(
            write=lambda buffers: self.calls.append((number, buffers)),
            abort=lambda: self.calls.append((number, "abort")),
        )

    def offload(self, work: Work, ended: Callable[[object], None]) -> None:
        self.calls.append((work.what, ended))

    async def rest(self, has_work: bool) -> None:
        self.rests.append(has_work)
        await _Turn()


class _Turn:
    def __await__(self) -> Any:
        yield


class HandSender:
    """A core that says what the test puts into it, and raises where it is told to."""

    def __init__(self) -> None:
        self.effects: deque[Any] = deque()
        self.settled: deque[Any] = deque()
        self.is_closed = self.has_work = False
        self.timer_at: float | None = None
        self.connections = SimpleNamespace(in_flight=0)
        self.facts: list[tuple[Any, ...]] = []
        self.breaks = ""

    def next_effect(self, now: float) -> Any:
        return self.effects.popleft() if self.effects else None

    def next_timer(self) -> float | None:
        return self.timer_at

    def __getattr__(self, name: str) -> Callable[..., None]:
        def fact(*what: Any) -> None:
            if name == self.breaks:
                raise Bug(name)
            self.facts.append((name, *what))

        return fact


class Scene:
    def __init__(self) -> None:
        self.loop = HandLoop()
        self.sender = HandSender()
        self.settled: list[Any] = []
        self.core = CoreStep(cast(Any, self.loop), ProducerMetrics(Windows()))
        self.core.start(cast(Any, self.sender), self.settled.append)
        self.alarm, self.pulse = self.loop.alarms
        self._task = self.core.run(self.loop.rest)
        self.step()

    def step(self) -> None:
        self._task.send(None)

    def cancel(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            self._task.throw(KeyboardInterrupt())


FACTS: dict[str, Callable[[CoreStep], None]] = {
    "connection_made": lambda core: core.connected(7),
    "receive_data": lambda core: core.received(7, b"data"),
    "writable": lambda core: core.written(7),
    "connection_lost": lambda core: core.disconnected(7, None),
    "compressed": lambda core: core.compressed([("batch", b"bytes")]),  # type: ignore[list-item]
    "compression_failed": lambda core: core.compressed([("batch", Bug())]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_is_told_and_one_that_raises_is_the_death(fact: str) -> None:
    scene = Scene()
    FACTS[fact](scene.core)
    (told,) = scene.sender.facts
    assert (told[0], told[-1]) == (fact, 100.0)
    scene.sender.breaks = fact
    wakes = scene.loop.wakes
    FACTS[fact](scene.core)
    assert scene.loop.wakes == wakes + 1
    with pytest.raises(Bug, match=fact):
        scene.step()
    assert scene.core.is_dead
    scene.sender.breaks = ""
    FACTS[fact](scene.core)
    assert scene.sender.facts == [told]


def test_effects_are_carried_out_in_their_order_and_on_what_is_there() -> None:
    scene = Scene()
    connect = Connect(7, "h", 1, 1.0)
    scene.sender.effects.extend([Send(7, [b"early"]), connect, Send(7, [b"a"]), Close(7), Close(8)])
    scene.sender.settled.append("result")
    scene.step()
    assert scene.loop.calls == [(7, [b"a"]), (7, "abort")]
    assert scene.settled == ["result"]
    scene.core.disconnected(7, None)
    scene.sender.effects.append(Send(7, [b"late"]))
    scene.step()
    assert len(scene.loop.calls) == 2


def test_what_is_done_elsewhere_is_told_under_its_ticket() -> None:
    scene = Scene()
    scene.sender.effects.append(Offload(3, Work(bytes, what="a hash")))
    scene.step()
    ((what, ended),) = cast("list[Any]", scene.loop.calls)
    assert what == "a hash"
    ended(b"made")
    assert scene.sender.facts == [("offloaded", 3, b"made", 100.0)]


def test_the_end_of_the_core_ends_the_task() -> None:
    scene = Scene()
    scene.sender.is_closed = True
    with pytest.raises(StopIteration):
        scene.step()
    assert not scene.core.is_dead


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_cancelled_task_is_a_death_unless_it_was_killed(is_killed: bool) -> None:
    scene = Scene()
    scene.core.is_killed = is_killed
    scene.cancel()
    assert scene.core.is_dead is not is_killed
    scene.core.connected(7)
    assert bool(scene.sender.facts) is is_killed


def test_the_alarm_is_set_anew_only_for_an_earlier_instant() -> None:
    scene = Scene()
    for scene.sender.timer_at in (105.0, 107.0, None, 103.0):
        scene.step()
    assert scene.alarm.set_to == [105.0, 103.0]
    scene.sender.timer_at = 102.0
    scene.core.received(7, b"data")  # the task sleeps on, but not as long
    assert scene.alarm.set_to[-1] == 102.0
    woken = scene.loop.wakes
    scene.alarm.ring()
    assert (woken, scene.loop.wakes, scene.core.woken_at) == (0, 1, 102.0)


def test_a_timer_that_is_due_is_handled() -> None:
    scene = Scene()
    scene.sender.timer_at = 105.0
    scene.step()
    scene.loop.instant = 105.0
    scene.step()
    assert scene.sender.facts == [("handle_timer", 105.0)]


def test_an_answer_wakes_the_task_only_if_it_leaves_work() -> None:
    scene = Scene()
    scene.core.received(7, b"data")
    woken = [scene.loop.wakes]
    scene.sender.has_work = True
    scene.core.received(7, b"data")
    assert [*woken, scene.loop.wakes] == [0, 1]
    scene.step()
    assert scene.loop.rests == [False, True]


def test_the_pulse_beats_while_answers_are_awaited() -> None:
    scene = Scene()
    assert not scene.pulse.set_to
    scene.sender.connections.in_flight = 1
    scene.step()
    scene.step()
    assert scene.pulse.set_to == [100.1]
    scene.loop.instant = 100.1
    scene.pulse.ring()
    assert scene.pulse.set_to == pytest.approx([100.1, 100.2])
    scene.sender.connections.in_flight = 0
    scene.pulse.ring()
    assert scene.pulse.at == FOREVER
