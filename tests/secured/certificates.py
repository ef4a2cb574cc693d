"""The certificates of the tests: a CA, an intermediate, and leaves of brokers and clients, sound and unsound.

Made again in a folder for each session, by `cryptography`; used by `tests.secured.kafka`.

1. Every leaf is issued by the intermediate, and its files hold the whole chain but the root.
2. Of each leaf there is a PEM file with key and chain, and a PKCS12 store with the same.
3. What is wrong with an unsound leaf is wrong with nothing else of it.
"""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STORE_PASSWORD: Final = "store-secret"
"""Of every PKCS12 store and every JKS."""

_DAY: Final = datetime.timedelta(days=1)
_NAMES: Final = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


@dataclass(frozen=True, slots=True)
class Issuer:
    """A certificate that signs others, and the chain from it to what clients are to trust."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A key, its certificate and the chain, as files.

    Attributes:
        pem: Key, leaf and intermediate.
        pkcs12: The same, under `STORE_PASSWORD`.
        serial: The certificate's serial number.
    """

    pem: Path
    pkcs12: Path
    serial: int


class Certificates:
    """All of them, in a folder.

    Attributes:
        ca: PEM: what clients and brokers trust.
        ca_pkcs12: The same as a store that Java takes.
        crl: PEM: the lists of the root and of the intermediate, which has the leaf `revoked` on it.
        leaves: By name: `broker`, `client`; and for either side `expired`, `early` (not yet valid), `stranger`
            (another host's), `alone` (signed by itself), `forgotten` (of a CA that nobody trusts) and `revoked`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        root = _issuer("aioproduce tests")
        intermediate = _issuer("aioproduce tests, intermediate", root)
        foreign = _issuer("somebody else")
        self.ca = _write(folder / "ca.pem", [root.certificate])
        self.ca_pkcs12 = folder / "ca.p12"
        trusted = pkcs12.PKCS12Certificate(root.certificate, b"ca")
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        self.ca_pkcs12.write_bytes(pkcs12.serialize_java_truststore([trusted], encryption))
        now = datetime.datetime.now(datetime.UTC)
        sound = (now - _DAY, now + 90 * _DAY)
        self.leaves = {
            "broker": self._leaf("broker", intermediate, sound),
            "client": self._leaf("client", intermediate, sound),
            "expired": self._leaf("expired", intermediate, (now - 9 * _DAY, now - _DAY)),
            "early": self._leaf("early", intermediate, (now + _DAY, now + 9 * _DAY)),
            "stranger": self._leaf("stranger", intermediate, sound, [x509.DNSName("kafka.example.com")]),
            "alone": self._leaf("alone", None, sound),
            "forgotten": self._leaf("forgotten", foreign, sound),
            "revoked": self._leaf("revoked", intermediate, sound),
        }
        lists = [_crl(root, []), _crl(intermediate, [self.leaves["revoked"].serial])]
        self.crl = folder / "crl.pem"
        self.crl.write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in lists))

    def jks(self, leaf: str, keytool: str) -> Path:
        """A true JKS with a leaf, made by Java's `keytool`."""
        store = self._folder / f"{leaf}.jks"
        passwords = ("-srcstorepass", STORE_PASSWORD, "-deststorepass", STORE_PASSWORD)
        kinds = ("-srcstoretype", "PKCS12", "-deststoretype", "JKS")
        command = [keytool, "-importkeystore", "-noprompt", "-srckeystore", str(self.leaves[leaf].pkcs12)]
        command += ["-destkeystore", str(store), *kinds, *passwords]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return store

    def _leaf(
        self,
        name: str,
        issuer: Issuer | None,
        validity: tuple[datetime.datetime, datetime.datetime],
        names: Sequence[x509.GeneralName] = _NAMES,
    ) -> Leaf:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, issuer or subject, key, validity)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        certificate = builder.sign(key if issuer is None else issuer.key, hashes.SHA256())
        chain = [] if issuer is None else list(issuer.chain)
        pem = self._folder / f"{name}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem.write_bytes(private + b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *chain)))
        pem.chmod(0o600)
        store = self._folder / f"{name}.p12"
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        store.write_bytes(
            pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, chain, encryption)
        )
        store.chmod(0o600)
        return Leaf(pem=pem, pkcs12=store, serial=certificate.serial_number)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: Issuer | x509.Name,
    key: ec.EllipticCurvePrivateKey,
    validity: tuple[datetime.datetime, datetime.datetime],
) -> x509.CertificateBuilder:
    begins, ends = validity
    public = key.public_key()
    signer = public if isinstance(issuer, x509.Name) else issuer.key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer if isinstance(issuer, x509.Name) else issuer.certificate.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _issuer(name: str, above: Issuer | None = None) -> Issuer:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = _name(name)
    builder = _builder(subject, above or subject, key, (now - 9 * _DAY, now + 365 * _DAY))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(usage, critical=True)
    certificate = builder.sign(key if above is None else above.key, hashes.SHA256())
    return Issuer(certificate, key, () if above is None else (certificate, *above.chain))


def _crl(issuer: Issuer, serials: Sequence[int]) -> x509.CertificateRevocationList:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.certificate.subject)
    builder = builder.last_update(now - _DAY).next_update(now + 30 * _DAY)
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - _DAY)
        builder = builder.add_revoked_certificate(revoked.build())
    return builder.sign(issuer.key, hashes.SHA256())


def _write(path: Path, certificates: Sequence[x509.Certificate]) -> Path:
    path.write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in certificates))
    return path
