"""aiohttp: the context, the typed keys, health, answers, under its own runner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web

from aioproduce import Producer
from aioproduce.errors import NotStartedError
from aioproduce.integrations.aiohttp import (
    PRODUCER,
    SERVICE,
    ProducerService,
    deadline_of,
    error_answers,
    producer_context,
    service_of,
    setup,
)
from aioproduce.testing import FakeCluster
from tests.integrations.serving import client_for, make_service, ready, stall, values


async def place(request: web.Request) -> web.Response:
    metadata = await service_of(request).send("orders", await request.read(), deadline=deadline_of(request))
    return web.json_response({"offset": metadata.offset}, status=201)


async def accept(request: web.Request) -> web.Response:
    await request.config_dict[PRODUCER].send("orders", await request.read(), partition=0, timeout=0)
    return web.Response(status=202)


async def background(request: web.Request) -> web.Response:
    service_of(request).background("orders", await request.read())
    return web.Response(status=202)


ROUTES = [web.post("/orders", place), web.post("/accepted", accept), web.post("/background", background)]


@asynccontextmanager
async def client_of(app: web.Application) -> AsyncIterator[httpx.AsyncClient]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with client_for(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield client
    finally:
        await runner.cleanup()


def make_app(service: ProducerService) -> web.Application:
    app = web.Application()
    setup(app, service)
    app.add_routes(ROUTES)
    return app


async def test_a_request_becomes_a_record(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    app = make_app(service)
    async with client_of(app) as client:
        assert app[SERVICE] is service
        assert app[PRODUCER] is service.producer
        answer = await client.post("/orders", content=b"1")
        assert (answer.status_code, answer.json()) == (201, {"offset": 0})
        assert (await client.post("/accepted", content=b"2")).status_code == 202
        assert (await client.post("/background", content=b"3")).status_code == 202
    assert set(values(cluster)) == {b"1", b"2", b"3"}
    assert service.counts().undelivered == 0


async def test_health(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    stall(cluster)
    async with client_of(make_app(service)) as client:
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["no broker has answered yet"])
        assert answer.headers["cache-control"] == "no-store"
        assert (await client.get("/health/live")).json()["status"] == "live"
        stall(cluster, is_stalled=False)
        await ready(service)
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")


async def test_no_room_is_503_with_retry_after(cluster: FakeCluster) -> None:
    settings = {"buffer_memory": 40_000, "batch_size": 16_384}
    service = make_service(cluster, settings, topics=["orders"])
    async with client_of(make_app(service)) as client:
        await ready(service)
        stall(cluster)
        for _ in range(2):
            assert (await client.post("/accepted", content=bytes(16_000))).status_code == 202
        answer = await client.post("/accepted", content=bytes(16_000))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert answer.json()["outcome"] == "not_written"
        stall(cluster, is_stalled=False)


async def test_the_clients_time_is_over_and_the_answer_says_that_the_outcome_is_unknown(
    cluster: FakeCluster,
) -> None:
    service = make_service(cluster, topics=["orders"])
    async with client_of(make_app(service)) as client:
        await ready(service)
        stall(cluster)
        seconds = 0.01
        while True:
            answer = await client.post("/orders", content=b"1", headers={"x-request-timeout": str(seconds)})
            if answer.status_code != 503:  # the machine was too slow to get it accepted in so short a time
                break
            seconds *= 2
        assert (answer.status_code, answer.json()["outcome"]) == (504, "unknown")
        assert "retry-after" not in answer.headers
        stall(cluster, is_stalled=False)
    assert values(cluster) == [b"1"]


async def test_a_header_that_cannot_be_read_and_a_bug_of_the_service(cluster: FakeCluster) -> None:
    cluster.deny_topic("orders")
    async with client_of(make_app(make_service(cluster))) as client:
        answer = await client.post("/orders", content=b"1", headers={"x-request-timeout": "soon"})
        assert (answer.status_code, answer.json()["outcome"]) == (400, "not_written")
        assert (await client.post("/orders", content=b"1")).status_code == 500


async def test_subapplications_see_it_and_later_contexts_end_before_it(cluster: FakeCluster) -> None:
    service = make_service(cluster)

    async def last_words(app: web.Application) -> AsyncIterator[None]:
        yield
        await app[SERVICE].send("orders", b"the last words")

    inner = web.Application(middlewares=[error_answers(service)])
    inner.add_routes(ROUTES)
    app = web.Application()
    app.cleanup_ctx.append(producer_context(service))
    app.cleanup_ctx.append(last_words)
    app.add_subapp("/inner", inner)
    async with client_of(app) as client:
        assert (await client.post("/inner/orders", content=b"1")).status_code == 201
        assert (await client.post("/inner/accepted", content=b"2")).status_code == 202
    assert set(values(cluster)) == {b"1", b"2", b"the last words"}


async def test_without_the_context_the_error_says_so() -> None:
    told: list[Any] = []

    async def ask(request: web.Request) -> web.Response:
        with pytest.raises(NotStartedError, match=r"setup\(app, service\)") as caught:
            service_of(request)
        told.append(caught.value)
        return web.Response()

    app = web.Application()
    app.router.add_get("/", ask)
    async with client_of(app) as client:
        assert (await client.get("/")).status_code == 200
    assert len(told) == 1


async def test_it_starts_without_a_broker(nothing_left: None) -> None:
    service = ProducerService(lambda: Producer("127.0.0.1:1"), request_timeout=0.01)
    async with client_of(make_app(service)) as client:
        assert (await client.get("/health/live")).status_code == 200
        assert (await client.get("/health/ready")).status_code == 503
        answer = await client.post("/orders", content=b"1")
        assert (answer.status_code, answer.json()["outcome"]) == (503, "not_written")
