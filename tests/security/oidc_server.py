"""A token endpoint for tests: HTTPS on loopback, signed tokens, a JWKS for brokers, and every way to misbehave.

In a test: `with running_server() as server:`, and `server.misbehave("slow")`. The secured Kafka of `tests.secured`
has one next to it, and its brokers have the keys in a file (`key_set`). As a process:

    python -m tests.security.oidc_server --port-file F --ca-file CA.pem

It is told to misbehave by `POST /misbehave` with the name as the body, and ended by SIGTERM.

It knows one client (`CLIENT_ID`, `CLIENT_SECRET`), and accepts any assertion that is a JWT: what a test wants to
know of it, it reads in `server.requests`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus

import trustme
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID: Final = "producer-1"
CLIENT_SECRET: Final = "s3cret/with+letters=of:all;kinds"
ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "kafka"
SUBJECT: Final = "alice"

MISBEHAVIOURS: Final = frozenset(
    {
        "none",
        "slow",  # a letter of the body each 0.1 s, for 5 s
        "slow-headers",  # the same, within the headers
        "hang",  # accepts, reads, and says nothing for 5 s
        "cut",  # closes in the midst of the body
        "gone",  # closes without an answer
        "not-http",
        "huge",  # 64 MB
        "redirect",
        "html",
        "not-json",
        "list",
        "deep",  # nested a hundred thousand times
        "no-token",
        "number-token",
        "empty-token",
        "bad-letters",
        "no-expiry",  # neither expires_in nor exp
        "no-expires-in",
        "text-expires-in",
        "bad-expires-in",
        "expired",
        "clock-ahead",  # valid in an hour from now, by its own clock
        "id-token",
        "opaque",  # a token that is no JWT
        "echo",  # refuses, and repeats all that it was sent
        "401",
        "500",
    }
)


@dataclass
class TokenServer:
    """One running server.

    Attributes:
        url: Of the token endpoint.
        requests: What was posted to it: the headers and the fields of the form.
        tokens: The tokens that it gave.
    """

    http: ThreadingHTTPServer
    scheme: str
    key: RSAKey
    lifetime: int
    requests: list[tuple[dict[str, str], dict[str, str]]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    misbehaviour: str = "none"
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        return int(self.http.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/jwks"

    def misbehave(self, how: str) -> None:
        assert how in MISBEHAVIOURS, how
        self.misbehaviour = how

    def sign(self, claims: Mapping[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": "key-1"}, dict(claims), self.key)

    def token(self) -> str:
        """A token as it is given to a client, had without asking for it."""
        return str(self.answer()["access_token"])

    def answer(self) -> dict[str, Any]:
        """What is answered to a client that it knows, as the misbehaviour has it."""
        how, now = self.misbehaviour, int(time.time())
        now += {"clock-ahead": 3600, "expired": -7200}.get(how, 0)
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "nbf": now, "scope": "produce"}
        if how != "no-expiry":
            claims["exp"] = now + self.lifetime
        token: Any = self.sign(claims)
        self.tokens.append(token)
        token = {
            "number-token": 17,
            "empty-token": "",
            "bad-letters": f"{token}\nX-Injected: 1",
            "opaque": "opaque-token-1",
        }.get(how, token)
        answer = {"token_type": "Bearer", "expires_in": self.lifetime}
        if how != "no-token":
            answer["id_token" if how == "id-token" else "access_token"] = token
        if how in ("no-expiry", "no-expires-in", "expired", "clock-ahead"):
            del answer["expires_in"]
        if how == "text-expires-in":
            answer["expires_in"] = str(self.lifetime)
        if how == "bad-expires-in":
            answer["expires_in"] = "soon"
        return answer


def key_set(key: RSAKey) -> dict[str, Any]:
    """The JWKS by which tokens that the key signs are verified."""
    return {"keys": [key.as_dict(private=False, kid="key-1", alg="RS256", use="sig")]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: TokenServer

    def do_GET(self) -> None:
        if self.path != "/jwks":
            return self._say(404, {"error": "not_found"})
        return self._say(200, key_set(self.server_of.key))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/misbehave":
            self.server_of.misbehave(body.strip())
            return self._say(200, {})
        if self.path.partition("?")[0] != "/token":
            return self._say(404, {"error": "not_found"})
        headers = {name.lower(): value for name, value in self.headers.items()}
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.server_of.requests.append((headers, form))
        if self._misbehaves(headers, body):
            return None
        if not _is_known(headers, form):
            return self._say(401, {"error": "invalid_client", "error_description": "who\x1b[31m\nis that?"})
        return self._say(200, self.server_of.answer())

    def _misbehaves(self, headers: Mapping[str, str], body: str) -> bool:
        """Whether the answer was of its own kind."""
        how = self.server_of.misbehaviour
        said: dict[str, Any] = {
            "redirect": lambda: self._say(307, {}, location="https://elsewhere.test/token"),
            "html": lambda: self._send(200, b"<html>log in</html>", kind="text/html"),
            "not-json": lambda: self._send(200, b"{access_token"),
            "list": lambda: self._say(200, ["access_token"]),
            "deep": lambda: self._send(200, b"[" * 100_000),
            "401": lambda: self._say(401, {"error": "invalid_client", "error_description": "x" * 5000}),
            "500": lambda: self._send(500, b"out of order", kind="text/plain"),
            "echo": lambda: self._say(
                400, {"error": "invalid_request", "error_description": _echo(headers, body)}
            ),
            "hang": lambda: self.server_of.ending.wait(5),
            "gone": lambda: None,
            "not-http": lambda: self.wfile.write(b"\x15\x03\x01 no HTTP\r\n\r\n"),
            "huge": self._say_much,
            "cut": lambda: self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"),
            "slow": lambda: self._drip(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"),
            "slow-headers": lambda: self._drip(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        }
        if how not in said:
            return False
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has gone, as it should
            said[how]()
        return True

    def _drip(self, first: bytes) -> None:
        self.wfile.write(first)
        for _ in range(50):
            if self.server_of.ending.wait(0.1):
                return
            self.wfile.write(b"x")

    def _say_much(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
        for _ in range(1024):
            self.wfile.write(b" " * 65536)

    def _say(self, status: int, answer: object, location: str | None = None) -> None:
        self._send(status, json.dumps(answer).encode(), location=location)

    def _send(
        self, status: int, body: bytes, kind: str = "application/json", location: str | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what is asked is in `requests`."""


