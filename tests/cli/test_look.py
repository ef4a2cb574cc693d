"""`aioproduce dashboard` and `aioproduce top` as users run them."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import signal
import socket
import struct
import sys
import termios
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

import aioproduce.cli.load
import aioproduce.cli.top
from aioproduce.cli.load import Load
from aioproduce.cli.top import Screen, watch
from aioproduce.dashboard import serve
from aioproduce.testing import FakeCluster
from aioproduce.testing.fake_cluster.faults import Faults
from tests.cli.command import COMMAND, ENVIRONMENT, finish, run_cli, start_cli
from tests.dashboard.scripted import ScriptedSource


async def told_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    assert url.startswith("http://127.0.0.1:")
    return url


async def records_of(url: str) -> float:
    """Those that the latest sample tells."""
    async with httpx.AsyncClient() as client:
        answer = (await client.get(f"{url}samples")).json()
    if not answer["samples"]:
        return 0.0
    sent = answer["samples"][-1]["producers"][0]["totals"]["records"]
    assert isinstance(sent, float)
    return sent


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_demo_until_ctrl_c(number: signal.Signals) -> None:
    process = await start_cli("dashboard", "--demo", "--port", "0", "--rate", "500")
    url = await told_url(process)
    while await records_of(url) < 100:  # noqa: ASYNC110  (another process)
        await asyncio.sleep(0.1)
    shown = await run_cli("top", "--once", url)
    assert (shown.code, shown.err) == (0, "")
    assert "payments" in shown.out

    process.send_signal(number)
    outcome = await finish(process)
    assert (outcome.code, outcome.err) == (0, "")


async def test_a_demo_that_ends_in_a_fault_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close of the demo's producer waited two minutes for a broker that nobody resumed any more."""
    monkeypatch.setattr(aioproduce.cli.load, "_PEACE_SECONDS", 0.0)
    monkeypatch.setattr(aioproduce.cli.load, "_STALL_SECONDS", 3600.0)
    is_to_stall = asyncio.Event()
    told: list[tuple[Faults, int]] = []
    ended_while: list[bool] = []
    stall, resume = Faults.stall, Faults.resume

    def stalls(faults: Faults, broker: int) -> None:
        told.append((faults, broker))
        is_to_stall.set()

    def resumes(faults: Faults, broker: int) -> None:
        ended_while.append(faults.is_stalled(broker))
        resume(faults, broker)

    monkeypatch.setattr(Faults, "stall", stalls)
    monkeypatch.setattr(Faults, "resume", resumes)
    async with aioproduce.cli.load.demo(500.0, 100, print) as producer:
        await is_to_stall.wait()
        # Only now does the broker stall: a producer that does not know the cluster may have it as its bootstrap
        # server, and `send()` would wait for `request.timeout.ms`.
        await (await producer.send("orders", b"before the stall", partition=0))
        stall(*told[0])
        late = await producer.send("orders", b"in the stall", partition=0)
    assert ended_while == [True]
    assert (await late).partition == 0


async def test_a_load_on_a_cluster(cluster: FakeCluster) -> None:
    arguments = ("-b", cluster.bootstrap_servers, "--topic", "t", "--topic", "one", "--rate", "300")
    process = await start_cli("dashboard", *arguments, "--record-size", "33", "--port", "0")
    await told_url(process)
    while len(cluster.records("t")) < 60:  # noqa: ASYNC110  (another process)
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert (await finish(process)).code == 0
    assert {len(record.value or b"") for record in cluster.records("t")} == {33}
    # The first gets twice as much as the second.
    assert len(cluster.records("t")) / len(cluster.records("one")) == pytest.approx(2, rel=0.1)


async def test_a_load_on_many_topics() -> None:
    """Halves down to the ninth; as many more halves would be a round of millions."""
    sent: Counter[str] = Counter()
    is_enough = asyncio.Event()

    class Taker:
        async def send(self, topic: str, value: bytes) -> None:
            sent[topic] += 1
            if sent.total() == 10 * 526:
                is_enough.set()
                await asyncio.Event().wait()

    topics = [f"t{number}" for number in range(24)]
    load = Load(Taker(), topics, rate=1e6, size=1, is_wavy=False, tell=print)  # type: ignore[arg-type]
    running = asyncio.create_task(load.run())
    await is_enough.wait()
    running.cancel()
    assert [sent[topic] for topic in topics] == [
        10 * share for share in (256, 128, 64, 32, 16, 8, 4, 2, 1, *[1] * 15)
    ]


