"""Under a real uvicorn: mounted into FastAPI, in the event loop of another, with clients that stay or stall."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from aioproduce.dashboard import Dashboard, serve
from aioproduce.errors import ListenError, MissingExtraError, PortInUseError, ProducerError
from tests.dashboard.scripted import ScriptedSource


async def read_events(reader: asyncio.StreamReader, count: int) -> list[str]:
    events: list[str] = []
    while len(events) < count:
        line = (await reader.readline()).decode()
        assert line, "the stream ended"
        if line.startswith("data: "):
            events.append(line.removeprefix("data: "))
    return events


async def connect(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return reader, writer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_ends_with_a_client_connected(number: signal.Signals) -> None:
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.dashboard.service", stdout=PIPE, stderr=PIPE
    )
    try:
        assert service.stdout is not None
        port = int(await service.stdout.readline())
        reader, writer = await connect(port, "/metrics/live/events")
        assert len(await read_events(reader, 2)) == 2

        service.send_signal(number)
        rest = await reader.read()
        assert rest.endswith(b"0\r\n\r\n")  # the last chunk: the stream was ended, not cut
        writer.close()
        out, err = await asyncio.wait_for(service.communicate(), 60)
    finally:
        if service.returncode is None:
            service.kill()
            await service.wait()
    assert out.decode().splitlines() == ["the lifespan's shutdown ran"], err.decode()
    assert "Traceback" not in err.decode() or number is signal.SIGINT


async def test_mounted_into_fastapi_under_a_prefix() -> None:
    app = FastAPI()
    app.mount("/a/b", Dashboard(ScriptedSource()))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://service", follow_redirects=True
    ) as client:
        page = await client.get("/a/b")
        assert (page.status_code, page.url.path) == (200, "/a/b/")
        script = await client.get(page.url.join("static/dashboard.js"))
        assert script.status_code == 200
        assert (await client.get("/a/b/samples")).json()["samples"] == []
        assert (await client.get("/a/b/nowhere")).status_code == 404


async def test_beside_what_the_event_loop_does() -> None:
    handler = signal.getsignal(signal.SIGTERM)
    async with serve(ScriptedSource(), port=0, interval=0.01) as server:
        assert signal.getsignal(signal.SIGTERM) is handler
        assert server.url == f"http://127.0.0.1:{server.port}/"
        async with httpx.AsyncClient() as client:
            assert "<title>aioproduce</title>" in (await client.get(server.url)).text
        reader, writer = await connect(server.port, "/events")
        begin, first, *_ = await read_events(reader, 3)
        assert json.loads(begin)["run"] == server.dashboard.feed.run
        assert json.loads(first)["producers"][0]["client_id"] == "scripted"
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await connect(server.port, "/")


async def test_a_client_that_reads_nothing_keeps_nobody() -> None:
    source = ScriptedSource("x" * 32_000)
    async with serve(source, port=0, interval=0.001, history=500) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # Far more than the sockets' buffers hold.
        while server.dashboard.feed.last_number < 300:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)
        assert server.dashboard.streams == 1
    assert server.dashboard.streams == 0
    client.close()


async def test_a_client_that_reads_nothing_costs_bounded_memory() -> None:
    """What uvicorn holds for it: its high-water mark, and the one sample that went beyond."""
    dashboard = Dashboard(ScriptedSource("x" * 8000), interval=0.001, history=10)
    server = uvicorn.Server(uvicorn.Config(dashboard, lifespan="off", log_level="warning"))
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server._serve([listener]))
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.to_thread(client.connect, listener.getsockname())
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")

        def held() -> int:
            sizes = [
                one.transport.get_write_buffer_size()
                for one in server.server_state.connections
                if one.transport
            ]
            return sum(sizes)

        while held() <= HIGH_WATER_LIMIT:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0)
        stopped_at = dashboard.feed.last_number
        sample_size = len(dashboard.feed.since(0)[-1].encoded)
        most = 0
        while dashboard.feed.last_number < stopped_at + 300:
            dashboard.feed.sample(1.0, 1.0)
            await asyncio.sleep(0)
            most = max(most, held())
        assert HIGH_WATER_LIMIT < most <= HIGH_WATER_LIMIT + 2 * sample_size
        assert len(dashboard.feed.since(0)) == 10
    dashboard.close()
    server.should_exit = True
    await serving


async def test_the_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            PortInUseError, match=f"port {port} of 127.0.0.1 is in use: choose another"
        ) as caught:
            async with serve(ScriptedSource(), port=port):
                pass
    assert (caught.value.host, caught.value.port) == ("127.0.0.1", port)
    assert isinstance(caught.value, ProducerError | OSError)


@pytest.mark.parametrize(("host", "port"), [("203.0.113.1", 0), ("127.0.0.1", 70_000), ("no such host", 0)])
async def test_there_cannot_be_listened(host: str, port: int) -> None:
    with pytest.raises(ListenError, match=f"cannot listen on port {port} of {host}: .+") as caught:
        async with serve(ScriptedSource(), host=host, port=port):
            pass
    assert not isinstance(caught.value, PortInUseError)


async def test_without_uvicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(
        MissingExtraError, match=r"needs uvicorn.*pip install 'aioproduce\[dashboard\]'"
    ) as caught:
        async with serve(ScriptedSource(), port=0):
            pass
    assert (caught.value.extra, caught.value.name) == ("dashboard", "uvicorn")


async def answered(port: int, host: str, path: str = "/samples") -> int:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    assert "access-control-allow-origin" not in answer.headers
    return answer.status_code


async def test_a_web_page_whose_name_was_made_to_point_here_is_refused() -> None:
    """DNS rebinding: to the browser the page and the dashboard are one origin then; but it says the page's name."""
    async with serve(ScriptedSource(), port=0, allowed_hosts=["Metrics.example"]) as server:
        for ours in (
            "localhost",
            "127.0.0.1",
            f"localhost:{server.port}",
            "[::1]:80",
            "x.localhost",
            "metrics.example:1",
        ):
            assert await answered(server.port, ours) == 200, ours
        for strange in (
            "evil.example",
            f"evil.example:{server.port}",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "",
        ):
            assert await answered(server.port, strange) == 403, strange
        assert await answered(server.port, "evil.example", "/events") == 403
        assert server.dashboard.streams == 0


async def test_where_others_may_look_any_name_will_do() -> None:
    async with serve(ScriptedSource(), host="0.0.0.0", port=0, allow_anonymous=True) as server:
        assert await answered(server.port, "metrics.example") == 200
