"""The simulation's substitute for TLS: a channel that a seed determines, and that detects what TLS detects.

Both ends implement `aioproduce.security.channel.Channel`. It is not cryptography and protects nothing: it is as
hard to misuse as TLS, and uses no random numbers of OpenSSL.

A record is a byte for its kind, three for the body's length, the body, and four of a checksum. A handshake has two
messages: the client's nonce, then the broker's. From then on the body of a record and its checksum are XORed with a
stream that depends on the nonces, the direction and the record's number: the wire never shows plaintext, and a byte
that is changed, missing, repeated or moved is detected.

Invariants:
1. The same seed gives the same bytes. Nonces are derived from the seed and the number of the channel.
2. After a `TlsError` nothing is decrypted any more; `outgoing()` has an alert.
3. At most one record is buffered, of 16 KiB and a few bytes.
"""

from __future__ import annotations

import hashlib
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import TlsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.security.channel import Buffer

# The maximum of a TLS record (RFC 8446, 5.1).
_MAX_BODY: Final = 16 * 1024
_HEAD: Final = 4
_CHECKSUM: Final = 4
_NONCE: Final = 16


class _Kind(IntEnum):
    HELLO = 0x16
    DATA = 0x17
    ALERT = 0x15
    END = 0x18


_KINDS: Final = frozenset(_Kind)


