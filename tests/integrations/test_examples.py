"""The examples of this folder's subject run as they stand; under real servers: `test_services_kafka`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from aioproduce.testing import FakeCluster
from tests.integrations.serving import client_for

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


async def test_logging_to_kafka() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "logging_to_kafka.py")),
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    lines = out.decode().splitlines()
    assert lines[:2] == [
        "LogCounts(shipped=5, waiting=0, dropped=0, failed=0)",
        "LogCounts(shipped=2, waiting=0, dropped=0, failed=0)",
    ]
    assert lines[2].strip() == "INFO shop the shop opens"
    assert set(lines[3:6]) == {f"INFO shop sold one {item} 12.5" for item in ("apple", "pear", "plum")}
    assert [line.strip() for line in lines[6:]] == [
        "ERROR shop cannot sell",
        "WARNING audit before there is a producer",
        "WARNING audit while there is one",
    ]
    assert "Traceback" in err.decode()  # the console's own copy of the exception
    assert "not sent" not in err.decode()


async def start(name: str, servers: str, log: IO[bytes]) -> tuple[str, asyncio.subprocess.Process]:
    """An example as its docstring starts it, on a free port, with no bound that a slow machine could meet."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "PYTHONPATH": str(EXAMPLES.parent),
        "PORT": str(port),
        "KAFKA_BOOTSTRAP_SERVERS": servers,
        "REQUEST_TIMEOUT": "3600",
        "DRAIN_TIMEOUT": "3600",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / f"{name}.py")), stdout=log, stderr=log, env=os.environ | settings
    )
    return f"http://127.0.0.1:{port}", process


async def is_ready(client: httpx.AsyncClient, process: asyncio.subprocess.Process, log: IO[bytes]) -> bool:
    """Wait until it is ready; not, where somebody else took the port first."""
    while process.returncode is None:
        try:
            if (await client.get("/health/ready")).status_code == 200:
                return True
        except httpx.TransportError:
            pass  # not listening yet, or the one who took the port speaks no HTTP
        await asyncio.sleep(0.02)
    assert "in use" in told(log), told(log)
    return False


def told(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode()


@contextlib.asynccontextmanager
async def running(name: str, servers: str) -> AsyncIterator[tuple[httpx.AsyncClient, Any, IO[bytes]]]:
    """An example that is ready, a client of it, and what it logs: a file, as nobody empties a pipe meanwhile."""
    while True:
        with tempfile.TemporaryFile() as log:
            url, process = await start(name, servers, log)
            try:
                async with client_for(url) as client:
                    if await is_ready(client, process, log):
                        yield client, process, log
                        return
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


@pytest.mark.parametrize("name", ["fastapi_service", "aiohttp_service"])
async def test_services(name: str) -> None:
    async with (
        FakeCluster(1, topics={"orders": 1, "visits": 1}) as cluster,
        running(name, cluster.bootstrap_servers) as (client, process, log),
    ):
        order = {"customer": "7", "article": "apple", "pieces": 2}
        answer = await client.post("/orders", json=order)
        assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": 0})
        assert (await client.post("/visits", params={"page": "home"})).status_code == 202
        assert (
            await client.post("/orders", json={"customer": "7"} if "fastapi" in name else [])
        ).status_code in (
            400,
            422,
        )
        process.send_signal(signal.SIGTERM)
        await process.wait()
        assert "ended: every accepted record has its outcome" in told(log)
        [stored] = cluster.records("orders")
        [visit] = cluster.records("visits")
        assert (stored.key, json.loads(stored.value or b""), visit.value) == (b"7", order, b"home")


def test_the_examples_can_be_imported_by_servers() -> None:
    assert load("fastapi_service").app.title == "FastAPI"
    assert load("aiohttp_service").make_app() is not None
