"""The broker's side of TLS, without I/O: OpenSSL on two buffers in memory.

Created by `FakeCluster`; used by `secured`, one channel per connection. It has the interface of
`aioproduce.security.channel`, and `end()`.
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
    """Return a context for a broker.

    Args:
        identity: Its certificate chain and key.
        versions: `TLSv1.2`, `TLSv1.3` or both.
        client_auth: `ssl.client.auth`: `none`, `requested` or `required`.
        ca: The authority, in PEM, whose certificates clients may use.
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
    """Return a context for a client that trusts only this authority, and sends `identity` on request."""
    context = ssl.create_default_context(cadata=ca)
    if identity is not None:
        load_identity(context, identity)
    return context


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Load a certificate into a context; OpenSSL reads only files, which are deleted before this returns."""
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
    """Creates the channels of a cluster's brokers.

    Args:
        context: Returns the context for the next connection.
        sends_close_notify: Whether a broker sends close_notify when it closes.
    """

    _context: Callable[[], ssl.SSLContext]
    sends_close_notify: bool = True

    def accept(self) -> TlsServerChannel:
        """Return a channel for a client that has connected."""
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
        """Whether the handshake is complete."""
        return self._is_established

    def start(self) -> None:
        """Do nothing: the client starts."""

    def receive(self, data: Buffer) -> bytes:
        """Return the plaintext that these bytes from the socket complete.

        Raises:
            TlsError: If the handshake failed, or the bytes are not TLS.
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
        """Announce the end of the data, unless the handshake is not complete."""
        if self._is_established and self._sends_close_notify:
            try:
                self._object.unwrap()
            except ssl.SSLError:
                return  # the client has not sent its notice; ours is written anyway

    def outgoing(self) -> bytes:
        """Return the bytes to write to the socket."""
        return self._outgoing.read()

    def describe(self) -> str:
        """Return version and cipher; empty before the handshake."""
        cipher = self._object.cipher()
        return f"{self._object.version()}, {cipher[0]}" if self._is_established and cipher else ""

    def peer_certificate(self) -> bytes | None:
        """Return the client's certificate in DER, or `None`."""
        return self._object.getpeercert(binary_form=True)
