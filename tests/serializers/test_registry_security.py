"""The registry's client over TLS, with certificates, and with every credential of Confluent's keys.

The registry is `http.server` behind Python's own `ssl`, with certificates of trustme.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trustme

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, SchemaRegistryError
from aioproduce.serializers import SchemaRegistryClient
from tests.security.hidden import everything_told
from tests.security.oidc_server import CLIENT_ID, CLIENT_SECRET, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "pä:ss-w0rd"
BASIC = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()


class Registry:
    """What was asked of a server: paths and Authorization headers."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str | None, dict[str, str]]] = []
        self.redirect_to: str | None = None

    @property
    def authorizations(self) -> list[str | None]:
        return [authorization for _, authorization, _ in self.asked]


@contextlib.contextmanager
def served(context: ssl.SSLContext | None) -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, self.headers.get("Authorization"), dict(self.headers)))
            self.send_response(200 if registry.redirect_to is None else 307)
            if registry.redirect_to is not None:
                self.send_header("Location", registry.redirect_to + self.path)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.url = f"{'http' if context is None else 'https'}://localhost:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(ca: trustme.CA) -> trustme.LeafCert:
    return ca.issue_cert("localhost")


@pytest.fixture
def ca_file(ca: trustme.CA, tmp_path: Path) -> str:
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.fixture
def registry(certificate: trustme.LeafCert) -> Iterator[Registry]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    with served(context) as running:
        yield running


def subjects(settings: dict[str, object], backend: str = "asyncio", count: int = 1, **arguments: Any) -> None:
    async def main() -> None:
        client = SchemaRegistryClient.from_mapping(settings, retries=0, **arguments)
        async with client:
            for _ in range(count):
                assert await client.subjects() == []

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("prefix", ["", "schema.registry."])
def test_basic_auth_and_an_own_authority(registry: Registry, ca_file: str, prefix: str, backend: str) -> None:
    settings: dict[str, object] = {
        "schema.registry.url": registry.url,
        f"{prefix}basic.auth.credentials.source": "USER_INFO",
        f"{prefix}basic.auth.user.info": f"me:{PASSWORD}",
        f"{prefix}ssl.ca.location": ca_file,
        "linger.ms": "5",
    }
    subjects(settings, backend)
    assert registry.authorizations == [BASIC]


def test_secrets_as_arguments(registry: Registry, ca_file: str) -> None:
    settings: dict[str, object] = {"url": registry.url, "ssl.ca.location": ca_file}
    subjects(settings, basic_auth=("me", Secret(PASSWORD)))
    subjects(settings, bearer_token=Secret("t0ken"))
    subjects(settings, bearer_token=lambda: Secret("another"))
    assert registry.authorizations == [BASIC, "Bearer t0ken", "Bearer another"]


def test_a_static_token_with_confluent_clouds_headers(registry: Registry, ca_file: str) -> None:
    subjects(
        {
            "schema.registry.url": registry.url,
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": "t0ken",
            "bearer.auth.logical.cluster": "lsrc-1",
            "bearer.auth.identity.pool.id": "pool-2",
            "ssl.ca.location": ca_file,
        }
    )
    ((_, authorization, headers),) = registry.asked
    assert authorization == "Bearer t0ken"
    assert (headers["target-sr-cluster"], headers["Confluent-Identity-Pool-Id"]) == ("lsrc-1", "pool-2")


def test_a_token_of_an_endpoint_is_fetched_once(
    registry: Registry, ca_file: str, certificate: trustme.LeafCert, backend: str
) -> None:
    with running_server(certificate=certificate) as endpoint:
        settings: dict[str, object] = {
            "schema.registry.url": registry.url,
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": endpoint.url,
            "bearer.auth.client.id": CLIENT_ID,
            "bearer.auth.client.secret": CLIENT_SECRET,
            "ssl.ca.location": ca_file,
        }
        subjects(settings, backend, count=3)
        assert len(endpoint.requests) == 1
        assert len(set(registry.authorizations)) == 1
        assert str(registry.authorizations[0]).startswith("Bearer ey")

        with pytest.raises(SchemaRegistryError, match="invalid_client") as raised:
            subjects({**settings, "bearer.auth.client.secret": "wrong-secret"}, backend)
        assert "wrong-secret" not in everything_told(raised.value, ours_only=True)


