"""The broker's side of TLS, without I/O: OpenSSL on two buffers in memory.

Made by `FakeCluster`; driven by `secured`, one channel a connection. It keeps the contract of
`aioproduce.security.channel`, and adds `end()`.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import TlsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.security.channel import Buffer
    from aioproduce.testing.fake_cluster.certificates import Identity

_READ_BYTES: Final = 64 * 1024
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(
    identity: Identity, *, versions: Sequence[str], client_auth: str, ca: str
) -> ssl.SSLContext:
    """A context for a broker.

    Args:
        identity: What it shows: its chain and its key.
        versions: `TLSv1.2`, `TLSv1.3` or both.
        client_auth: `ssl.client.auth`: `none`, `requested` or `required`.
        ca: In PEM, whose certificates clients may show.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    enabled = sorted(_VERSIONS[version] for version in versions)
    context.minimum_version, context.maximum_version = enabled[0], enabled[-1]
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if client_auth != "none":
        context.load_verify_locations(cadata=ca)
    load_identity(context, identity)
    return context


def client_context(ca: str, identity: Identity | None) -> ssl.SSLContext:
    """A context for a client that trusts this authority alone, and shows `identity` if it is asked."""
    context = ssl.create_default_context(cadata=ca)
    if identity is not None:
        load_identity(context, identity)
    return context


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Have a context show a certificate; OpenSSL takes files only, which are gone when this returns."""
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(identity.key + identity.chain)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


@final
@dataclass(slots=True, repr=False)
class TlsServerChannels:
    """Makes the channels of a cluster's brokers.

    Args:
        context: Gives the context of the next connection.
        sends_close_notify: Whether a broker that closes says so in TLS.
    """

    _context: Callable[[], ssl.SSLContext]
    sends_close_notify: bool = True

    def accept(self) -> TlsServerChannel:
        """A channel to a client that has connected."""
        return TlsServerChannel(self._context(), sends_close_notify=self.sends_close_notify)


@final
class TlsServerChannel:
    """The broker's end of one connection: a `Channel`."""

    __slots__ = ("_incoming", "_is_established", "_object", "_outgoing", "_sends_close_notify", "is_ended")

    def __init__(self, context: ssl.SSLContext, *, sends_close_notify: bool = True) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sends_close_notify = sends_close_notify
        self._is_established = False
        self.is_ended: bool = False

    @property
    def is_established(self) -> bool:
        """Whether the handshake is done."""
        return self._is_established

    def start(self) -> None:
        """Do nothing: the client speaks first."""

    def receive(self, data: Buffer) -> bytes:
        """Take bytes of the socket; the plaintext that they complete.

        Raises:
            TlsError: The handshake failed, or what came is not TLS.
        """
        self._incoming.write(data)
        plaintext = bytearray()
        try:
            if not self._is_established:
                self._object.do_handshake()
                self._is_established = True
            while piece := self._object.read(_READ_BYTES):
                plaintext += piece
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            raise TlsError(f"TLS with a client failed: {error}", reason=error.reason or str(error)) from error
        return bytes(plaintext)

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt these pieces."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            while view:
                view = view[self._object.write(view) :]

    def end(self) -> None:
        """Say that no more comes, unless the handshake is not done."""
        if self._is_established and self._sends_close_notify:
            try:
                self._object.unwrap()
            except ssl.SSLError:
                return  # the client has not said so; the notice is written all the same

    def outgoing(self) -> bytes:
        """What is to be written to the socket."""
        return self._outgoing.read()

    def describe(self) -> str:
        """Version and cipher; empty before the handshake."""
        cipher = self._object.cipher()
        return f"{self._object.version()}, {cipher[0]}" if self._is_established and cipher else ""

    def peer_certificate(self) -> bytes | None:
        """What the client has shown, in DER; `None` if nothing."""
        return self._object.getpeercert(binary_form=True)
