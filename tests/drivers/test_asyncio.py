"""What is asyncio's own about its driver: a process without trio, and bounds on virtual time.

What every loop does alike is in `test_producer_*`.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioproduce import Producer
from aioproduce.drivers.asyncio import _Alarm, _Connection
from aioproduce.drivers.running_loop import asyncio_lookup
from aioproduce.errors import ForcedCloseError
from aioproduce.testing.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    connection = _Connection(cast(Any, core), 7, cast(Any, "no configuration, as there is no socket"))
    transport = _Forgetful(connection)
    connection.connection_made(transport)
    connection.write([b"abc", b"d"])
    assert written == []
    transport.drain()
    assert written == [7]


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
