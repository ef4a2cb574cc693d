"""A broker's side of TLS, in memory or by OpenSSL's command line, and the certificates for it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aioproduce.config.secret import Secret
from aioproduce.security.key_files import KeyStore, TrustStore
from aioproduce.security.tls import TlsChannel, TlsChannels, TlsSettings

HOST = "kafka-1.example"
NOW = datetime.now(UTC).timestamp()
"""trustme's certificates are valid by the real clock, and OpenSSL has no other."""

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def pem(leaf: trustme.LeafCert) -> str:
    """Chain and key of a certificate."""
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return (chain + leaf.private_key_pem.bytes()).decode()


def encrypted(key: bytes, password: str) -> str:
    """A private key under a password, as PKCS8."""
    loaded = load_pem_private_key(key, None)
    return loaded.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    ).decode()


def server_context(
    leaf: trustme.LeafCert, *, version: str | None = None, client_ca: trustme.CA | None = None
) -> ssl.SSLContext:
    """What a broker is configured with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    if version is not None:
        context.minimum_version = context.maximum_version = VERSIONS[version]
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass
class Peer:
    """The other end of a channel: OpenSSL through the stdlib."""

    context: ssl.SSLContext
    server_name: str | None = None
    is_established: bool = False
    error: ssl.SSLError | None = None
    received: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.context.sni_callback = self._named
        self.tls = self.context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def _named(self, _: Any, name: str, __: Any) -> None:
        self.server_name = name

    def receive(self, data: bytes) -> None:
        """Go on with what came."""
        self.incoming.write(data)
        try:
            if not self.is_established:
                self.tls.do_handshake()
                self.is_established = True
            while piece := self.tls.read(65_536):
                self.received += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error

    def say(self, data: bytes) -> bytes:
        """Plaintext for the client, as bytes of the wire."""
        self.tls.write(data)
        return self.outgoing.read()

    def close(self) -> bytes:
        """close_notify."""
        with suppress(ssl.SSLError):
            self.tls.unwrap()
        return self.outgoing.read()


def shake(channel: TlsChannel, peer: Peer) -> None:
    """Carry bytes between the two until nothing moves."""
    channel.start()
    while True:
        sent = channel.outgoing()
        if sent:
            peer.receive(sent)
        answered = peer.outgoing.read()
        if not sent and not answered:
            return
        if answered:
            try:
                channel.receive(answered)
            finally:
                if alert := channel.outgoing():
                    peer.receive(alert)


def trusting(ca: trustme.CA, **settings: Any) -> TlsSettings:
    """Settings that trust one CA, given inline."""
    certificates = Secret(ca.cert_pem.bytes().decode())
    return TlsSettings(truststore=TrustStore(certificates=certificates), **settings)


def made(settings: TlsSettings, wall_clock: Callable[[], float] = lambda: NOW) -> TlsChannels:
    """Channels that are ready."""
    channels = TlsChannels(settings, wall_clock=wall_clock)
    channels.prepare()
    return channels


def with_file(path: Path, content: str, **passwords: Secret) -> KeyStore:
    """A key store in a file that only we may read."""
    path.touch(mode=0o600)
    path.write_text(content)
    return KeyStore(location=str(path), **passwords)
