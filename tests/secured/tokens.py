"""An OIDC server of the tests: it signs tokens, publishes its keys (JWKS), and gives tokens for a client's secret.

The tokens and the key set are made by joserfc. Brokers read the keys from a file, so that they do not depend on the
server's life; clients ask the token endpoint over HTTPS.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey

if TYPE_CHECKING:
    from pathlib import Path

ISSUER: Final = "https://oidc.aioproduce.test"
AUDIENCE: Final = "kafka"
CLIENT_ID: Final = "alice"
CLIENT_SECRET: Final = "client-secret"


class TokenServer:
    """Signs tokens from the start; serves `url` while its block lasts.

    Args:
        folder: Where the key set goes.
        certificate: PEM file of key and chain for HTTPS.

    Attributes:
        jwks: The file with the key set.
        asked: The forms that were posted.
        lifetime: Of the tokens of the endpoint, in seconds.
        is_gone: Whether the endpoint closes every connection without an answer.
    """

    def __init__(self, folder: Path, certificate: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "tests", "use": "sig", "alg": "RS256"})
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.asked: list[dict[str, list[str]]] = []
        self.lifetime = 300.0
        self.is_gone = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=True)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="token server")

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"https://localhost:{self._server.server_address[1]}/token"

    def token(self, subject: str = CLIENT_ID, *, lifetime: float = 300.0) -> str:
        """A signed token; a negative lifetime makes an expired one."""
        now = int(time.time())
        claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now - 1, "exp": int(now + lifetime)}
        return jwt.encode({"alg": "RS256", "kid": "tests"}, claims, self._key)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10.0

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                server.asked.append(form)
                if server.is_gone:
                    self.close_connection = True
                    return
                basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                in_form = [form.get(name) for name in ("client_id", "client_secret")]
                if self.headers.get("Authorization") == f"Basic {basic}" or in_form == [
                    [CLIENT_ID],
                    [CLIENT_SECRET],
                ]:
                    token = server.token(lifetime=server.lifetime)
                    answer = {"access_token": token, "token_type": "Bearer", "expires_in": server.lifetime}
                    self._answer(200, answer)
                else:
                    self._answer(401, {"error": "invalid_client"})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on the terminal."""

        return Handler


def unsecured_token(subject: str, *, lifetime: float = 300.0) -> str:
    """A token without a signature, as Kafka's unsecured validator takes it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now - 1, "exp": int(now + lifetime)})
    coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{'.'.join(coded)}."
