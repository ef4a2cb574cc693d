"""A service under a real server as a process of its own, with a cluster in memory: run by `test_servers`.

    python -m tests.integrations.server_process fastapi|aiohttp asyncio|uvloop DRAIN_TIMEOUT

Tells the port when it listens. `/stall` has the brokers say nothing more; `/forever` is a response without an end;
`/signal` raises SIGTERM within a request, and answers what the health was then.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
import uvloop
from aiohttp import web
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from aioproduce import Producer
from aioproduce.integrations import aiohttp as aiohttp_part
from aioproduce.integrations import fastapi as fastapi_part
from aioproduce.integrations.service import ProducerService
from aioproduce.testing import FakeCluster
from tests.integrations.serving import stall

cluster = FakeCluster(1, topics={"orders": 1})
service = ProducerService(
    lambda: Producer(cluster.bootstrap_servers, linger_ms=0),
    drain_timeout=float(sys.argv[3]),
    topics=["orders"],
)


def raise_signal() -> dict[str, Any]:
    before = service.readiness()
    signal.raise_signal(signal.SIGTERM)
    after = service.readiness()
    return {"before": list(before.reasons), "after": list(after.reasons), "live": service.liveness().is_well}


def fastapi_app() -> FastAPI:
    @asynccontextmanager
    async def around(app: Any) -> AsyncIterator[Any]:
        async with cluster, fastapi_part.lifespan(service)(app) as state:
            yield state

    app = FastAPI(lifespan=around)
    fastapi_part.install(app, service)

    @app.post("/accepted", status_code=202)
    async def accept(request: Request, producer: fastapi_part.ProducerDep) -> None:
        await producer.send("orders", await request.body())

    @app.post("/stall")
    async def stop() -> None:
        stall(cluster)

    @app.post("/signal")
    async def end() -> dict[str, Any]:
        return raise_signal()

    @app.get("/forever")
    async def forever() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun"
            await asyncio.Event().wait()

        return StreamingResponse(parts())

    return app


def aiohttp_app() -> web.Application:
    async def run_cluster(app: web.Application) -> AsyncIterator[None]:
        async with cluster:
            yield

    async def accept(request: web.Request) -> web.Response:
        await request.app[aiohttp_part.PRODUCER].send("orders", await request.read())
        return web.Response(status=202)

    async def stop(_: web.Request) -> web.Response:
        stall(cluster)
        return web.Response()

    async def end(_: web.Request) -> web.Response:
        # aiohttp's handler runs in the loop's next turn and ends `run_app` there; the answer is written before.
        return web.json_response(raise_signal())

    app = web.Application()
    app.cleanup_ctx.append(run_cluster)
    aiohttp_part.setup(app, service)
    app.add_routes([web.post("/accepted", accept), web.post("/stall", stop), web.post("/signal", end)])
    return app


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    if sys.argv[1] == "fastapi":
        print(port, flush=True)
        config = uvicorn.Config(fastapi_app(), loop=sys.argv[2], log_level="info", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])
    else:
        loop = uvloop.new_event_loop() if sys.argv[2] == "uvloop" else asyncio.new_event_loop()
        web.run_app(
            aiohttp_app(), sock=listener, loop=loop, access_log=None, print=lambda _: print(port, flush=True)
        )


if __name__ == "__main__":
    main()
