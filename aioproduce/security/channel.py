"""What the core needs of an encrypted channel: bytes of the wire in, bytes of Kafka's protocol out, and back.

Implemented by `security.tls` with OpenSSL, and by the simulation with a stand-in that a seed determines. Used by
`core.cluster.broker_connection`, one channel a connection.

Invariants, which whoever implements a channel keeps:

1. No I/O: what is to be written to the socket is taken from `outgoing()`, and nothing is written anywhere else.
2. `send()` has encrypted all of its buffers when it returns, and holds no view of them.
3. Whatever bytes come, `receive()` gives plaintext or raises `TlsError`. Memory grows with the bytes that came, and
   not beyond a bound where the peer does not go on.
4. After a `TlsError`, or once `is_ended` is true, no plaintext comes any more. `outgoing()` may still have an alert
   for the peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A piece of a request, or of what the peer sent."""


class Channel(Protocol):
    """One end of one encrypted connection."""

    @property
    def is_established(self) -> bool:
        """Whether the handshake is done: `send()` may be called."""

    @property
    def is_ended(self) -> bool:
        """Whether the peer has said that it sends no more (TLS's close_notify)."""

    def start(self) -> None:
        """Begin the handshake: `outgoing()` has its first bytes."""

    def receive(self, data: Buffer) -> bytes:
        """Take bytes as they came from the socket, and go on with the handshake if it is not done.

        Returns:
            The plaintext that they complete, empty if none.

        Raises:
            TlsError: The handshake failed, or what came is not TLS. The channel is of no use any more.
        """

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt these pieces, in their order; `outgoing()` has them then.

        Raises:
            TlsError: OpenSSL refuses, after an end that the peer forced, say.
        """

    def outgoing(self) -> bytes:
        """What is to be written to the socket now, and is forgotten here; empty if nothing."""

    def describe(self) -> str:
        """Version and cipher for logs, `"TLSv1.3, TLS_AES_256_GCM_SHA384"`; empty before the handshake."""


class Channels(Protocol):
    """Makes the channels of one producer."""

    def prepare(self) -> None:
        """Read the key files anew where they have changed. It blocks; called in a thread before each connection.

        Raises:
            TlsError: A file cannot be read, or does not hold what it should; names the setting.
        """

    def open(self, host: str) -> Channel:
        """A channel to a broker, by the name or address that it was connected to. Never blocks.

        Raises:
            TlsError: It cannot be made: the settings do not go together with this OpenSSL, say.
        """