def test_what_sasl_has_is_inherited(registry: Registry, ca_file: str) -> None:
    base: dict[str, object] = {"schema.registry.url": registry.url, "ssl.ca.location": ca_file}
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": PASSWORD}
    subjects({**base, **plain, "basic.auth.credentials.source": "SASL_INHERIT"})

    async def provider() -> str:
        return "t0ken"

    tokens = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": provider}
    subjects({**base, **tokens, "bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT"})
    assert registry.authorizations == [BASIC, "Bearer t0ken"]


@pytest.mark.parametrize("is_one_file", [False, True])
def test_a_client_certificate(
    ca: trustme.CA, certificate: trustme.LeafCert, ca_file: str, tmp_path: Path, is_one_file: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    own = ca.issue_cert("me@example.org")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    names = ("both.pem", "both.pem") if is_one_file else ("certificate.pem", "key.pem")
    with served(context) as registry:
        settings: dict[str, object] = {"schema.registry.url": registry.url, "ssl.ca.location": ca_file}
        with pytest.raises(SchemaRegistryError):
            subjects(settings)
        settings["ssl.certificate.location"] = str(tmp_path / names[0])
        settings["ssl.key.location"] = str(tmp_path / names[1])
        subjects(settings)
        assert len(registry.asked) == 1


def test_an_authority_that_is_not_trusted(registry: Registry, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    settings: dict[str, object] = {
        "schema.registry.url": registry.url,
        "basic.auth.user.info": f"me:{PASSWORD}",
        "ssl.ca.location": str(tmp_path / "other.pem"),
    }
    with pytest.raises(SchemaRegistryError, match="CERTIFICATE_VERIFY_FAILED") as raised:
        subjects(settings)
    assert PASSWORD not in everything_told(raised.value, ours_only=True)
    assert registry.asked == []


def test_credentials_go_to_no_other_host(registry: Registry, ca_file: str) -> None:
    with served(None) as elsewhere:
        registry.redirect_to = elsewhere.url
        settings: dict[str, object] = {"schema.registry.url": registry.url, "ssl.ca.location": ca_file}
        with pytest.raises(SchemaRegistryError, match="answered 307"):
            subjects(settings, basic_auth=("me", PASSWORD))
        assert registry.authorizations == [BASIC]
        assert elsewhere.asked == []


@pytest.mark.parametrize("trouble", ["500", "404", "nothing"])
def test_no_frame_has_the_credentials(registry: Registry, ca_file: str, trouble: str) -> None:
    settings: dict[str, object] = {
        "schema.registry.url": registry.url + "/gone" if trouble == "404" else registry.url,
        "ssl.ca.location": ca_file,
    }
    if trouble == "nothing":
        settings["schema.registry.url"] = "https://localhost:1"
    registry.redirect_to = "https://localhost:1"
    for credentials in ({"basic_auth": ("me", PASSWORD)}, {"bearer_token": "t0ken-of-mine"}):
        with pytest.raises(SchemaRegistryError) as raised:
            subjects(settings, **credentials)
        whole = everything_told(raised.value, ours_only=True)
        assert "_try" in whole or trouble == "nothing"  # the frames were looked at
        assert not [secret for secret in (PASSWORD, BASIC[6:], "t0ken-of-mine") if secret in whole]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "schema.registry.url"),
        ({"basic.auth.credentials.source": "FILE"}, "basic.auth.credentials.source"),
        ({"basic.auth.user.info": "letmein-without-colon"}, "basic.auth.user.info"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.token"),
        ({"bearer.auth.credentials.source": "CUSTOM"}, "bearer.auth.credentials.source"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, "bearer.auth.issuer.endpoint.url"),
        ({"ssl.key.location": "key.pem"}, "ssl.certificate.location"),
        ({"basic.auth.user.info": 7}, "basic.auth.user.info"),
    ],
)
def test_settings_that_are_no_good(settings: dict[str, object], key: str) -> None:
    base = {"schema.registry.url": "https://registry"} if settings else {}
    with pytest.raises(ConfigError) as raised:
        SchemaRegistryClient.from_mapping({**base, **settings})
    assert raised.value.key == key
    assert key in str(raised.value)
    assert "letmein" not in str(raised.value)


def test_a_key_file_that_is_not_there(registry: Registry) -> None:
    settings: dict[str, object] = {
        "schema.registry.url": registry.url,
        "ssl.ca.location": "/nowhere/ca.pem",
    }
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem"):
        subjects(settings)
