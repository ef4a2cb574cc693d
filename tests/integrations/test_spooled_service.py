"""A service with a queue on disk: it is ready while the cluster is away, and not while the queue is full."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from fastapi import FastAPI
from starlette.requests import Request

from aioproduce import Producer
from aioproduce.errors import InvalidRecordError, NotStartedError, OutcomeUnknownError, ProducerStateError
from aioproduce.integrations.aiohttp import SPOOLED, deadline_of, service_of, setup
from aioproduce.integrations.fastapi import DeadlineDep, ServiceDep, SpooledDep, install, lifespan
from aioproduce.integrations.service import ProducerService
from aioproduce.spool import Spool, SpooledProducer
from aioproduce.testing import FakeCluster
from tests.integrations.serving import client_for, until, values


def make_service(cluster: FakeCluster, spool: Path | Spool, **options: Any) -> ProducerService:
    servers = cluster.bootstrap_servers
    return ProducerService(
        lambda: Producer(servers, reconnect_backoff_ms=10, reconnect_backoff_max_ms=50),
        spool=spool,
        watch_signals=False,
        **options,
    )


async def _stop(cluster: FakeCluster) -> None:
    for broker in (0, 1):
        await cluster.stop_broker(broker)


async def _start(cluster: FakeCluster) -> None:
    for broker in (0, 1):
        await cluster.start_broker(broker)


def make_fastapi(service: ProducerService) -> FastAPI:
    app = FastAPI(lifespan=lifespan(service))
    install(app, service)

    @app.post("/orders", status_code=202)
    async def place(request: Request, service: ServiceDep, deadline: DeadlineDep) -> int:
        metadata = await service.send("orders", await request.body(), deadline=deadline)
        return metadata.offset

    @app.get("/backlog")
    async def backlog(spooled: SpooledDep) -> int | None:
        return spooled.backlog()["orders"].records

    return app


async def _through_an_outage(cluster: FakeCluster, client: httpx.AsyncClient) -> None:
    answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()["spool"]["state"]) == (200, "empty")
    for number in range(3):
        answer = await client.post("/orders", content=b"%d" % number)
        assert (answer.status_code, answer.text) == (202, "-1")
    document = (await client.get("/health/ready")).json()
    assert document["status"] == "ready"
    assert (document["spool"]["state"], document["spool"]["backlog_records"]) == ("waiting", 3)
    assert document["spool"]["drain_seconds"] is None
    assert document["spool"]["oldest_age"] >= 0
    assert document["outstanding_records"] == 3
    assert (await client.get("/backlog")).text == "3"
    assert (await client.get("/health/live")).status_code == 200
    await _start(cluster)


async def test_fastapi_answers_and_is_ready_through_an_outage(cluster: FakeCluster, tmp_path: Path) -> None:
    service = make_service(cluster, tmp_path / "spool")
    app = make_fastapi(service)
    await _stop(cluster)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        await _through_an_outage(cluster, client)
        await service.spooled.flush()
    assert {*values(cluster)} == {b"0", b"1", b"2"}


async def test_aiohttp_answers_and_is_ready_through_an_outage(cluster: FakeCluster, tmp_path: Path) -> None:
    async def place(request: web.Request) -> web.Response:
        metadata = await service_of(request).send(
            "orders", await request.read(), deadline=deadline_of(request)
        )
        return web.Response(text=str(metadata.offset), status=202)

    async def backlog(request: web.Request) -> web.Response:
        return web.Response(text=str(request.app[SPOOLED].backlog()["orders"].records))

    service = make_service(cluster, Spool(tmp_path / "spool", sync="interval"))
    app = web.Application()
    setup(app, service)
    app.router.add_routes([web.post("/orders", place), web.get("/backlog", backlog)])
    await _stop(cluster)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with client_for(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            await _through_an_outage(cluster, client)
            await service.spooled.flush()
    finally:
        await runner.cleanup()
    assert {*values(cluster)} == {b"0", b"1", b"2"}


async def test_what_is_on_disk_at_the_end_is_sent_by_the_next_start(
    cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = make_service(cluster, tmp_path / "spool", drain_timeout=0)
    await _stop(cluster)
    async with service:
        await service.send("orders", b"1")
        service.background("orders", b"2")
        await until(lambda: service.counts().background_acknowledged == 1)
    assert "ended: 2 record(s) are on disk" in caplog.text
    assert service.counts().undelivered == 0
    assert service.readiness().reasons == ("the producer is not running",)
    await _start(cluster)
    caplog.clear()
    caplog.set_level(logging.INFO)
    async with service:
        await service.spooled.flush()
    assert {*values(cluster)} == {b"1", b"2"}
    assert "every accepted record has its outcome" in caplog.text


async def test_a_full_queue_is_answered_503_and_not_ready(cluster: FakeCluster, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=5_000, segment_bytes=1_000, when_full="reject")
    service = make_service(cluster, spool)
    app = make_fastapi(service)
    await _stop(cluster)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        assert [(await client.post("/orders", content=bytes(2_000))).status_code for _ in range(3)] == [
            *(202, 202, 503)
        ]
        answer = await client.post("/orders", content=bytes(2_000))
        assert (answer.json()["outcome"], answer.headers["Retry-After"]) == ("not_written", "1")
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["the queue on disk has no room"])
        assert (await client.get("/health/live")).status_code == 200
        await _start(cluster)
        await service.spooled.flush()
        assert (await client.get("/health/ready")).status_code == 200
        assert (await client.post("/orders", content=bytes(2_000))).status_code == 202


async def test_a_failed_disk_is_not_ready_and_a_wait_for_room_has_an_unknown_outcome(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=5_000)
    await _stop(cluster)
    async with make_service(cluster, spool, drain_timeout=0) as service:
        await service.send("orders", bytes(4_000))
        with pytest.raises(OutcomeUnknownError) as caught:
            await service.send("orders", bytes(4_000), deadline=service.deadline("0.05"))
        assert not service.readiness().is_well
        await _start(cluster)
        await caught.value.delivery  # there is room when the first one is forwarded
        await service.spooled.flush()
        writer = service.spooled._writer
        writer.failure, writer.failed_at = OSError(errno.EIO, "Input/output error"), writer.now()
        assert service.readiness().reasons == ("the disk of the queue failed",)
    assert [len(value or b"") for value in values(cluster)] == [4_000, 4_000]


async def test_the_ways_in_that_a_queue_does_not_have(cluster: FakeCluster, tmp_path: Path) -> None:
    service = make_service(cluster, tmp_path / "spool")
    with pytest.raises(NotStartedError):
        _ = service.spooled
    with pytest.raises(NotStartedError):
        service.background("orders", b"1")
    async with service:
        assert isinstance(service.spooled, SpooledProducer)
        with pytest.raises(ProducerStateError, match=r"service\.spooled"):
            _ = service.producer
        with pytest.raises(InvalidRecordError, match="partition"):
            await service.send("orders", b"1", partition=-1)
