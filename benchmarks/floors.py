"""The limits of every client here: the loop's lateness, its tasks, and the bytes that it can move over loopback.

Called in a worker process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

from benchmarks.cases import Case, Outcome
from benchmarks.clients.measuring import run
from benchmarks.latency import RATE
from benchmarks.loop_clock import LoopWatch, Ticks, percentiles
from benchmarks.process import cpu_seconds

# A request of ours: a small head, and a full batch of each of six partitions behind a few bytes.
_REQUEST: list[bytes | memoryview] = [b"h" * 100]
for _ in range(6):
    _REQUEST += [b"p" * 20, memoryview(bytes(65536))]
_SINK = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
buffer = bytearray(1 << 20)
while connection.recv_into(buffer):
    pass
"""


def stall(case: Case, bootstrap_servers: str) -> Outcome:
    """Measure the lateness of an idle loop: the machine's share."""

    async def turn() -> Outcome:
        with LoopWatch() as watch:
            until = time.perf_counter() + case.options["seconds"]
            while time.perf_counter() < until:  # noqa: ASYNC110  # turning is what is measured
                await asyncio.sleep(0)
        return Outcome(figures=watch.figures())

    outcome: Outcome = run(case, turn())
    return outcome


def latency(case: Case, bootstrap_servers: str) -> Outcome:
    """Measure how late an asyncio client learns that a record is due: its latency before it can act."""

    async def notice() -> list[float]:
        with Ticks(1 / RATE) as ticks:
            late = []
            for tick in range(case.records + RATE):
                await ticks.wait(tick)
                late.append(time.perf_counter() - ticks.due(tick))
        return late[RATE:]

    return Outcome(figures=percentiles("latency", run(case, notice())))


def parking(case: Case, bootstrap_servers: str) -> Outcome:
    """Measure tasks that wait, each alone, and are all woken together, again and again: no client, no socket."""
    return _parking_under_trio(case) if case.loop == "trio" else run(case, _parking(case))


async def _parking(case: Case) -> Outcome:
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[None]] = []
    tasks = int(case.options["tasks"])

    async def one() -> None:
        for _ in range(case.records // tasks):
            waiting.append(future := loop.create_future())
            await future

    async def wake() -> None:
        nonlocal waiting
        for _ in range(case.records // tasks):
            while len(waiting) < tasks:  # noqa: ASYNC110  # the loop's turns are what is measured
                await asyncio.sleep(0)
            woken, waiting = waiting, []
            for future in woken:
                future.set_result(None)

    began, cpu = time.perf_counter(), cpu_seconds()
    await asyncio.gather(wake(), *(one() for _ in range(tasks)))
    return Outcome(records=case.records, seconds=time.perf_counter() - began, cpu_seconds=cpu_seconds() - cpu)


def _parking_under_trio(case: Case) -> Outcome:
    import trio

    waiting: list[trio.lowlevel.Task] = []
    tasks = int(case.options["tasks"])

    async def one() -> None:
        for _ in range(case.records // tasks):
            waiting.append(trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(lambda _raise: trio.lowlevel.Abort.FAILED)

    async def main() -> Outcome:
        nonlocal waiting
        began, cpu = time.perf_counter(), cpu_seconds()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(one)
            for _ in range(case.records // tasks):
                while len(waiting) < tasks:
                    await trio.lowlevel.checkpoint()
                woken, waiting = waiting, []
                for task in woken:
                    trio.lowlevel.reschedule(task)
        return Outcome(
            records=case.records, seconds=time.perf_counter() - began, cpu_seconds=cpu_seconds() - cpu
        )

    return trio.run(main)


class _Writer(asyncio.Protocol):
    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport's children.
        self.transport = transport  # type: ignore[assignment]  # as said
        self.may_write.set()

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()


def loopback(case: Case, bootstrap_servers: str) -> Outcome:
    """Measure `transport.writelines` of requests like ours to a process that discards them, in 1 KB records."""
    with subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True) as sink:
        try:
            others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
            if others:
                os.sched_setaffinity(sink.pid, others)
            assert sink.stdout is not None
            port = int(sink.stdout.readline())
            outcome: Outcome = run(case, _write(port, case.options["seconds"]))
        finally:
            sink.kill()
    return outcome


async def _write(port: int, seconds: float) -> Outcome:
    transport, writer = await asyncio.get_running_loop().create_connection(_Writer, "127.0.0.1", port)
    # The first requests open the window.
    for _ in range(20):
        transport.writelines(_REQUEST)
        await writer.may_write.wait()
    size, sent = sum(map(len, _REQUEST)), 0
    began, cpu = time.perf_counter(), cpu_seconds()
    until = began + seconds
    while time.perf_counter() < until:
        transport.writelines(_REQUEST)
        sent += size
        await writer.may_write.wait()
        await asyncio.sleep(0)
    outcome = Outcome(
        records=sent // 1000, seconds=time.perf_counter() - began, cpu_seconds=cpu_seconds() - cpu
    )
    transport.abort()
    return outcome
