"""Records of TLS 1.3 written by hand (RFC 8446, 5.2 and 7): what no well-meaning server sends.

From the secret that OpenSSL's key log tells of a connection, by `cryptography`: independent of the stdlib's `ssl`.
"""

from __future__ import annotations

import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

APPLICATION, HANDSHAKE, ALERT = 23, 22, 21
KEY_UPDATE_REQUESTED = b"\x18\0\0\x01\x01"
KEY_UPDATE = b"\x18\0\0\x01\0"


def _expand(secret: bytes, label: str, size: int) -> bytes:
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", size, len(name)) + name + b"\0"
    return HKDFExpand(SHA384(), size, info).derive(secret)


class ServerRecords:
    """The server's side of a connection with TLS_AES_256_GCM_SHA384, from its `sent`-th record on.

    Args:
        key_log: What `SSLContext.keylog_filename` has written, of one connection.
        sent: Records that the server has sent by its keys for application data.
    """

    def __init__(self, key_log: Path, *, sent: int) -> None:
        lines = [line.split() for line in key_log.read_text().splitlines()]
        self._secret = next(
            bytes.fromhex(words[2]) for words in lines if words[0] == "SERVER_TRAFFIC_SECRET_0"
        )
        self._number = sent

    def record(self, content: bytes, kind: int = APPLICATION) -> bytes:
        """One record."""
        inner = content + bytes([kind])
        head = struct.pack(">BHH", APPLICATION, 0x0303, len(inner) + 16)
        start = _expand(self._secret, "iv", 12)
        nonce = (int.from_bytes(start) ^ self._number).to_bytes(12)
        self._number += 1
        return head + AESGCM(_expand(self._secret, "key", 32)).encrypt(nonce, inner, head)

    def key_update(self, *, is_requested: bool) -> bytes:
        """A record that changes the server's key, and asks for the client's to change."""
        update = self.record(KEY_UPDATE_REQUESTED if is_requested else KEY_UPDATE, HANDSHAKE)
        self._secret, self._number = _expand(self._secret, "traffic upd", 48), 0
        return update
