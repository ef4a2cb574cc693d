"""The dashboard as an ASGI application: one page, its files, the samples as server-sent events and as JSON.

Services mount it into their own application at any path, or serve it with `server.serve`. It needs no framework.
All its addresses are relative, so that it works behind any prefix, also a proxy's.

| path | answer |
|---|---|
| `` | the page |
| `events` | an endless stream of samples; begins with the history, or after `Last-Event-ID` |
| `samples` | the history as JSON |
| `static/...` | the files of the page |

Invariants:

1. A stream ends when its server ends, when `close()` is called, when its client disconnects, and always after
   `stream_seconds`. The client then connects again and continues. uvicorn waits for open requests for ever, and
   runs the lifespan's shutdown after them: an endless stream would keep the service from ending.
2. A slow client needs no memory besides the history: it reads the samples that it missed from there, as far as they
   are kept. More clients than `max_streams` are refused.
3. A request cannot name a file: a table lists all files.
4. If there is a token, a client without it gets nothing, not even the page.
5. The page may load nothing from another host (Content-Security-Policy), and no request changes anything.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from aioproduce.config.secret import hides_arguments
from aioproduce.dashboard.feed import Feed
from aioproduce.security.http_access import CHALLENGE, REFUSAL, made_access

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from aioproduce.config.secret import Secret
    from aioproduce.dashboard.reading import Source

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Headers = Iterable[tuple[bytes, bytes]]

_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "static/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
    "static/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "static/dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
    "static/timeline.js": ("timeline.js", "text/javascript; charset=utf-8"),
    "static/units.js": ("units.js", "text/javascript; charset=utf-8"),
    "static/icon.svg": ("icon.svg", "image/svg+xml"),
    "static/vendor/uplot/uPlot.iife.min.js": (
        "vendor/uplot/uPlot.iife.min.js",
        "text/javascript; charset=utf-8",
    ),
    "static/vendor/uplot/uPlot.min.css": ("vendor/uplot/uPlot.min.css", "text/css; charset=utf-8"),
    "static/vendor/uplot/LICENSE": ("vendor/uplot/LICENSE", "text/plain; charset=utf-8"),
}

_ALWAYS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

# How often a stream checks whether its server ends: uvicorn itself checks every 100 ms.
_LOOK_SECONDS: Final = 0.1
_RECONNECT_MS: Final = 1000
# Proxies close a stream after a minute of silence, and `aioproduce top` reports it as lost after 15 s.
_SILENCE_SECONDS: Final = 5.0


@final
class Dashboard:
    """An ASGI application that shows producers.

    Args:
        producers: A producer, or several.
        interval: Seconds from one sample to the next.
        history: The number of samples to keep, for a page that is opened later.
        max_streams: The number of clients that may watch at the same time.
        stream_seconds: The longest time of a stream; its client connects again by itself. The default is below the
            30 s after which gunicorn and Kubernetes kill a process that has not ended.
        token: The token that a request must contain, as `Authorization: Bearer TOKEN`, or as the password of any
            user, for which a browser asks. With `None` everybody who can reach the dashboard sees it.

    Attributes:
        feed: The samples.

    Raises:
        ValueError: if there is no producer, or a number is not positive.
        ConfigError: if the token is too short, or cannot be sent in a header.

    Example:
        >>> app = FastAPI()
        >>> app.mount("/producer", Dashboard(producer))
    """

    __slots__ = ("_access", "_is_closing", "_max_streams", "_stream_seconds", "_streams", "feed")

    @hides_arguments
    def __init__(
        self,
        producers: Source | Sequence[Source],
        *,
        interval: float = 1.0,
        history: int = 300,
        max_streams: int = 32,
        stream_seconds: float = 20.0,
        token: str | Secret | None = None,
    ) -> None:
        if max_streams < 1 or not stream_seconds > 0:
            raise ValueError(
                f"max_streams must be at least 1 and stream_seconds above 0, not {max_streams} and {stream_seconds}"
            )
        self._access = made_access(token)
        sources = producers if isinstance(producers, Sequence) else [producers]
        self.feed: Feed = Feed(sources, interval=interval, history=history)
        self._max_streams = max_streams
        self._stream_seconds = stream_seconds
        self._streams = 0
        self._is_closing = False

    @property
    def streams(self) -> int:
        """The number of clients that watch now."""
        return self._streams

    def close(self) -> None:
        """End all streams within 100 ms and refuse new ones, under a server whose end a stream cannot detect."""
        self._is_closing = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI defines it."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Answer lifespan events, which a server sends only to a top-level application."""
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                self.close()
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._may_see(scope):
            headers = [(b"www-authenticate", CHALLENGE.encode())]
            await _reply(scope, send, 401, "text/plain", REFUSAL, headers)
            return
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        if scope["method"] not in ("GET", "HEAD"):
            await _reply(scope, send, 405, "text/plain", b"only GET\n", [(b"allow", b"GET, HEAD")])
        elif not path.startswith("/"):
            # Without the slash the page's relative addresses would be those of its parent.
            name = scope["path"].rpartition("/")[2]
            await _reply(scope, send, 307, "text/plain", b"", [(b"location", f"{name}/".encode())])
        elif path == "/events":
            await self._stream(scope, receive, send)
        elif path == "/samples":
            await _reply(scope, send, 200, "application/json", self._samples())
        elif path[1:] in _FILES:
            name, kind = _FILES[path[1:]]
            await _reply(scope, send, 200, kind, _content(name))
        else:
            await _reply(scope, send, 404, "text/plain", b"there is nothing here\n")

    def _may_see(self, scope: Scope) -> bool:
        return self._access is None or self._access.allows(dict(scope["headers"]).get(b"authorization"))

    def _samples(self) -> bytes:
        samples = self.feed.since(0)
        return b'{"run":"%s","last":%d,"samples":[%s]}' % (
            self.feed.run.encode(),
            self.feed.last_number,
            b",".join(sample.encoded for sample in samples),
        )

    # -- streams ---

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_closing or _is_server_ending():
            await _reply(scope, send, 503, "text/plain", b"the server ends\n")
            return
        if self._streams >= self._max_streams:
            text = f"{self._streams} clients watch this dashboard already: see max_streams\n".encode()
            await _reply(scope, send, 503, "text/plain", text, [(b"retry-after", b"30")])
            return
        headers = [*_headers("text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        self._streams += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._until_ended, group.cancel_scope)
                group.start_soon(_until_gone, receive, group.cancel_scope)
                await self._pump(send, self._start_after(scope))
        finally:
            self._streams -= 1
        await send({"type": "http.response.body", "body": b""})

    def _start_after(self, scope: Scope) -> int:
        """Return the number of the last sample that the client has seen; 0 if none, or if of another feed."""
        told = dict(scope["headers"]).get(b"last-event-id", b"").decode("ascii", "replace")
        run, _, number = told.partition(".")
        is_ours = run == self.feed.run and number.isascii() and number.isdigit() and len(number) < 16
        return min(int(number), self.feed.last_number) if is_ours else 0

    async def _pump(self, send: Send, number: int) -> None:
        begin = {"run": self.feed.run, "interval_s": self.feed.interval, "after": number}
        await _send_event(
            send, f"retry: {_RECONNECT_MS}\nevent: begin\ndata: {json.dumps(begin)}\n\n".encode()
        )
        while True:
            samples = []
            with anyio.move_on_after(_SILENCE_SECONDS):
                samples = await self.feed.next_after(number)
            if not samples:
                await _send_event(send, b":\n\n")  # a comment, which clients ignore
            for sample in samples:
                number = sample.number
                head = f"id: {self.feed.run}.{number}\ndata: ".encode()
                await _send_event(send, head + sample.encoded + b"\n\n")
                # A server's send() waits only while much is unsent. Without a turn of the loop here, a client that
                # left would get the whole history, and asyncio would log a warning for each event after the fifth.
                await anyio.lowlevel.checkpoint()

    async def _until_ended(self, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self._stream_seconds):
            # There is no event for the server's end, only an attribute, which uvicorn polls, too.
            while not (self._is_closing or _is_server_ending()):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_SECONDS)
        scope.cancel()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _is_server_ending() -> bool:
    """Return whether uvicorn was asked to end: its server handles SIGTERM, and then sets an attribute.

    The lifespan event comes too late, after all requests have ended.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


@cache
def _content(name: str) -> bytes:
    return files("aioproduce.dashboard").joinpath("static", name).read_bytes()


def _headers(kind: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", kind.encode()), (b"cache-control", b"no-cache"), *_ALWAYS]


async def _send_event(send: Send, event: bytes) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _reply(
    scope: Scope, send: Send, status: int, kind: str, body: bytes, headers: Headers = ()
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*_headers(kind), length, *headers]}
    )
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
