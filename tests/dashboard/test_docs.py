"""The services of docs/dashboard.md, as they stand there, with a cluster in memory."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from aiohttp import web

from aioproduce.testing import FakeCluster

PAGE = Path(__file__).parents[2] / "docs" / "dashboard.md"
TITLE = "<title>aioproduce</title>"


def example(framework: str, cluster: FakeCluster) -> dict[str, Any]:
    """What the page's example for it defines."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if f"from {framework} import" in block]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.replace("localhost:9092", cluster.bootstrap_servers), str(PAGE), "exec"), names)
    return names


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


async def test_fastapi() -> None:
    async with FakeCluster(1) as cluster:
        names = example("fastapi", cluster)
        async with served(names["app"]) as url, httpx.AsyncClient(follow_redirects=True) as client:
            page = await client.get(f"{url}/producer")
            assert TITLE in page.text
            assert str(page.url) == f"{url}/producer/"
            await names["producer"].send_and_wait("orders", b"1")
        assert len(cluster.records("orders")) == 1


async def test_aiohttp(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeCluster(1) as cluster:
        names = example("aiohttp", cluster)
        app = names["app"]
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            url = capsys.readouterr().out.strip()
            await app[names["PRODUCER"]].send_and_wait("orders", b"1")
            async with httpx.AsyncClient() as client:
                assert TITLE in (await client.get(url)).text
        finally:
            await runner.cleanup()
        assert len(cluster.records("orders")) == 1
