"""Under uvicorn and aiohttp's runner as processes: signals, a client that stays, an end that is skipped."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.integrations.serving import FOREVER, client_for

SERVERS = [("fastapi", "asyncio"), ("fastapi", "uvloop"), ("aiohttp", "asyncio"), ("aiohttp", "uvloop")]


class ServerProcess:
    """A service in a process of its own; what it logs is read while it runs."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.log = ""

    async def logged(self, pattern: str) -> None:
        """Wait until a line like that is logged."""
        assert self.process.stderr is not None
        while not re.search(pattern, self.log):
            line = await self.process.stderr.readline()
            assert line, f"it ended without {pattern!r}:\n{self.log}"
            self.log += line.decode()

    async def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        assert self.process.stderr is not None
        self.log += (await self.process.stderr.read()).decode()
        return await self.process.wait()


@contextlib.asynccontextmanager
async def server(framework: str, loop: str, drain_timeout: float = FOREVER) -> AsyncIterator[ServerProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integrations.server_process", framework, loop, str(drain_timeout)),
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = await process.stdout.readline()
        assert line, (await process.stderr.read()).decode()
        yield ServerProcess(process, int(line))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ask_until_ready(client: httpx.AsyncClient) -> None:
    while (await client.get("/health/ready")).status_code != 200:  # noqa: ASYNC110  (nothing tells)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("framework", "loop"), SERVERS)
async def test_not_ready_at_the_signal_and_drained_at_the_end(framework: str, loop: str) -> None:
    async with (
        server(framework, loop) as service,
        client_for(service.url) as client,
    ):
        await ask_until_ready(client)
        for _ in range(10):
            assert (await client.post("/accepted", content=b"1")).status_code == 202
        answer = await client.post("/signal")
        assert answer.json() == {"before": [], "after": ["the service is ending"], "live": True}
        code = await service.ended()
    assert code in (0, -signal.SIGTERM), service.log  # uvicorn ends by the signal that it was sent
    assert "SIGTERM: no longer ready" in service.log
    assert "ended: every accepted record has its outcome" in service.log
    assert "Traceback" not in service.log


@pytest.mark.parametrize(("framework", "loop"), SERVERS)
async def test_what_could_not_be_drained_is_told(framework: str, loop: str) -> None:
    async with (
        server(framework, loop, 0.05) as service,
        client_for(service.url) as client,
    ):
        await ask_until_ready(client)
        await client.post("/stall")
        for _ in range(3):
            assert (await client.post("/accepted", content=b"1")).status_code == 202
        service.process.send_signal(signal.SIGTERM)
        await service.ended()
    assert "3 record(s) were not acknowledged when the service ended" in service.log


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(
            "asyncio",
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12),
                reason="uvicorn's end awaits Server.wait_closed(), which waits for the client from 3.12 on",
            ),
        ),
        "uvloop",
    ],
)
async def test_uvicorn_waits_for_a_client_for_ever_and_the_second_ctrl_c_skips_the_end(loop: str) -> None:
    async with (
        server("fastapi", loop, 0.05) as service,
        client_for(service.url) as client,
    ):
        await ask_until_ready(client)
        await client.post("/stall")
        for _ in range(3):
            assert (await client.post("/accepted", content=b"1")).status_code == 202
        async with client.stream("GET", "/forever") as response:
            assert response.status_code == 200
            service.process.send_signal(signal.SIGINT)
            await service.logged("SIGINT: no longer ready; 3 record")
            # drain_timeout after it, and uvicorn still waits for the client:
            await service.logged("the server has not ended the application")
            assert "3 accepted record(s) are not acknowledged" in service.log
            service.process.send_signal(signal.SIGINT)
            await service.ended()
    # The lifespan's end never came: its task was cancelled with the loop.
    assert "Application shutdown complete" not in service.log
    assert "3 record(s) were not acknowledged" in service.log, service.log