@final
class StandInChannel:
    """One end of a connection.

    Args:
        nonce: The nonce of this end, 16 bytes.
        is_client: Whether this is the client's end.
        refusal: Why this end aborts the handshake, as for an untrusted certificate; empty: it does not.
    """

    __slots__ = (
        "_has_failed",
        "_incoming",
        "_is_client",
        "_nonce",
        "_out",
        "_received",
        "_refusal",
        "_secret",
        "_sent",
        "is_ended",
    )

    def __init__(self, nonce: bytes, *, is_client: bool, refusal: str = "") -> None:
        self._nonce = nonce
        self._is_client = is_client
        self._refusal = refusal
        self._incoming = bytearray()
        self._out = bytearray()
        self._secret = b""
        self._sent = self._received = 0
        self._has_failed = False
        self.is_ended: bool = False

    @property
    def is_established(self) -> bool:
        """Whether the handshake is complete."""
        return bool(self._secret) and not self._has_failed

    def start(self) -> None:
        """Begin the handshake; a broker waits for the client."""
        if self._is_client:
            self._put(_Kind.HELLO, self._nonce)

    def receive(self, data: Buffer) -> bytes:
        """Return the plaintext that these bytes complete.

        Raises:
            TlsError: If they are not what the other end has sent, or it has aborted the handshake.
        """
        if self._has_failed:
            raise self._failed("used after a failure")
        self._incoming += data
        plaintext = bytearray()
        while not self.is_ended and (record := self._take_record()) is not None:
            plaintext += self._take(*record)
        if self.is_ended:
            self._incoming.clear()
        return bytes(plaintext)

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt these pieces.

        Raises:
            TlsError: If the handshake is not complete.
        """
        if not self.is_established:
            raise self._failed("no handshake")
        whole = b"".join(bytes(buffer) for buffer in buffers)
        for at in range(0, len(whole), _MAX_BODY):
            self._put(_Kind.DATA, whole[at : at + _MAX_BODY])

    def end(self) -> None:
        """Announce the end of the data, like close_notify."""
        if self.is_established:
            self._put(_Kind.END, b"")

    def outgoing(self) -> bytes:
        """Return the bytes to write, and forget them."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def describe(self) -> str:
        """Version and cipher; empty before the handshake."""
        return "simulated TLS, XOR" if self.is_established else ""

    def _take_record(self) -> tuple[int, bytes, bytes] | None:
        if len(self._incoming) < _HEAD:
            return None
        kind, size = self._incoming[0], int.from_bytes(self._incoming[1:_HEAD])
        # Before the length is believed: plaintext at an encrypted port announces anything.
        if kind not in _KINDS or size > _MAX_BODY:
            raise self._failed("wrong version number")
        if len(self._incoming) < _HEAD + size + _CHECKSUM:
            return None
        body = bytes(self._incoming[_HEAD : _HEAD + size])
        checksum = bytes(self._incoming[_HEAD + size : _HEAD + size + _CHECKSUM])
        del self._incoming[: _HEAD + size + _CHECKSUM]
        return kind, body, checksum

    def _take(self, kind: int, body: bytes, checksum: bytes) -> bytes:
        number, self._received = self._received, self._received + 1
        if kind == _Kind.ALERT:
            self._has_failed = True
            raise TlsError(f"the peer broke off: {body.decode(errors='replace')}", reason="alert")
        plaintext = _xor(body, self._stream(not self._is_client, number, len(body)))
        if checksum != self._checksum(not self._is_client, number, kind, plaintext):
            raise self._failed("bad record mac")
        match kind:
            case _Kind.HELLO if not self._secret and len(plaintext) == _NONCE:
                self._meet(plaintext)
                return b""
            case _Kind.DATA if self._secret:
                return plaintext
            case _Kind.END if self._secret:
                self.is_ended = True
                return b""
        raise self._failed("unexpected message")

    def _meet(self, nonce: bytes) -> None:
        if self._refusal:
            raise self._failed(self._refusal)
        if not self._is_client:
            self._put(_Kind.HELLO, self._nonce)
        nonces = self._nonce + nonce if self._is_client else nonce + self._nonce
        self._secret = hashlib.sha256(nonces).digest()

    def _put(self, kind: _Kind, body: bytes) -> None:
        number, self._sent = self._sent, self._sent + 1
        self._out += bytes((kind,)) + len(body).to_bytes(3)
        self._out += _xor(body, self._stream(self._is_client, number, len(body)))
        self._out += self._checksum(self._is_client, number, kind, body)

    def _stream(self, is_from_client: bool, number: int, size: int) -> bytes:
        # The hellos are not XORed: there is no secret yet.
        if not self._secret:
            return bytes(size)
        return hashlib.shake_128(self._secret + bytes((is_from_client,)) + number.to_bytes(8)).digest(size)

    def _checksum(self, is_from_client: bool, number: int, kind: int, body: bytes) -> bytes:
        about = self._secret + bytes((is_from_client, kind)) + number.to_bytes(8) + body
        return zlib.crc32(about).to_bytes(_CHECKSUM)

    def _failed(self, reason: str) -> TlsError:
        if not self._has_failed:
            body = reason.encode()
            self._out += bytes((_Kind.ALERT,)) + len(body).to_bytes(3) + body + bytes(_CHECKSUM)
        self._has_failed = True
        self._incoming.clear()
        return TlsError(f"simulated TLS failed: {reason}", reason=reason)


@final
class StandInTls:
    """Creates the channels of a simulation's clients (`Channels`) and brokers.

    Args:
        seed: The source of the nonces; separate, so that no other random number of a run changes.

    Attributes:
        refusals: How many more handshakes brokers abort.
    """

    __slots__ = ("_count", "_seed", "refusals")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0
        self.refusals: int = 0

    def prepare(self) -> None:
        """Do nothing: there are no key files."""

    def open(self, host: str) -> StandInChannel:  # noqa: ARG002 - a contract's
        """Return a channel to a broker."""
        return StandInChannel(self._nonce(), is_client=True)

    def accept(self) -> StandInChannel:
        """Return a broker's channel to a client."""
        refusal = ""
        if self.refusals > 0:
            self.refusals -= 1
            refusal = "handshake failure"
        return StandInChannel(self._nonce(), is_client=False, refusal=refusal)

    def _nonce(self) -> bytes:
        self._count += 1
        return hashlib.sha256(b"%d %d" % (self._seed, self._count)).digest()[:_NONCE]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
