"""Keys and certificates, made once: a key of RSA takes tenths of a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from joserfc.jwk import RSAKey

from tests.security.oidc_server import TokenServer, running_server
from tests.security.tls_peer import HOST


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def broker(ca: trustme.CA) -> trustme.LeafCert:
    return ca.issue_cert(HOST, "127.0.0.1", "::1")


@pytest.fixture(scope="session")
def client(ca: trustme.CA) -> trustme.LeafCert:
    """A client's certificate, with an intermediate CA."""
    return ca.create_child_ca().issue_cert("client@example.org")


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture(scope="session")
def localhost_certificate(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("localhost")


@pytest.fixture(scope="session")
def rsa_key() -> RSAKey:
    return RSAKey.generate_key(2048)


@pytest.fixture(scope="session")
def rsa_key_file(rsa_key: RSAKey, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("keys") / "rsa.pem"
    path.write_bytes(rsa_key.as_pem(private=True))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def token_server(localhost_certificate: trustme.LeafCert, rsa_key: RSAKey) -> Iterator[TokenServer]:
    with running_server(certificate=localhost_certificate, key=rsa_key) as server:
        yield server
