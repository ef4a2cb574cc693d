"""The services of docs/how-to/dashboard.md, as they stand there, with a cluster in memory."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from aiohttp import web

from aioproduce.testing import FakeCluster
from aioproduce.testing.fake_cluster.certificates import Authority

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dashboard.md"
EXPORT_PAGE = PAGE.with_name("metrics-export.md")
TOKEN = "a-token-of-the-test"
TITLE = "<title>aioproduce</title>"


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def example(framework: str, cluster: FakeCluster) -> dict[str, Any]:
    """What the page's example for it defines."""
    (block,) = [block for block in blocks_of(PAGE) if f"from {framework} import" in block]
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


@pytest.mark.parametrize(
    ("page", "variable", "path", "shown"),
    [
        (PAGE, "DASHBOARD_TOKEN", "/", TITLE),
        pytest.param(
            *(EXPORT_PAGE, "METRICS_TOKEN", "/metrics", "kafka_producer_producer_metrics_record_send_total"),
            marks=pytest.mark.extended(
                "starts a process; the gate compiles the page's programs and tests the server"
            ),
        ),
    ],
)
async def test_a_token_and_tls(page: Path, variable: str, path: str, shown: str, tmp_path: Path) -> None:
    """The program as it stands there, but for the port and the cluster's address."""
    (program,) = [block for block in blocks_of(page) if variable in block]
    authority = Authority("127.0.0.1")
    chain, key = authority.broker()
    (tmp_path / "server.crt").write_text(chain)
    (tmp_path / "server.key").write_text(key)
    async with FakeCluster(1) as cluster:
        text = program.replace("localhost:9092", cluster.bootstrap_servers)
        text = text.replace("port=8089", "port=0").replace("9404", "0")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", text),
            cwd=tmp_path,
            env={"PYTHONPATH": str(PAGE.parents[2]), variable: TOKEN},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            told = (await process.stdout.readline()).decode().strip().rstrip("/")
            url = f"https://127.0.0.1:{told.rpartition(':')[2]}{path}"
            context = ssl.create_default_context(cadata=authority.ca)
            async with httpx.AsyncClient(verify=context) as client:
                assert (await client.get(url)).status_code == 401
                answer = await client.get(url, headers={"Authorization": f"Bearer {TOKEN}"})
                assert shown in answer.text
                assert shown in (await client.get(url, auth=("anybody", TOKEN))).text
        finally:
            process.kill()
            await process.wait()
