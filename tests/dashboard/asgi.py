"""Asks an ASGI application without a server: what it sends is kept, and a client that stops reading is one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Exchange:
    """One request and its answer.

    Attributes:
        body: What was sent so far.
        reads: Cleared, the client takes nothing; `send` then waits, as uvicorn's does.
        is_gone: Set, the client has disconnected.
    """

    def __init__(
        self, path: str, *, root: str = "", method: str = "GET", headers: dict[str, str] | None = None
    ) -> None:
        self.scope = {
            "type": "http",
            "path": path,
            "root_path": root,
            "method": method,
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.is_gone = asyncio.Event()
        self._came = asyncio.Event()
        self._is_over = False

    async def ask(self, application: Application) -> Exchange:
        try:
            await application(self.scope, self.receive, self.send)
        finally:
            self._is_over = True
            self._came.set()
        return self

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something came that makes it true."""
        while not condition():
            assert not self._is_over, self.body[-1000:]
            self._came.clear()
            await self._came.wait()

    @property
    def events(self) -> list[dict[str, str]]:
        """The server-sent events of the body, whole ones."""
        blocks = self.body.decode().split("\n\n")[:-1]
        return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]

    async def receive(self) -> Message:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert not self.is_complete
            self.body += message["body"]
            self.is_complete = not message.get("more_body", False)
        self._came.set()
