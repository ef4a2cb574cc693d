"""FastAPI and Starlette: lifespan, dependencies, health, answers; the requests come by httpx without a server."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, WebSocket, WebSocketDisconnect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from aioproduce import Producer
from aioproduce.errors import NotStartedError
from aioproduce.integrations import fastapi as integration
from aioproduce.integrations.fastapi import (
    DeadlineDep,
    ProducerDep,
    ProducerService,
    ServiceDep,
    add_error_handlers,
    health_router,
    install,
    lifespan,
    producer_dependency,
    service_dependency,
)
from aioproduce.integrations.starlette import producer_of
from aioproduce.testing import FakeCluster
from tests.integrations.serving import make_service, ready, stall, until, values


@asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose lifespan runs."""
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        yield client


def make_app(service: ProducerService, **options: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan(service, **options))
    install(app, service)

    @app.post("/orders", status_code=201)
    async def place(request: Request, service: ServiceDep, deadline: DeadlineDep) -> int:
        metadata = await service.send("orders", await request.body(), deadline=deadline)
        return metadata.offset

    @app.post("/accepted", status_code=202)
    async def accept(request: Request, producer: ProducerDep) -> None:
        await producer.send("orders", await request.body(), partition=0, timeout=0)

    @app.post("/background", status_code=202)
    async def background(request: Request, service: ServiceDep) -> None:
        service.background("orders", await request.body())

    return app


