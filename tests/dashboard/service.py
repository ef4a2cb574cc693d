"""A service with a dashboard mounted in it, served by uvicorn: run as a process by `test_server`.

Tells its port, then nothing until the lifespan's shutdown, which it tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI

from aioproduce.dashboard import Dashboard
from tests.dashboard.scripted import ScriptedSource


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    print("the lifespan's shutdown ran", flush=True)


def main() -> None:
    app = FastAPI(lifespan=lifespan)
    # Streams that would go on for an hour: what ends them is the server's end.
    app.mount("/metrics/live", Dashboard(ScriptedSource(), stream_seconds=3600))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    asyncio.run(server.serve([listener]))


if __name__ == "__main__":
    main()
