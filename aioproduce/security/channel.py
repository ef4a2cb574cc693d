"""The core's interface to an encrypted channel: bytes of the wire in, bytes of Kafka's protocol out, and back.

Implemented by `security.tls` with OpenSSL, and by the simulation with a stand-in that a seed determines. Used by
`core.cluster.broker_connection`, with one channel per connection.

Invariants of every implementation:

1. It does no I/O. The bytes to write to the socket come only from `outgoing()`.
2. When `send()` returns, it has encrypted all of its buffers and holds no view of them.
3. For any bytes, `receive()` returns plaintext or raises `TlsError`. Memory grows with the bytes received, up to a
   bound if the peer does not complete a record.
4. After a `TlsError`, or once `is_ended` is true, there is no more plaintext. `outgoing()` may still return an
   alert for the peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A piece of a request, or of the bytes that the peer sent."""


class Channel(Protocol):
    """One end of one encrypted connection."""

    @property
    def is_established(self) -> bool:
        """Whether the handshake is done and `send()` may be called."""

    @property
    def is_ended(self) -> bool:
        """Whether the peer has announced that it sends no more (TLS's close_notify)."""

    def start(self) -> None:
        """Begin the handshake; `outgoing()` then returns its first bytes."""

    def receive(self, data: Buffer) -> bytes:
        """Process bytes from the socket, and continue the handshake if it is not done.

        Returns:
            The plaintext that they complete, possibly empty.

        Raises:
            TlsError: If the handshake failed, or if the bytes are not TLS. The channel is unusable afterwards.
        """

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt these pieces in order; `outgoing()` then returns the result.

        Raises:
            TlsError: If OpenSSL refuses, e.g. after the peer forced an end.
        """

    def outgoing(self) -> bytes:
        """Return the bytes to write to the socket now, possibly none, and forget them."""

    def describe(self) -> str:
        """Return version and cipher for logs, `"TLSv1.3, TLS_AES_256_GCM_SHA384"`; empty before the handshake."""


class Channels(Protocol):
    """Creates the channels of one producer."""

    def prepare(self) -> None:
        """Reload the key files that have changed. It blocks, and is called in a thread before each connection.

        Raises:
            TlsError: If a file cannot be read or has the wrong content. The error names the setting.
        """

    def open(self, host: str) -> Channel:
        """Create a channel to a broker with the name or address of the connection. It never blocks.

        Raises:
            TlsError: If it cannot be created, e.g. because this OpenSSL does not support the settings.
        """