async def test_the_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        outcome = await run_cli("dashboard", "--demo", "--port", str(port))
    assert (outcome.code, outcome.out) == (2, "")
    assert f"port {port} of 127.0.0.1 is in use" in outcome.err
    assert "--port 0" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dashboard"], "say what to show: --demo, or --bootstrap-server and --topic"),
        (["dashboard", "--demo", "--topic", "t"], "say what to show"),
        (["dashboard", "--topic", "t"], "nothing says where the cluster is"),
        (["top", "--once"], "say what to show"),
        (["top", "--demo"], "needs a terminal"),
        (["top", "--once", "--demo", "http://localhost:1/"], "not two of them"),
        (["top", "--once", "nonsense"], "is no address"),
        (
            ["top", "--once", "localhost:8089"],
            "neither http:// nor https://; give e.g. http://localhost:8089/",
        ),
        (["top", "--once", "file:///tmp"], "is no address"),
        (["top", "--once", "http://localhost:port/"], "is no address: nonnumeric port"),
        (["top", "--once", "http://two words/"], "is no address"),
        (["dashboard", "--demo", "--host", "203.0.113.1"], "cannot listen on port 8089 of 203.0.113.1"),
    ],
)
async def test_bad_input(arguments: list[str], told: str) -> None:
    outcome = await run_cli(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in " ".join(outcome.err.split())


async def test_without_uvicorn(tmp_path: Path) -> None:
    hidden = tmp_path / "uvicorn.py"
    hidden.write_text("raise ModuleNotFoundError('hidden by the test', name='uvicorn')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    outcome = await run_cli("dashboard", "--demo", "--port", "0", environment={"PYTHONPATH": path})
    assert (outcome.code, outcome.out) == (2, "")
    assert "pip install 'aioproduce[dashboard]'" in outcome.err


async def test_one_picture_of_a_service() -> None:
    first, second = ScriptedSource("first"), ScriptedSource("second")
    second.sensors.batches.errors.record(41_000, 0.0)
    async with serve([first, second], port=0, interval=0.1) as server:
        shown = await run_cli("top", "--once", server.url)
        assert (shown.code, shown.err) == (0, "")
        assert "first  (1 of 2 producers" in shown.out
        other = await run_cli("top", "--once", "--client-id", "second", server.url.rstrip("/"))
        assert "41 k" in other.out
        unknown = await run_cli("top", "--once", "--client-id", "third", server.url)
        assert (unknown.code, unknown.out) == (2, "")
        assert "no producer has the client id 'third': there are first, second" in unknown.err


async def test_an_address_that_is_no_dashboard() -> None:
    async with serve(ScriptedSource(), port=0) as server:
        missing = await run_cli("top", "--once", f"{server.url}nowhere")
        assert (missing.code, missing.out) == (2, "")
        assert "answers 404 Not Found: is that where the dashboard is mounted?" in missing.err
    gone = await run_cli("top", "--once", server.url)
    assert (gone.code, gone.out) == (1, "")
    assert f"nothing answers at {server.url}: " in gone.err


async def test_a_port_where_something_else_answers() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-x\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outcome = await run_cli("top", "--once", f"http://127.0.0.1:{port}/")
    assert (outcome.code, outcome.out) == (2, "")
    assert "answers, but not by HTTP (BadStatusLine): is the port the dashboard's?" in outcome.err


async def test_a_dashboard_that_takes_no_more_viewers() -> None:
    async with (
        serve(ScriptedSource(), port=0, interval=0.1, max_streams=1) as server,
        httpx.AsyncClient() as one,
        one.stream("GET", f"{server.url}events"),
    ):
        outcome = await run_cli("top", "--once", server.url)
    assert (outcome.code, outcome.out) == (2, "")
    assert "answers 503 Service Unavailable: it accepts no more viewers now (max_streams)" in outcome.err


async def test_a_stream_that_ends_in_order_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one does in time."""
    monkeypatch.setattr(aioproduce.cli.top, "_AGAIN_SECONDS", 0.1)
    told: list[float] = []
    drawn = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Watched(Screen):  # type: ignore[misc]  # final, but for this
        def lose(self, now: float) -> None:
            told.append(now)

        def draw(self, now: float) -> Any:
            if self.sample_count > 10:
                loop.call_soon_threadsafe(drawn.set)
                raise KeyboardInterrupt
            return super().draw(now)

    monkeypatch.setattr(aioproduce.cli.top, "Screen", Watched)
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    async with serve(ScriptedSource(), port=0, interval=0.1, stream_seconds=0.3) as server:
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(watch, server.url, None, is_once=False, console=console)
    assert told == []


async def test_one_picture_of_a_service_that_ends_meanwhile() -> None:
    """It does not wait for the service to come back, as a picture that is redrawn does."""
    asked = asyncio.Event()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(b'event: begin\ndata: {"run": "one"}\n\n')
        asked.set()
        writer.close()

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    watching = asyncio.create_task(run_cli("top", "--once", url))
    await asked.wait()
    server.close()
    outcome = await watching
    assert (outcome.code, outcome.out) == (1, "")
    assert f"nothing answers at {url}: " in outcome.err


class Terminal:
    """A terminal of 24 lines and 80 columns, and what was written to it."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._master, False)
        self.written = ""
        self._came = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self.written += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)
        self._came.set()

    async def until(self, text: str) -> None:
        while text not in self.written:
            self._came.clear()
            await self._came.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        os.close(self.slave)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
async def test_in_a_terminal_with_a_service_that_ends_and_comes_back() -> None:
    terminal = Terminal()
    environment = {**ENVIRONMENT, "TERM": "xterm-256color"}
    environment.pop("COLUMNS")
    async with serve(ScriptedSource("before"), port=0, interval=0.1) as server:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "top",
            server.url,
            stdin=terminal.slave,
            stdout=terminal.slave,
            stderr=PIPE,
            env=environment,
            # A shell's background job ignores SIGINT, and so do its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        await terminal.until("before")
        await terminal.until("delivery timeline")
    await terminal.until("LOST for")
    async with serve(ScriptedSource("afterwards"), port=server.port, interval=0.1):
        await terminal.until("afterwards")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert await process.stderr.read() == b""
        assert await process.wait() == 0
    await terminal.until("\x1b[?1049l")  # the screen from before is back
    terminal.close()


async def test_help_names_both() -> None:
    outcome = await run_cli("--help")
    assert "dashboard" in outcome.out
    assert "top" in outcome.out
