"""The services of docs/how-to/services.md and the handler of docs/how-to/logging.md, with a cluster in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import prometheus_client
import pytest
from aiohttp import web

from aioproduce.integrations.service import ProducerService
from aioproduce.integrations.service_metrics import ServiceCollector
from aioproduce.testing import FakeCluster
from tests.integrations.serving import client_for, make_service, ready

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "services.md"
LOGGING = PAGE.with_name("logging.md")


def example(words: str, cluster: FakeCluster, **names: Any) -> dict[str, Any]:
    """What the example with these words defines."""
    pages = PAGE.read_text() + LOGGING.read_text()
    blocks = re.findall(r"```python\n(.*?)```", pages, re.DOTALL)
    (block,) = [block for block in blocks if words in block]
    found: dict[str, Any] = {"__name__": "example", **names}
    exec(compile(block.replace("localhost:9092", cluster.bootstrap_servers), str(PAGE), "exec"), found)
    return found


async def test_fastapi(cluster: FakeCluster) -> None:
    app = example("from fastapi import FastAPI", cluster)["app"]
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        answer = await client.post("/orders", content=b"1")
        assert (answer.status_code, answer.json()) == (201, 0)
        assert (await client.post("/views", content=b"2")).status_code == 202
        assert (await client.get("/health/ready")).status_code == 200
    assert {record.value for record in cluster.records("orders")} == {b"1", b"2"}


async def test_aiohttp(cluster: FakeCluster) -> None:
    runner = web.AppRunner(example("from aiohttp import web", cluster)["app"])
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with client_for(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            answer = await client.post("/orders", content=b"1")
            assert (answer.status_code, answer.json()) == (201, {"offset": 0})
            assert (await client.get("/health/ready")).status_code == 200
    finally:
        await runner.cleanup()


async def test_prometheus(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    service = make_service(cluster)
    example("ServiceCollector(service)", cluster, service=service)

    def read(name: str) -> float | None:
        return registry.get_sample_value(f"aioproduce_service_{name}", {"service": ""})

    assert (read("ready"), read("live")) == (0, 1)
    async with service:
        await ready(service)
        service.background("orders", b"1")
        assert (read("ready"), read("live"), read("background_pending")) == (1, 1, 1)
        service.background("not a topic", b"1")
    assert (read("background_acknowledged_total"), read("background_failed_total")) == (1, 1)
    # All that it counts is shown.
    names = {metric.name.removeprefix("aioproduce_service_") for metric in registry.collect()}
    assert names == {*service.counts().as_dict(), "ready", "live"}


def test_services_in_one_registry_have_names() -> None:
    services = [ProducerService(lambda: 1 / 0) for _ in range(2)]  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="need names"):
        ServiceCollector(*services)
    registry = prometheus_client.CollectorRegistry()
    registry.register(ServiceCollector(main=services[0], audit=services[1]))
    assert registry.get_sample_value("aioproduce_service_ready", {"service": "audit"}) == 0


async def test_logging(nothing_left: None) -> None:
    async with FakeCluster(1, topics={"logs": 1}) as cluster:
        root = logging.getLogger()
        before = set(root.handlers)
        example("addHandler(KafkaLogHandler(", cluster)
        (handler,) = set(root.handlers) - before
        try:
            logging.getLogger("shop").warning("3 sold")
            await asyncio.to_thread(handler.flush)
        finally:
            root.removeHandler(handler)
            await asyncio.to_thread(handler.close)
        (record,) = cluster.records("logs")
        assert json.loads(record.value or b"")["message"] == "3 sold"