async def test_a_request_becomes_a_record(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    async with client_of(make_app(service)) as client:
        answer = await client.post("/orders", content=b"1")
        assert (answer.status_code, answer.json()) == (201, 0)
        assert (await client.post("/accepted", content=b"2")).status_code == 202
        assert (await client.post("/background", content=b"3")).status_code == 202
    assert set(values(cluster)) == {b"1", b"2", b"3"}


async def test_health(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    app = make_app(service)
    app.include_router(health_router(service, "/inner"))
    stall(cluster)
    async with client_of(app) as client:
        answer = await client.get("/health/ready")
        assert answer.status_code == 503
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json()["status"] == "not ready"
        assert answer.json()["reasons"] == ["no broker has answered yet"]
        answer = await client.get("/health/live")
        assert (answer.status_code, answer.json()["status"]) == (200, "live")
        stall(cluster, is_stalled=False)
        await ready(service)
        await client.post("/orders", content=b"1")
        for path in ("/health/ready", "/inner/ready"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert answer.json() == {
                "status": "ready",
                "reasons": [],
                "outstanding_records": 0,
                "oldest_record_age": 0.0,
                "oldest_send_wait": 0.0,
                "silent_brokers": [],
                **service.counts().as_dict(),
            }


async def test_no_room_is_503_with_retry_after(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"buffer_memory": 40_000, "batch_size": 16_384}
    service = make_service(cluster, settings, topics=["orders"], retry_after=2.5)
    async with client_of(make_app(service)) as client:
        await ready(service)
        stall(cluster)
        for _ in range(2):
            assert (await client.post("/accepted", content=bytes(16_000))).status_code == 202
        answer = await client.post("/accepted", content=bytes(16_000))
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "3"
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert answer.json() == {
            "title": "The record cannot be accepted now",
            "status": 503,
            "outcome": "not_written",
            "retry_after": 2.5,
        }
        assert cluster.bootstrap_servers.split(",")[0] not in answer.text
        assert "answered 503: no room for" in caplog.text
        assert (await client.get("/health/ready")).json()["reasons"] == ["the buffer has no room"]
        assert service.counts().refused_answers == 1
        stall(cluster, is_stalled=False)
        await ready(service)
        assert (await client.post("/accepted", content=b"1")).status_code == 202


@pytest.mark.parametrize("status", [504, 202])
async def test_the_clients_time_is_over_and_the_answer_says_that_the_outcome_is_unknown(
    cluster: FakeCluster, status: int
) -> None:
    service = make_service(cluster, topics=["orders"], unknown_status=status)
    async with client_of(make_app(service)) as client:
        await ready(service)
        stall(cluster)
        seconds = 0.01
        while True:
            answer = await client.post("/orders", content=b"1", headers={"x-request-timeout": str(seconds)})
            if answer.status_code != 503:  # the machine was too slow to get it accepted in so short a time
                break
            seconds *= 2
        assert answer.status_code == status
        assert answer.json()["outcome"] == "unknown"
        assert "retry-after" not in answer.headers
        assert service.counts().unknown_outcomes == 1
        stall(cluster, is_stalled=False)
    assert values(cluster) == [b"1"]
    assert service.counts().undelivered == 0


async def test_answers_to_what_is_wrong(cluster: FakeCluster) -> None:
    service = make_service(cluster, {"max_request_size": 1000}, topics=["orders"])
    async with client_of(make_app(service)) as client:
        await ready(service)
        answer = await client.post("/orders", content=bytes(2000))
        assert (answer.status_code, answer.json()["outcome"]) == (413, "not_written")
        answer = await client.post("/orders", content=b"1", headers={"x-request-timeout": "soon"})
        assert (answer.status_code, answer.json()["outcome"]) == (400, "not_written")
        assert "X-Request-Timeout" in answer.json()["title"]
        cluster.faults.fail_produce(87)  # INVALID_RECORD: for good
        answer = await client.post("/orders", content=b"1")
        assert (answer.status_code, answer.json()["outcome"]) == (502, "not_written")
        assert "retry-after" not in answer.headers
    assert values(cluster) == []


async def test_a_denied_topic_is_the_services_bug(cluster: FakeCluster) -> None:
    cluster.deny_topic("orders")
    app = make_app(make_service(cluster))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        answer = await client.post("/orders", content=b"1")
    assert answer.status_code == 500


async def test_the_applications_own_lifespan_runs_within(cluster: FakeCluster) -> None:
    service = make_service(cluster)
    told: list[str] = []

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, int]]:
        told.append(f"started, producer {service.producer.state.name}")
        yield {"answer": 42}
        await service.send("orders", b"the last words")
        told.append("ended")

    app = make_app(service, own=own)
    async with app.router.lifespan_context(app) as state:
        assert state == {"answer": 42, "aioproduce": service}
    assert told == ["started, producer RUNNING", "ended"]
    assert values(cluster) == [b"the last words"]


async def test_an_own_lifespan_that_fails_ends_the_producer(cluster: FakeCluster) -> None:
    service = make_service(cluster)

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[None]:
        if app.title != "without a database":
            raise RuntimeError("no database")
        yield

    app = make_app(service, own=own)
    with pytest.raises(RuntimeError, match="no database"):
        async with app.router.lifespan_context(app):
            pass
    assert service.producer.state.name == "CLOSED"


async def test_two_clusters_in_one_application(cluster: FakeCluster) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as other:
        services = {"main": make_service(cluster), "audit": make_service(other)}
        app = FastAPI(
            lifespan=lifespan(services["main"], lifespan(services["audit"], name="audit"), name="main")
        )

        @app.post("/")
        async def both(
            main: Annotated[Producer, Depends(producer_dependency("main"))],
            audit: Annotated[ProducerService, Depends(service_dependency("audit"))],
        ) -> None:
            await main.send_and_wait("orders", b"main")
            await audit.send("orders", b"audit")

        async with client_of(app) as client:
            assert (await client.post("/")).status_code == 200
        assert (values(cluster), values(other)) == ([b"main"], [b"audit"])


def test_under_a_server_with_lifespans_mounted_applications_and_websockets_have_it() -> None:
    """Starlette's client runs the lifespan as servers do, in a thread of its own."""
    loop = asyncio.new_event_loop()
    cluster = FakeCluster(1, topics={"orders": 1}, auto_create_topics=False)
    service = ProducerService(lambda: Producer(cluster.bootstrap_servers))

    @asynccontextmanager
    async def cluster_around(app: Any) -> AsyncIterator[Any]:
        async with cluster, lifespan(service)(app) as state:
            yield state

    inner = FastAPI()

    @inner.post("/orders", status_code=201)
    async def place(producer: ProducerDep) -> int:
        return (await producer.send_and_wait("orders", b"1")).offset

    @inner.websocket("/live")
    async def live(socket: WebSocket, producer: ProducerDep) -> None:
        await socket.accept()
        await producer.send_and_wait("orders", (await socket.receive_text()).encode())
        await socket.send_text("done")
        await socket.close()

    @inner.websocket("/busy")
    async def busy(socket: WebSocket, producer: ProducerDep) -> None:
        await socket.accept()
        await producer.send("unknown", b"1", timeout=0)

    @inner.websocket("/wrong")
    async def wrong(socket: WebSocket, producer: ProducerDep) -> None:
        await socket.accept()
        await producer.send("orders", bytes(2_000_000))

    outer = FastAPI(lifespan=cluster_around)
    add_error_handlers(inner, service)
    outer.mount("/inner", inner)
    with TestClient(outer) as client:
        assert client.post("/inner/orders").json() == 0
        with client.websocket_connect("/inner/live") as socket:
            socket.send_text("2")
            assert socket.receive_text() == "done"
        for path, code in (("busy", 1013), ("wrong", 1011)):
            with client.websocket_connect(f"/inner/{path}") as socket:
                with pytest.raises(WebSocketDisconnect) as caught:
                    socket.receive_text()
                assert caught.value.code == code
        assert values(cluster) == [b"1", b"2"]
    loop.close()


async def test_starlette_alone(cluster: FakeCluster) -> None:
    service = make_service(cluster)

    async def place(request: Request) -> JSONResponse:
        metadata = await producer_of(request).send_and_wait("orders", await request.body())
        return JSONResponse({"offset": metadata.offset})

    app = Starlette(routes=[Route("/orders", place, methods=["POST"])], lifespan=lifespan(service))
    install(app, service, health=None)
    async with client_of(app) as client:
        assert (await client.post("/orders", content=b"1")).json() == {"offset": 0}
        assert (await client.get("/health/ready")).status_code == 404


async def test_without_the_lifespan_the_error_says_so() -> None:
    app = make_app(ProducerService(lambda: Producer("127.0.0.1:1")))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.post("/accepted", content=b"1")
        assert (answer.status_code, answer.json()["outcome"]) == (503, "not_written")
    bare = FastAPI()

    @bare.get("/")
    async def ask(producer: ProducerDep) -> None: ...

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=bare), base_url="http://service"
    ) as client:
        with pytest.raises(NotStartedError, match=r"lifespan=lifespan\(service\)"):
            await client.get("/")


async def test_a_client_that_goes_away_leaves_the_record_to_its_way(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioproduce.service")
    service = make_service(cluster, topics=["orders"])
    async with client_of(make_app(service)) as client:
        await ready(service)
        stall(cluster)
        request = asyncio.create_task(client.post("/orders", content=b"1"))
        await until(lambda: service.outstanding_records == 1)
        request.cancel()
        await asyncio.wait([request])
        assert service.outstanding_records == 1
        stall(cluster, is_stalled=False)
    assert values(cluster) == [b"1"]


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("fastapi", "fastapi", "fastapi"),
        ("starlette", "starlette", "fastapi"),
        ("aiohttp", "aiohttp", "aiohttp"),
    ],
)
def test_a_missing_extra_is_named(module: str, missing: str, extra: str) -> None:
    assert integration.__name__ == "aioproduce.integrations.fastapi"
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from aioproduce.errors import MissingExtraError
try:
    import aioproduce.integrations.{module}
except MissingExtraError as error:
    print(error.extra, error.name, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{extra} {missing} aioproduce.integrations.{module} needs {missing}")
    assert f"pip install 'aioproduce[{extra}]'" in done.stdout
