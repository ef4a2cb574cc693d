"""A service as its users write it: an ASGI app that uvicorn runs in several workers; started by a test.

Its own counter is in prometheus_client's multiprocess mode, its producer in a `WorkerFile`, and one endpoint shows
both. `GET /` sends a record.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import prometheus_client
from prometheus_client import multiprocess

from aioproduce import Producer
from aioproduce.reporters.prometheus import WorkerFile, WorkersCollector

REQUESTS = prometheus_client.Counter("requests", "Requests served")
DIRECTORY = os.environ["KAFKA_METRICS_DIR"]

registry = prometheus_client.CollectorRegistry()
multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
registry.register(WorkersCollector(DIRECTORY))

stack = AsyncExitStack()
producers: list[Producer] = []


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["path"] == "/metrics":
        # In a thread: a scrape of all workers takes tens of milliseconds, which the event loop has better uses for.
        await answer(send, await asyncio.to_thread(prometheus_client.generate_latest, registry))
    else:
        REQUESTS.inc()
        await producers[0].send_and_wait("orders", b"v")
        await answer(send, str(os.getpid()).encode())


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    producer = await stack.enter_async_context(Producer(os.environ["BOOTSTRAP"], client_id="web"))
    producers.append(producer)
    await stack.enter_async_context(WorkerFile(producer, directory=DIRECTORY, period=0.05))
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await stack.aclose()
    await send({"type": "lifespan.shutdown.complete"})


async def answer(send: Any, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
