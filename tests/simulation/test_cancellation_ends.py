"""What a producer runs on ends under it: its loop, its tasks, its sender; and callbacks that do what they like.

Everybody who waits in a call is told, every accepted record is settled, memory comes back, and nothing is left. The
scene, and what is judged, is that of `cancelling`.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from aioproduce.compression import codec_for
from aioproduce.core.effects import Close, Compress, Connect, Send
from aioproduce.core.sender import Sender
from aioproduce.drivers.core_step import CoreStep
from aioproduce.errors import (
    BufferExhaustedError,
    DeliveryError,
    ForcedCloseError,
    PartialSendError,
    ProducerStateError,
    WrongEventLoopError,
)
from aioproduce.testing.simulation import VirtualClock
from tests.simulation.cancelling import HOST, LATE, TOPIC, Scene
from tests.simulation.watching import note_exception, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

DIED = "was left open: the event loop cancelled its tasks"
FULL: dict[str, Any] = {"buffer_memory": 1_600}
COMPRESSED: dict[str, Any] = {"compression_type": "gzip", "batch_size": 20_000, "buffer_memory": 80_000}
PLAIN: dict[str, Any] = FULL | {"enable_idempotence": False, "retries": 0}
BUSY = {"full buffer": FULL, "no retries": PLAIN, "compressing": COMPRESSED}


@pytest.fixture(autouse=True)
def quick_collections() -> None:
    """Each run ends with a collection of its own garbage: what was there before need not be looked at."""
    gc.freeze()


class Crowd:
    """Somebody in every call of the producer, each kept waiting by a broker that does not answer."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.tasks: list[asyncio.Task[Any]] = []

    async def gather(self, *, closing: bool = False) -> None:
        scene, producer = self.scene, self.scene.producer
        await producer.partitions_for(TOPIC)
        scene.simulation.network.hold(HOST)
        size = producer.config.batch_size - 150
        deliveries = [await scene.send("filler", size=size) for _ in range(4)]
        calls: dict[str, Coroutine[Any, Any, Any]] = {
            "send": scene.send("first", size=size),
            "send too": scene.send("second", size=size),
            "send_many": producer.send_many(TOPIC, [b"many:0:" + bytes(size)], partition=0),
            "send to an unknown topic": producer.send(LATE, b"late:0:"),
            "send_and_wait": producer.send_and_wait(LATE, b"late:1:"),
            "flush": producer.flush(),
            "partitions_for": producer.partitions_for(LATE),
            "check": producer.check(60),
            "await": _awaited(deliveries[0]),
        }
        if closing:
            calls["close"] = producer.close()
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(call, name=name) for name, call in calls.items()]

    async def judge(self, seconds: float) -> None:
        """All come back in time, with a result or an error that says why."""
        await self.scene.until(lambda: all(task.done() for task in self.tasks), seconds)
        for task in self.tasks:
            if not task.done():
                self.scene.accuse("L", f"{task.get_name()} still waits")
                task.cancel()
            elif not task.cancelled():
                error = task.exception()
                if isinstance(error, PartialSendError):
                    error = error.__cause__
                if not isinstance(error, ProducerStateError | DeliveryError | None):
                    self.scene.accuse("L", f"{task.get_name()} got {error!r}")


async def _awaited(delivery: Any) -> Any:
    return await delivery


@contextmanager
def at_turn(number: int, act: Callable[[], object]) -> Iterator[list[int]]:
    """Act in front of the nth turn of the loop from now on."""
    step = VirtualClock.step
    turns = [0]

    def counting_step(clock: VirtualClock, until: float) -> None:
        turns[0] += 1
        if turns[0] == number:
            act()
            until = clock.now
        step(clock, until)

    with patch.object(VirtualClock, "step", counting_step):
        yield turns