def _is_known(headers: Mapping[str, str], form: Mapping[str, str]) -> bool:
    """Whether it is our client, by a secret (plain, or quoted as RFC 6749 has it), or by an assertion."""
    if form.get("client_assertion", form.get("assertion", "")).count(".") == 2:
        return True
    kind, _, encoded = headers.get("authorization", "").partition(" ")
    if kind != "Basic":
        return False
    pair = tuple(base64.b64decode(encoded).decode().split(":", 1))
    known = (CLIENT_ID, CLIENT_SECRET)
    return pair == known or tuple(map(unquote_plus, pair)) == known


def _echo(headers: Mapping[str, str], body: str) -> str:
    encoded = headers.get("authorization", "").partition(" ")[2]
    return f"you sent {encoded} which is {base64.b64decode(encoded).decode()} and {body}, {parse_qs(body)}"


@contextlib.contextmanager
def running_server(
    *,
    certificate: trustme.LeafCert | Path | None = None,
    is_plain: bool = False,
    port: int = 0,
    lifetime: int = 3600,
    key: RSAKey | None = None,
) -> Iterator[TokenServer]:
    """A server on loopback, in threads, until the context ends.

    Args:
        certificate: What it shows, or a PEM file of key and chain; needed unless it is plain.
        is_plain: http in place of https.
        port: 0: any.
        lifetime: Seconds that its tokens are valid.
        key: What signs them; None: a new one.
    """
    handler = type("Handler", (_Handler,), {})
    http = ThreadingHTTPServer(("127.0.0.1", port), handler)
    http.daemon_threads = True
    if not is_plain:
        assert certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if isinstance(certificate, Path):
            context.load_cert_chain(certificate)
        else:
            certificate.configure_cert(context)
        # The handshake is done where it does not hold up the next connection.
        http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    http.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    server = TokenServer(
        http=http,
        scheme="http" if is_plain else "https",
        key=key or RSAKey.generate_key(2048),
        lifetime=lifetime,
    )
    handler.server_of = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        http.shutdown()
        http.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A token endpoint for tests, until SIGTERM.")
    parser.add_argument(
        "--port-file", type=Path, required=True, help="where its port is written, once it listens"
    )
    parser.add_argument("--ca-file", type=Path, help="where the authority of its certificate is written, PEM")
    parser.add_argument("--plain", action="store_true", help="http in place of https")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lifetime", type=int, default=3600, help="seconds that its tokens are valid")
    parser.add_argument("--misbehave", choices=sorted(MISBEHAVIOURS), default="none")
    given = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, lambda *_: ended.set())
    authority = trustme.CA()
    if given.ca_file is not None:
        authority.cert_pem.write_to_path(given.ca_file)
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    with running_server(
        certificate=certificate, is_plain=given.plain, port=given.port, lifetime=given.lifetime
    ) as server:
        server.misbehave(given.misbehave)
        unfinished = given.port_file.with_suffix(".tmp")
        unfinished.write_text(str(server.port))
        os.replace(unfinished, given.port_file)
        ended.wait()


if __name__ == "__main__":
    main()
