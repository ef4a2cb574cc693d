"""Ten minutes without a network, in virtual time: the application sees no error, and no `send()` takes longer.

The producer, the queue, its log and the disk are the real ones. The writer's thread is a callback of the simulated
loop, and what else runs in threads runs at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from aioproduce.spool import SpooledProducer
from aioproduce.spool.writer import SpoolWriter
from aioproduce.spool.writer_messages import Settle
from aioproduce.testing.simulation import Simulation

_TICK = 1.0
_BEFORE, _CUT, _AFTER = 30.0, 600.0, 30.0


class _WriterInTheLoop(SpoolWriter):
    """A writer whose thread is a callback of the loop."""

    def start(self, ended: Callable[[BaseException | None], None]) -> None:
        self._ended = ended

    def submit(self, appends: Any) -> None:
        super().submit(appends)
        asyncio.get_running_loop().call_soon(self._work)

    def settle(self, settle: Settle) -> None:
        super().settle(settle)
        asyncio.get_running_loop().call_soon(self._work)

    def close(self) -> None:
        super().close()
        asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        while self._appends or self._settles:
            self._turn()
        if self._is_closing:
            self._close_logs()
            self._ended(None)


async def _at_once(function: Callable[..., Any], *arguments: Any, abandon_on_cancel: bool = False) -> Any:
    return function(*arguments)


def _value(number: int) -> bytes:
    return b"%d %s" % (number, hashlib.sha256(b"%d" % number).digest())


def _run(rate: int, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    monkeypatch.setattr("aioproduce.spool.spool_queue.SpoolWriter", _WriterInTheLoop)
    monkeypatch.setattr(anyio.to_thread, "run_sync", _at_once)
    simulation = Simulation(7, topics={"orders": 3})
    hosts = [f"broker-{number}" for number in range(3)]
    waits: dict[bool, list[float]] = {True: [], False: []}
    count = int((_BEFORE + _CUT + _AFTER) * rate)

    async def service() -> None:
        producer = SpooledProducer(
            simulation.bootstrap_servers, directory=folder / "spool", sync="os", **settings
        )
        await producer.start()
        is_cut = False

        async def call(number: int) -> None:
            began, was_cut = simulation.clock.now, is_cut
            await producer.send("orders", _value(number))
            waits[was_cut].append(simulation.clock.now - began)

        for tick in range(round((_BEFORE + _CUT + _AFTER) / _TICK)):
            if tick == round(_BEFORE / _TICK):
                is_cut = True
                for host in hosts:
                    simulation.network.hold(host)
            if tick == round((_BEFORE + _CUT) / _TICK):
                assert (producer.backlog()["orders"].records or 0) >= int(_CUT * rate)
                is_cut = False
                for host in hosts:
                    simulation.network.release(host)
            first = round(tick * _TICK * rate)
            await asyncio.gather(*map(call, range(first, round((tick + 1) * _TICK * rate))))
            await asyncio.sleep(_TICK)
        await producer.flush()
        assert producer.backlog()["orders"].records == 0
        await producer.close()

    simulation.run(service())
    assert (len(waits[False]), len(waits[True])) == (count - int(_CUT * rate), int(_CUT * rate))
    assert max(waits[True]) <= max(waits[False])
    found = simulation.cluster.values("orders")
    assert found.keys() == {_value(number) for number in range(count)}
    assert found.total() == count


@pytest.mark.parametrize("direct", [False, True])
def test_ten_minutes_without_a_network_reach_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    _run(10, tmp_path, monkeypatch, direct=direct)


@pytest.mark.extended("the rate of a busy service: 3,300,000 records")
@pytest.mark.parametrize("direct", [False, True])
def test_ten_minutes_at_5_000_records_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    _run(5_000, tmp_path, monkeypatch, direct=direct, linger_ms=5)
