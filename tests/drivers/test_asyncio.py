"""What is asyncio's own about its driver: a process without trio, and bounds on virtual time.

What every loop does alike is in `test_producer_*`.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import pytest
import uvloop

from aioproduce import Producer
from aioproduce.drivers.asyncio import AsyncioDriver, AsyncioRuntime, _Alarm, _Connection
from aioproduce.drivers.running_loop import asyncio_lookup
from aioproduce.errors import ForcedCloseError
from aioproduce.testing import FakeCluster
from aioproduce.testing.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def test_the_loop_is_found_in_a_process_that_never_imports_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "trio.lowlevel", raising=False)
    lookup = asyncio_lookup()
    assert lookup() is None

    async def main() -> bool:
        return lookup() is asyncio.get_running_loop()

    assert asyncio.run(main())


class _Forgetful(asyncio.Transport):
    """As CPython 3.13.0's: `writelines()` keeps what the socket does not take, and does not pause the protocol."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._held = 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._held > (high or 0):
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._held

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._held += sum(map(len, list_of_data))

    def drain(self) -> None:
        self._held = 0
        self._protocol.resume_writing()


def test_a_transport_that_forgets_to_pause_is_reminded() -> None:
    written: list[int] = []
    core = SimpleNamespace(
        written=written.append, written_at_once=lambda _: written.append(-1), connected=lambda _: None
    )
    config, runtime = cast(Any, "no configuration, as there is no socket"), cast(Any, "nobody waits")
    connection = _Connection(cast(Any, core), 7, config, runtime)
    transport = _Forgetful(connection)
    connection.connection_made(transport)
    connection.write([b"abc", b"d"])
    assert written == []
    transport.drain()
    assert written == [7]


async def acknowledged(done: Callable[[], object], **settings: Any) -> asyncio.Future[Any]:
    """Have a record acknowledged, whose delivery has a done-callback."""
    async with (
        FakeCluster(topics={"t": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, **settings) as producer,
    ):
        await producer.send_and_wait("t", b"warm")
        delivery = await producer.send("t", b"v")
        delivery.add_done_callback(lambda _: done())
        await delivery
        await asyncio.sleep(0)
        return delivery


LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_task_is_woken_by_the_callback_that_brings_the_answer(loop: Any) -> None:
    """The loop has no turn in between: nothing that was made ready by the answer's callback runs before."""
    order: list[str] = []

    class Heard(_Connection):
        def data_received(self, data: bytes) -> None:
            order.clear()
            asyncio.get_running_loop().call_soon(order.append, "next turn")
            super().data_received(data)
            order.append("heard")

    with patch("aioproduce.drivers.asyncio._Connection", Heard), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(acknowledged(lambda: order.append("woken")))
    assert order[:2] == ["woken", "heard"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_error_that_ends_the_loop_ends_it_and_not_the_connection(loop: Any, error: BaseException) -> None:
    def end() -> None:
        raise error

    with pytest.raises(type(error)), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(acknowledged(end))


def test_only_the_first_callback_is_held_back_and_only_until_it_is_run() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        runtime = AsyncioRuntime(loop, lambda *_: None)
        ran: list[str] = []
        runtime.hold()
        for name in ("first", "second"):
            runtime.call_soon(ran.append, name, None)
        assert ran == []
        runtime.run_held()
        assert ran == ["first"]
        runtime.run_held()
        runtime.call_soon(ran.append, "third", None)
        assert ran == ["first"]
        await asyncio.sleep(0)
        runtime.is_quiet = True
        runtime.hold()
        runtime.call_soon(ran.append, "to nobody", None)
        runtime.run_held()
        return ran

    assert asyncio.run(main()) == ["first", "second", "third"]


def test_what_is_held_back_runs_also_if_a_signal_interrupts_the_core() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime(asyncio.get_running_loop(), lambda *_: None)
        ran: list[str] = []

        def received(connection_id: int, data: bytes) -> None:
            runtime.call_soon(ran.append, "woken", None)
            raise KeyboardInterrupt

        core = cast(Any, SimpleNamespace(received=received))
        connection = _Connection(core, 7, cast(Any, "no configuration"), runtime)
        with pytest.raises(KeyboardInterrupt):
            connection.data_received(b"answer")
        assert ran == ["woken"]
        runtime.call_soon(ran.append, "next turn", None)
        await asyncio.sleep(0)
        assert ran == ["woken", "next turn"]

    asyncio.run(main())


def test_a_turn_is_told_of_by_the_step_that_is_due_or_by_the_next_turn() -> None:
    async def main() -> list[str]:
        order: list[str] = []
        async with FakeCluster(topics={"t": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v")
            driver = producer._life.driver
            assert isinstance(driver, AsyncioDriver)
            loop = asyncio.get_running_loop()
            loop.call_soon(order.append, "before")
            driver.on_turn(lambda: order.append("no step"))
            await asyncio.sleep(0)
            driver.wake()
            loop.call_soon(order.append, "after the step")
            driver.on_turn(lambda: order.append("step"))
            await asyncio.sleep(0)
        return order

    assert asyncio.run(main()) == ["before", "no step", "step", "after the step"]


def test_an_alarm_that_is_cancelled_does_not_ring() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        at, rung, have_rung = loop.time(), list[float](), asyncio.Event()
        cancelled = _Alarm(loop, rung.append)
        cancelled.set(at)
        cancelled.cancel()
        _Alarm(loop, lambda _: have_rung.set()).set(at)
        await have_rung.wait()
        assert rung == []

    asyncio.run(main())


def test_a_kill_leaves_no_task_that_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though giving up takes it some turns of the loop."""

    async def main() -> None:
        connecting = asyncio.Event()

        async def create_connection(*where: object) -> None:
            connecting.set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        producer = Producer("localhost:9092")
        await producer.start()
        await connecting.wait()
        await producer._life.driver.kill()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("patience", [0.0, 0.05, 0.5])
def test_a_close_takes_its_time_out_and_no_longer(patience: float) -> None:
    """The brokers answer nothing any more, so what is on its way is waited for until then."""
    simulation = Simulation(1, topics={"t": 1}, auto_create_topics=False)

    async def story() -> float:
        producer = Producer(simulation.bootstrap_servers, linger_ms=0)
        await producer.start()
        await producer.send_and_wait("t", b"before")
        for broker in range(3):
            simulation.cluster.model.faults.stall(broker)
        delivery = await producer.send("t", b"v")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await producer.close(patience)
        assert isinstance(delivery.exception(), ForcedCloseError)
        return loop.time() - began

    assert simulation.run(story()) == pytest.approx(patience, abs=0.01)
