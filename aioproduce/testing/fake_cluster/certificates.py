"""Certificates for a cluster in a test, created with `cryptography` and never written to disk here.

Created by `FakeCluster` if its listeners use TLS. A root signs an intermediate authority, which signs brokers and
clients. Clients trust only the root, so an incomplete chain is detected.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from aioproduce.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

CERTIFICATE_KINDS: Final = (
    "valid",
    "expired",
    "not yet valid",
    "wrong host",
    "self-signed",
    "unknown authority",
)
"""The kinds of a broker's certificate: a client that checks refuses five of the six."""

_DAY: Final = timedelta(days=1)
_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_WRONG_NAMES: Final = ("kafka.invalid",)


class Identity(NamedTuple):
    """A certificate chain and its key, in PEM.

    Attributes:
        chain: The certificate, and those of the authorities between it and the root.
        key: Its key, PKCS #8, not encrypted.
    """

    chain: str
    key: str


class _Signer(NamedTuple):
    certificate: Certificate
    key: EllipticCurvePrivateKey


@final
@dataclass(slots=True, repr=False)
class Authority:
    """The authority that clients trust, and its certificates.

    Args:
        host: The brokers' host, in addition to `localhost` and its addresses.

    Raises:
        MissingExtraError: If `cryptography` is not installed.
    """

    _host: str
    _root: _Signer = field(init=False)
    _intermediate: _Signer = field(init=False)

    def __post_init__(self) -> None:
        with MissingExtraError.unless_installed("TLS in a FakeCluster", extra="tls", name="cryptography"):
            import cryptography.x509  # noqa: F401
        self._root = _make("aioproduce test root", None, is_authority=True)
        self._intermediate = _make("aioproduce test authority", self._root, is_authority=True)

    @property
    def ca(self) -> str:
        """The root's certificate in PEM, for clients to trust."""
        return _pem(self._root.certificate)

    def broker(self, kind: str = "valid") -> Identity:
        """Return a broker's certificate.

        Args:
            kind: One of `CERTIFICATE_KINDS`.
        """
        signer: _Signer | None = self._intermediate
        names = _WRONG_NAMES if kind == "wrong host" else tuple(dict.fromkeys((*_NAMES, self._host)))
        begins_in = {"expired": -91 * _DAY, "not yet valid": 2 * _DAY}.get(kind, -_DAY)
        if kind == "self-signed":
            signer = None
        elif kind == "unknown authority":
            signer = _make("another root", None, is_authority=True)
        made = _make("aioproduce test broker", signer, names=names, begins_in=begins_in)
        return self._identity(made, is_signed_here=signer is self._intermediate)

    def client(self, name: str = "client") -> Identity:
        """Return a client's certificate: principal `CN=name`."""
        return self._identity(_make(name, self._intermediate), is_signed_here=True)

    def _identity(self, made: _Signer, *, is_signed_here: bool) -> Identity:
        from cryptography.hazmat.primitives import serialization

        chain = _pem(made.certificate)
        key = made.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Identity(
            chain + _pem(self._intermediate.certificate) if is_signed_here else chain, key.decode()
        )


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _make(
    name: str,
    signer: _Signer | None,
    *,
    names: Sequence[str] = (),
    is_authority: bool = False,
    begins_in: timedelta = -_DAY,
) -> _Signer:
    """Create a key and a certificate for 90 days, signed by `signer`, or by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    begins = datetime.now(UTC) + begins_in
    issuer_key = key if signer is None else signer.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signer is None else signer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + 90 * _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_usage(x509, is_authority=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(x509, each) for each in names]), critical=False
        )
    return _Signer(builder.sign(issuer_key, hashes.SHA256()), key)


def _usage(x509: Any, *, is_authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(x509: Any, name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