def sender_task() -> asyncio.Task[Any]:
    [task] = [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproduce sender")]
    return task


async def until_nothing_is_left(scene: Scene, before: set[asyncio.Task[Any]]) -> None:
    if not await scene.until(lambda: asyncio.all_tasks() == before, 10.0):
        scene.accuse("L", f"tasks are left: {asyncio.all_tasks() - before}")
    if not await scene.until(lambda: not scene.simulation.network.connections, 10.0):
        scene.accuse("L", f"connections are left: {list(scene.simulation.network.connections)}")
    if not await scene.until(lambda: scene.producer.outstanding_bytes == 0, 10.0):
        scene.accuse("M", f"{scene.producer.outstanding_bytes} bytes did not come back")


def judge(scene: Scene, *allowed: str) -> None:
    """As `Scene.judge()`, but that these words may be in a log."""
    scene.troubles[:] = [each for each in scene.troubles if not any(words in each for words in allowed)]
    assert scene.judge() == []


# The sender's task


@pytest.mark.parametrize("closing", [False, True], ids=["", "closing"])
@pytest.mark.parametrize("settings", BUSY.values(), ids=BUSY)
@pytest.mark.parametrize("released", [False, True], ids=["black hole", "released"])
def test_the_sender_is_cancelled(settings: dict[str, Any], closing: bool, released: bool) -> None:
    for turn in range(1, 30):
        scene = Scene(settings)

        async def main(scene: Scene = scene, turn: int = turn) -> None:
            before = asyncio.all_tasks()
            await scene.producer.start()
            sender = sender_task()
            crowd = Crowd(scene)
            await crowd.gather(closing=closing)
            if released:
                scene.plan(0.0, scene.simulation.network.release, HOST)
            with at_turn(turn, sender.cancel):
                await scene.until(sender.done, 5.0)
            await crowd.judge(0.01 if sender.cancelled() else 70.0)
            async with asyncio.timeout(10):
                await scene.producer.close()
            await until_nothing_is_left(scene, before)

        scene.run(main())
        judge(scene, DIED)


class Bug(Exception):
    pass


FACTS = [
    "next_effect",
    "next_timer",
    "handle_timer",
    "connection_made",
    "receive_data",
    "connection_lost",
    "writable",
    "compressed",
    "compression_failed",
]


@contextmanager
def buggy(
    owner: type, name: str, number: int, *, late: bool, only: type | None = None
) -> Iterator[list[int]]:
    """The nth call of a method raises, before or after it did its work."""
    method = getattr(owner, name)
    calls = [0]

    def raising(self: Any, *arguments: Any) -> Any:
        if only is None or isinstance(arguments[0], only):
            calls[0] += 1
            if calls[0] == number:
                if late:
                    method(self, *arguments)
                raise Bug(name)
        return method(self, *arguments)

    with ExitStack() as patches:
        patches.enter_context(patch.object(owner, name, raising))
        if name == "compression_failed":
            patches.enter_context(patch.object(type(codec_for("gzip")), "compress", _no_compression))
        yield calls


def _no_compression(*_: object) -> bytes:
    raise RuntimeError("no compression today")


BUGS = [
    *(pytest.param(Sender, name, None, id=name) for name in FACTS),
    *(
        pytest.param(CoreStep, "_carry_out", kind, id=kind.__name__)
        for kind in (Connect, Send, Close, Compress)
    ),
]


@pytest.mark.patches_core
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name", "only"), BUGS)
def test_a_bug_in_the_core(owner: type, name: str, only: type | None, late: bool) -> None:
    """Wherever it strikes, nobody waits for ever, and it is told."""
    strikes = 0
    for number in (1, 2, 3, 5, 8):
        scene = Scene(COMPRESSED | {"delivery_timeout_ms": 20_000, "max_block_ms": 20_000})
        calls = [0]

        async def main(scene: Scene = scene, number: int = number, calls: list[int] = calls) -> None:
            before = asyncio.all_tasks()
            with buggy(owner, name, number, late=late, only=only) as count:
                await scene.producer.start()
                crowd = Crowd(scene)
                with suppress(ProducerStateError):
                    await crowd.gather()
                scene.plan(0.5, scene.simulation.network.release, HOST)
                scene.plan(1.0, scene.simulation.network.reset, HOST)
                scene.plan(1.5, scene.create_late)
                if crowd.tasks:
                    await crowd.judge(70.0)
                async with asyncio.timeout(70):
                    await scene.producer.close()
                calls[0] = count[0]
            await until_nothing_is_left(scene, before)

        scene.run(main())
        if calls[0] >= number:
            strikes += 1
            assert any("Bug" in each for each in scene.troubles), scene.troubles
        judge(scene, "Bug")
    assert strikes


# The loop


def _all_are_settled(scene: Scene) -> None:
    for fate in scene.fates:
        if fate.accepted_at is not None and len(fate.told) != 1:
            scene.accuse("L", f"a record of {fate.writer} was settled {len(fate.told)} times")


@pytest.mark.parametrize("closing", [False, True], ids=["", "closing"])
@pytest.mark.parametrize("settings", BUSY.values(), ids=BUSY)
@pytest.mark.parametrize("released", [False, True], ids=["black hole", "released"])
def test_the_program_ends(settings: dict[str, Any], closing: bool, released: bool) -> None:
    """As at the end of `asyncio.run()`: every task is cancelled, the sender's among them, then the loop closed."""
    for turn in range(1, 24):
        scene = Scene(settings)
        crowd = Crowd(scene)

        async def main(scene: Scene = scene, crowd: Crowd = crowd, turn: int = turn) -> None:
            await scene.producer.start()
            await crowd.gather(closing=closing)
            if released:
                scene.plan(0.0, scene.simulation.network.release, HOST)
            ended = asyncio.get_running_loop().create_future()
            with at_turn(turn, lambda: ended.set_result(None)):
                await ended

        scene.run(main())
        _all_are_settled(scene)
        assert all(task.done() for task in crowd.tasks)
        assert scene.producer.outstanding_bytes == 0
        judge(scene, DIED, "was cancelled and gave up")


def test_the_loop_stops_and_goes_on() -> None:
    """While it stands still nothing happens, and then everything does."""
    for turn in range(1, 24, 3):
        scene = Scene(FULL)
        crowd = Crowd(scene)

        async def begin(scene: Scene = scene, crowd: Crowd = crowd) -> None:
            await scene.producer.start()
            await crowd.gather()
            scene.plan(0.5, scene.simulation.network.release, HOST)
            scene.plan(0.5, scene.create_late)

        async def end(scene: Scene = scene, crowd: Crowd = crowd) -> None:
            await crowd.judge(40.0)
            await scene.producer.close()
            await until_nothing_is_left(scene, {task for task in [asyncio.current_task()] if task})

        with watching(scene.troubles), asyncio.Runner(loop_factory=scene.simulation._make_loop) as runner:
            loop = runner.get_loop()
            loop.set_exception_handler(partial(note_exception, scene.troubles))
            runner.run(begin())
            with at_turn(turn, loop.stop):
                loop.run_forever()
            with pytest.raises(WrongEventLoopError):
                scene.producer.try_send(TOPIC, b"stopped:0:")
            runner.run(end())
        assert all(task.exception() is None for task in crowd.tasks)
        judge(scene)


def _close_the_loop(settings: dict[str, Any], turn: int, troubles: list[str]) -> None:
    scene = Scene(settings)
    producer = scene.producer

    async def begin() -> list[asyncio.Task[Any]]:
        await producer.start()
        await producer.partitions_for(TOPIC)
        scene.simulation.network.hold(HOST)
        value = bytes(producer.config.batch_size - 150)
        # Nobody awaits these or is called back: a delivery that is never settled outlives who waits for it.
        for _ in range(4):
            await producer.send(TOPIC, value, partition=0)
        scene.plan(0.0, scene.simulation.network.release, HOST)
        calls = [
            *(producer.send(TOPIC, value) for _ in range(3)),
            producer.send(LATE, value),
            producer.flush(),
        ]
        return [asyncio.get_running_loop().create_task(call) for call in calls]

    loop = scene.simulation._make_loop()
    loop.set_exception_handler(partial(note_exception, troubles))
    tasks = loop.run_until_complete(begin())
    with at_turn(turn, loop.stop):
        loop.run_forever()
    loop.close()
    assert not all(task.done() for task in tasks)
    with pytest.raises(WrongEventLoopError):
        producer.try_send(TOPIC, b"closed")


@pytest.mark.parametrize("settings", BUSY.values(), ids=BUSY)
def test_the_loop_is_closed_under_it(settings: dict[str, Any]) -> None:
    """One line says what is lost; asyncio says the rest, of the tasks of those who called."""
    for turn in range(1, 24):
        troubles: list[str] = []
        with watching(troubles):
            _close_the_loop(settings, turn, troubles)
        destroyed = [each for each in troubles if "Task was destroyed but it is pending" in each]
        assert destroyed  # they did end here, not in some later collection
        assert not any("aioproduce sender" in each for each in destroyed)
        # The second is of a task that had not begun.
        [told] = [each for each in troubles if each not in destroyed and "never awaited" not in each]
        assert "was left open: the event loop was closed" in told
        assert " accepted record(s) were not acknowledged and are lost: " in told


# Close


@pytest.mark.scenario(68, "S")
@pytest.mark.parametrize("timeout", [0, 0.5, 5])
@pytest.mark.parametrize("settings", BUSY.values(), ids=BUSY)
def test_close_in_a_black_hole(settings: dict[str, Any], timeout: float) -> None:
    """It ends when its time is over, and so does everybody else; what is not acknowledged fails as that."""
    scene = Scene(settings)
    crowd = Crowd(scene)

    async def main() -> None:
        before = asyncio.all_tasks()
        await scene.producer.start()
        await crowd.gather()
        await asyncio.sleep(0.1)
        began_at = scene.now
        await scene.producer.close(timeout)
        # Up to a tenth of a second more, for a batch that is being compressed.
        assert timeout <= scene.now - began_at < timeout + 0.1
        await crowd.judge(0.01)
        await until_nothing_is_left(scene, before)

    scene.run(main())
    fillers = [fate for fate in scene.fates if fate.writer == "filler"]
    assert len(fillers) == 4
    for fate in fillers:
        [(_, metadata, error)] = fate.told
        assert isinstance(error, ForcedCloseError)
        assert metadata.offset == -1
    judge(scene)


# Task groups


@pytest.mark.parametrize("settings", BUSY.values(), ids=BUSY)
def test_fifty_that_wait_for_memory_are_cancelled(settings: dict[str, Any]) -> None:
    """At every turn while the memory is handed out: nobody's place in the line and nobody's bytes are lost."""

    class SiblingFailed(Exception):
        pass

    for turn in range(1, 40, 2):
        scene = Scene(settings)
        size = scene.producer.config.batch_size - 150
        accepted: list[str] = []

        async def send(
            writer: str, scene: Scene = scene, size: int = size, accepted: list[str] = accepted
        ) -> None:
            await scene.send(writer, size=size)
            accepted.append(writer)

        async def main(scene: Scene = scene, turn: int = turn, send: Any = send, size: int = size) -> None:
            before = asyncio.all_tasks()
            await scene.producer.start()
            await scene.producer.partitions_for(TOPIC)
            scene.simulation.network.hold(HOST)
            for _ in range(4):
                await scene.send("filler", size=size)
            failing = asyncio.get_running_loop().create_future()

            async def sibling() -> None:
                await failing

            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(sibling())
                    for number in range(50):
                        group.create_task(send(f"w{number}"))
                    await asyncio.sleep(0.01)
                    for number in range(3):
                        scene.spawn(send(f"outside{number}"), f"outside {number}")
                    await asyncio.sleep(0.01)
                    scene.simulation.network.release(HOST)
                    with at_turn(turn, lambda: failing.set_exception(SiblingFailed())):
                        await asyncio.wait([failing])
            except* SiblingFailed:
                pass
            async with asyncio.timeout(20):
                await asyncio.gather(*scene.neighbours)
                await scene.send("after")
                await scene.producer.flush()
            scene.judge_memory()
            await scene.producer.close()
            await until_nothing_is_left(scene, before)

        scene.run(main())
        written = [value.split(b":")[0].decode() for *_, value in scene.log()]
        assert written == ["filler"] * 4 + accepted + ["after"]
        assert accepted[-3:] == ["outside0", "outside1", "outside2"]
        judge(scene)


# Callbacks


def _raise(error: BaseException) -> None:
    raise error


def _try_send(crowd: Crowd) -> None:
    with suppress(ProducerStateError, BufferExhaustedError):
        crowd.scene.producer.try_send(TOPIC, crowd.scene.value("callback", 10), partition=0)


def _in_a_task(crowd: Crowd, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    crowd.tasks.append(asyncio.get_running_loop().create_task(make(), name="of the callback"))


def _find_no_task(_: Crowd) -> None:
    assert asyncio.current_task() is None  # so no callback can cancel the sender's


CALLBACKS: dict[str, Callable[[Crowd], object]] = {
    "raises": lambda _: _raise(ValueError("of a callback")),
    "raises CancelledError": lambda _: _raise(asyncio.CancelledError("of a callback")),
    "would cancel the task that it runs in": _find_no_task,
    "cancels all who wait": lambda crowd: [task.cancel() for task in crowd.tasks],
    "sends": _try_send,
    "sends in a task": lambda crowd: _in_a_task(crowd, lambda: crowd.scene.send("callback", size=10)),
    "flushes in a task": lambda crowd: _in_a_task(crowd, crowd.scene.producer.flush),
    "closes": lambda crowd: _in_a_task(crowd, crowd.scene.producer.close),
    "closes by force": lambda crowd: _in_a_task(crowd, partial(crowd.scene.producer.close, 0)),
}


@pytest.mark.parametrize("act", CALLBACKS.values(), ids=CALLBACKS)
@pytest.mark.parametrize("settings", BUSY.values(), ids=BUSY)
def test_a_callback(settings: dict[str, Any], act: Callable[[Crowd], object]) -> None:
    scene = Scene(settings)
    crowd = Crowd(scene)
    calls: list[object] = []

    def callback(*outcome: object) -> None:
        calls.append(outcome)
        act(crowd)

    async def main() -> None:
        before = asyncio.all_tasks()
        await scene.producer.start()
        await scene.producer.partitions_for(TOPIC)
        await scene.producer.send(TOPIC, scene.value("told", 10), partition=0, on_delivery=callback)
        await crowd.gather()
        scene.plan(0.5, scene.simulation.network.release, HOST)
        scene.plan(0.5, scene.create_late)
        await crowd.judge(70.0)
        async with asyncio.timeout(70):
            await scene.producer.close()
        await until_nothing_is_left(scene, before)

    scene.run(main())
    assert len(calls) == 1
    judge(scene, "of a callback")
