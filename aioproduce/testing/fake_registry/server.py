"""The fake registry on a loopback port: the standard library's HTTP/1.1 server, in threads of its own.

Invariants:

1. Only one request at a time uses the registry's memory, and each is logged before it is answered.
2. `close()` ends every thread and socket, also those of requests that are held back.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, final
from urllib.parse import parse_qsl, urlsplit

from aioproduce.testing.fake_registry.subjects import Complaints, Refusal, Subjects

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


@final
@dataclass(frozen=True, slots=True)
class RegistryRequest:
    """One received request.

    Attributes:
        method: HTTP's method.
        path: The path as received, quoted.
        query: The parameters.
        body: The parsed JSON; None if there was no body.
        headers: By name in lower case.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True)
class _Fault:
    status: int | None
    body: bytes
    headers: tuple[tuple[str, str], ...]


@final
class FakeSchemaRegistry:
    """A schema registry in memory.

    Args:
        basic_auth: User and password that every request must have.
        bearer_token: A token that every request must have.
        complaints: Judges compatibility: from type, reader's and writer's text to a list of errors. By default,
            Avro's rules apply, and every other type is compatible with itself.
        port: The port on 127.0.0.1; 0 selects a free one.

    Example:
        >>> with FakeSchemaRegistry() as registry:
        ...     registry.url.startswith("http://127.0.0.1:")
        True
    """

    def __init__(
        self,
        *,
        basic_auth: tuple[str, str] | None = None,
        bearer_token: str | None = None,
        complaints: Complaints | None = None,
        port: int = 0,
    ) -> None:
        self.subjects: Subjects = Subjects(complaints)
        self.lock: threading.RLock = threading.RLock()
        self._requests: list[RegistryRequest] = []
        self._faults: list[_Fault] = []
        self._let_through = threading.Event()
        self._let_through.set()
        self._arrived = threading.Condition(self.lock)
        self.authorization: str | None = _authorization(basic_auth, bearer_token)
        self._server = _Server(self, port)
        self._thread: threading.Thread | None = None

    # -- lifetime ---

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Start serving, in a thread."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="fake schema registry"
        )
        self._thread.start()

    def close(self) -> None:
        """End all threads and sockets; requests that are held back get no answer."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.shutdown()
            thread.join()
        with self.lock:
            self._server.is_closing = True
        self._let_through.set()
        self._server.cut_off()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- inspection ---

    @property
    def requests(self) -> list[RegistryRequest]:
        """The received requests, in order, including refused ones."""
        with self.lock:
            return list(self._requests)

    def versions(self, subject: str) -> dict[int, str]:
        """Return the schemas of a subject by version; empty if it does not exist."""
        with self.lock:
            return self.subjects.versions_of(subject)

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema as another client would.

        Returns:
            Its id.

        Raises:
            Refusal: If the registry refuses it.
        """
        body = {"schema": schema, "schemaType": schema_type, "references": [*map(dict, references)]}
        with self.lock:
            answer = self.subjects.answer("POST", f"/subjects/{subject}/versions", {}, body)
        return int(answer["id"])

    def wait_for_requests(self, count: int) -> None:
        """Block until this many requests were received, answered or not; not for an event loop's thread."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._requests) >= count)

    # -- faults ---

    def fail_next(
        self,
        status: int | None,
        *,
        error_code: int | None = None,
        message: str = "Error in the backend data store",
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        times: int = 1,
    ) -> None:
        """Answer the next requests with an error, whatever they are.

        Args:
            status: The HTTP status; None closes the connection without an answer.
            error_code: The registry's code; by default the status followed by 01, e.g. 50001.
            message: The registry's message.
            body: A body that replaces the registry's JSON.
            headers: Further headers, e.g. `("Retry-After", "3")`.
            times: The number of requests.
        """
        if body is None:
            code = error_code if error_code is not None else (status or 0) * 100 + 1
            body = json.dumps({"error_code": code, "message": message}).encode()
        with self.lock:
            self._faults += [_Fault(status, body, tuple(headers))] * times

    def hold(self) -> None:
        """Hold back the answers to all requests until `release()`."""
        self._let_through.clear()

    def release(self) -> None:
        """Answer the requests that were held back, and all later ones."""
        self._let_through.set()

    def heal(self) -> None:
        """End all faults: forget those that are left, and answer the requests that are held back."""
        with self.lock:
            self._faults.clear()
        self.release()

    # -- for the server ---

    def take(self, request: RegistryRequest) -> _Fault | None:
        """Log a request. Return the fault with which to answer it, or `None`."""
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()
            fault = self._faults.pop(0) if self._faults else None
        self._let_through.wait()
        return fault


def _authorization(basic_auth: tuple[str, str] | None, bearer_token: str | None) -> str | None:
    if bearer_token is not None:
        return f"Bearer {bearer_token}"
    if basic_auth is not None:
        return "Basic " + base64.b64encode(":".join(basic_auth).encode()).decode()
    return None


@final
class _Server(ThreadingHTTPServer):
    """An HTTP server that keeps track of its connections, to end them."""

    daemon_threads = False  # each is joined by server_close()
    block_on_close = True
    request_queue_size = 128

    def __init__(self, registry: FakeSchemaRegistry, port: int) -> None:
        self.registry = registry
        self.is_closing = False
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.registry.lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.registry.lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def cut_off(self) -> None:
        """Close the connections that clients keep open."""
        with self.registry.lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client closed it first

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a disconnected client; print any other error, which is a bug here."""
        import sys

        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    # Headers and body are two small segments: with Nagle's algorithm the second waits 40 ms for a delayed ACK.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to stderr."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        body: Any = None
        refusal: Refusal | None = None
        if content:
            try:
                body = json.loads(content)
            except ValueError:
                refusal = Refusal(400, 400, "Unrecognized token in the request's JSON")
        headers = {name.lower(): value for name, value in self.headers.items()}
        registry = self.server.registry
        fault = registry.take(RegistryRequest(self.command, parts.path, query, body, headers))
        if self.server.is_closing:
            self.close_connection = True
        elif fault is not None:
            self._fail(fault)
        else:
            self._respond(parts.path, query, body, refusal)

    def _respond(self, path: str, query: Mapping[str, str], body: Any, refusal: Refusal | None) -> None:
        registry = self.server.registry
        expected = registry.authorization
        try:
            if expected is not None and self.headers.get("Authorization") != expected:
                raise Refusal(401, 401, "Unauthorized")
            if refusal is not None:
                raise refusal
            with registry.lock:
                answer = registry.subjects.answer(self.command, path, query, body)
        except Refusal as error:
            told = json.dumps({"error_code": error.code, "message": str(error)}).encode()
            self._write(error.status, told, ())
        else:
            self._write(200, json.dumps(answer, ensure_ascii=False).encode(), ())

    def _fail(self, fault: _Fault) -> None:
        if fault.status is None:
            self.close_connection = True
            return
        self._write(fault.status, fault.body, fault.headers)

    def _write(self, status: int, content: bytes, headers: Sequence[tuple[str, str]]) -> None:
        self.send_response(status)
        if not any(name.lower() == "content-type" for name, _ in headers):
            self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
