"""Reads PEM texts and the validity dates of certificates.

Used by `key_files` and `tls`. OpenSSL checks certificates, but Python's `ssl` does not report when the client's own
certificate ends, and reports it for the broker's only if it was checked. This module reads both dates from the DER
encoding.

Invariants:

1. `validity()` returns a result for any bytes.
2. The record of certificates that were warned about is kept for one day.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, final

_log = logging.getLogger("aioproduce")

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64
_DAY: Final = 86_400.0
_SOON: Final = 30 * _DAY
_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
}


class PemBlock(NamedTuple):
    """One object of a PEM text.

    Attributes:
        label: The kind of object: `"CERTIFICATE"`, `"PRIVATE KEY"`.
        text: The whole text with its first and last line, wrapped at OpenSSL's line length.
    """

    label: str
    text: str


class Validity(NamedTuple):
    """The period of a certificate's validity, in seconds since the epoch."""

    begins_at: float
    ends_at: float


class PeerCertificate(NamedTuple):
    """The content of a broker's certificate, for people.

    Attributes:
        subject: The certificate's owner, `"CN=kafka-1,O=Example"`.
        issuer: The authority that signed it.
        names: The names and addresses that it is valid for (subjectAltName).
        ends_at: When it expires, in seconds since the epoch.
    """

    subject: str
    issuer: str
    names: tuple[str, ...]
    ends_at: float


def peer_certificate(shown: Mapping[str, Any] | None, der: bytes | None) -> PeerCertificate | None:
    """Return the content of a peer's certificate, or `None` if it was not checked.

    Args:
        shown: The result of `ssl.SSLObject.getpeercert()`.
        der: The certificate itself.
    """
    valid = validity(der or b"")
    if not shown or valid is None:
        return None
    names = tuple(name for _, name in shown.get("subjectAltName", ()))
    return PeerCertificate(
        _distinguished(shown.get("subject", ())),
        _distinguished(shown.get("issuer", ())),
        names,
        valid.ends_at,
    )


def _distinguished(name: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return an X.500 name in the form of RFC 4514, most specific part first: `"CN=kafka-1,O=Example"`."""
    parts = [part for group in name for part in group]
    return ",".join(f"{_SHORT.get(kind, kind)}={value}" for kind, value in reversed(parts))


def pem_blocks(text: str) -> Iterator[PemBlock]:
    """Find the objects in a PEM text, and skip the text around them.

    Line breaks may be spaces, as in properties files and environment variables. Java accepts that, too.
    """
    for label, body in _BLOCK.findall(text):
        lines = body.strip().splitlines()
        headers = [line.strip() for line in lines if ":" in line]
        encoded = "".join("".join(line for line in lines if ":" not in line).split())
        wrapped = [encoded[at : at + _LINE] for at in range(0, len(encoded), _LINE)]
        head = [*headers, ""] if headers else []
        yield PemBlock(
            label, "\n".join([f"-----BEGIN {label}-----", *head, *wrapped, f"-----END {label}-----", ""])
        )


def der_of(text: str) -> bytes:
    """Return the DER encoding of one PEM object without headers, or no bytes if it is not base64."""
    try:
        return base64.b64decode("".join(text.strip().splitlines()[1:-1]), validate=True)
    except binascii.Error:
        return b""


def validity(der: bytes) -> Validity | None:
    """Read the validity dates of a certificate (RFC 5280, 4.1); return `None` if the bytes are not one."""
    try:
        _, at, _ = _element(der, 0)  # Certificate
        _, at, _ = _element(der, at)  # TBSCertificate
        if der[at] == 0xA0:  # version, which version 1 certificates lack
            _, _, at = _element(der, at)
        for _ in ("serialNumber", "signature", "issuer"):
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)  # Validity
        tag, start, end = _element(der, at)
        begins_at = _seconds(tag, der[start:end])
        tag, start, end = _element(der, end)
        return Validity(begins_at, _seconds(tag, der[start:end]))
    except (IndexError, ValueError):
        return None


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the element at this offset, and where its content begins and ends."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[at : at + size])
        at += size
    return tag, at, at + length


def _seconds(tag: int, content: bytes) -> float:
    """Parse a UTCTime (years 1950 to 2049) or a GeneralizedTime."""
    text = content.decode("ascii")
    if tag == 0x17:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def day_of(seconds: float) -> str:
    """Format an instant for people, as UTC: `"2026-11-23 21:30:00 UTC"`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


@final
class ExpiryLog:
    """Warns once a day about each certificate that expires within 30 days.

    Args:
        wall_clock: Returns the seconds since the epoch.
    """

    __slots__ = ("_told", "_wall_clock")

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._told: dict[bytes, float] = {}

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall_clock()

    def note(self, der: bytes, whose: str) -> None:
        """Log a warning if this certificate expires soon and was not warned about in the last 24 hours.

        Args:
            der: The certificate.
            whose: Its owner, for the message: `"broker kafka-1"`.
        """
        now = self._wall_clock()
        digest = hashlib.sha256(der).digest()
        if now - self._told.get(digest, -_DAY) < _DAY:
            return
        valid = validity(der)
        if valid is None or valid.ends_at - now > _SOON:
            return
        self._told = {known: told_at for known, told_at in self._told.items() if now - told_at < _DAY}
        self._told[digest] = now
        _log.warning(
            "The certificate of %s ends in %.1f days, at %s: replace it before then. Files are read again for "
            "each connection.",
            whose,
            (valid.ends_at - now) / _DAY,
            day_of(valid.ends_at),
        )
