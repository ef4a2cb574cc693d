"""Certificates, made once: EC keys, which take a millisecond."""

from __future__ import annotations

import pytest
import trustme

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
