"""Certificates as far as a client looks into them itself: PEM, and how long one is valid.

Called by `key_files` and `tls`. OpenSSL checks certificates; Python's `ssl` does not tell when the client's own one
ends, and tells it of the broker's only where it was checked. So the two dates are read here, from the DER encoding.

Invariants:

1. Whatever bytes come, `validity()` gives an answer.
2. What is kept of certificates that were warned of ends with the day.
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
        label: What it is: `"CERTIFICATE"`, `"PRIVATE KEY"`.
        text: The whole of it, with its first and last line, and lines as long as OpenSSL has them.
    """

    label: str
    text: str


class Validity(NamedTuple):
    """When a certificate is valid, in seconds since the epoch."""

    begins_at: float
    ends_at: float


class PeerCertificate(NamedTuple):
    """What a broker's certificate says, for people.

    Attributes:
        subject: Whose it is, `"CN=kafka-1,O=Example"`.
        issuer: Who signed it.
        names: The names and addresses that it is for (subjectAltName).
        ends_at: When it ends, in seconds since the epoch.
    """

    subject: str
    issuer: str
    names: tuple[str, ...]
    ends_at: float


def peer_certificate(shown: Mapping[str, Any] | None, der: bytes | None) -> PeerCertificate | None:
    """What there is to say of the certificate of a peer; `None` where it was not checked.

    Args:
        shown: As `ssl.SSLObject.getpeercert()` gives it.
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
    """A name of X.500 as RFC 4514 writes it, the most special part first: `"CN=kafka-1,O=Example"`."""
    parts = [part for group in name for part in group]
    return ",".join(f"{_SHORT.get(kind, kind)}={value}" for kind, value in reversed(parts))


def pem_blocks(text: str) -> Iterator[PemBlock]:
    """Find what is in a PEM text; what stands around it is left out.

    Java takes a text whose line breaks have become spaces, as they do in properties and environments, and so does
    this.
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
    """The DER encoding of one PEM object without headers; empty if it is not base64."""
    try:
        return base64.b64decode("".join(text.strip().splitlines()[1:-1]), validate=True)
    except binascii.Error:
        return b""


def validity(der: bytes) -> Validity | None:
    """Read from when to when a certificate is valid (RFC 5280, 4.1); `None` if this is not one."""
    try:
        _, at, _ = _element(der, 0)  # Certificate
        _, at, _ = _element(der, at)  # TBSCertificate
        if der[at] == 0xA0:  # version, which the first one had not
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
    """Tag, and where the content begins and ends, of the element that begins at that place."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[at : at + size])
        at += size
    return tag, at, at + length


def _seconds(tag: int, content: bytes) -> float:
    """UTCTime (its years are 1950 to 2049) or GeneralizedTime."""
    text = content.decode("ascii")
    if tag == 0x17:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def day_of(seconds: float) -> str:
    """An instant for people, as UTC: `"2026-11-23 21:30:00 UTC"`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


@final
class ExpiryLog:
    """Warns of certificates that end within 30 days: once a day of each.

    Args:
        wall_clock: Gives the seconds since the epoch.
    """

    __slots__ = ("_told", "_wall_clock")

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._told: dict[bytes, float] = {}

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall_clock()

    def note(self, der: bytes, whose: str) -> None:
        """Log a warning if this certificate ends soon and nothing was said of it in the last 24 hours.

        Args:
            der: The certificate.
            whose: For the message: `"broker kafka-1"`.
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
            "The certificate of %s ends in %.1f days, at %s: replace it before then. Files are read anew for each "
            "connection.",
            whose,
            (valid.ends_at - now) / _DAY,
            day_of(valid.ends_at),
        )
