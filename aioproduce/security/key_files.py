"""Reads the key and trust stores of Kafka's `ssl.keystore.*` and `ssl.truststore.*`, recognised by content.

Used by `tls` in a thread, because it reads files. It knows nothing of OpenSSL's contexts; its results are PEM.

Invariants:

1. The bytes of a store decide whether it is PEM or PKCS12, not its suffix or `ssl.*.type`. Java's own JKS and JCEKS
   are refused with the command that converts them.
2. Private keys and passwords are held in `Secret` and revealed only in the expression that uses them, so that no
   frame of an error has one in a local variable.
3. Every failure is a `TlsError` that names the setting, the file and the remedy, never its content.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, MissingExtraError, TlsError
from aioproduce.security.certificates import pem_blocks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_log = logging.getLogger("aioproduce")

_MAX_SIZE: Final = 16 << 20
"""The maximum size of a store in bytes. Stores with every public CA in the world take about 250,000."""

_JKS: Final = ("\xfe\xed\xfe\xed", "\xce\xce\xce\xce")
_PEM: Final = "-----BEGIN "
_CERTIFICATE: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE"})

_open_to_all: set[str] = set()
"""The key files that this process has warned about."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """The client's identity: its certificates, and the key that belongs to the first of them.

    Attributes:
        chain: Certificates as PEM, the client's own one first.
        key: The private key as PEM, encrypted if it is encrypted in a PEM store.
        password: The key's password, if it is encrypted.
        place: The origin of both, for messages: `"ssl.keystore.location (client.pem)"`.
        setting: Kafka's key that names the origin.
        password_setting: Kafka's key for the password.
    """

    chain: str
    key: Secret
    password: Secret | None
    place: str
    setting: str
    password_setting: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """The location of the client's own certificate and key; none by default.

    Attributes:
        location: `ssl.keystore.location`, a file: PEM with both, or PKCS12.
        password: `ssl.keystore.password` of a PKCS12 store, and of a PEM store's key if `key_password` is unset.
        key: `ssl.keystore.key`, the key itself as PEM.
        certificate_chain: `ssl.keystore.certificate.chain`, its certificates as PEM.
        key_password: `ssl.key.password` of a key in PEM, and of a PKCS12 store if `password` is unset.

    Raises:
        ConfigError: If a file and a key are both given, or if only one of key and chain is given.
    """

    location: str | None = None
    password: Secret | None = None
    key: Secret | None = None
    certificate_chain: Secret | None = None
    key_password: Secret | None = None

    def __post_init__(self) -> None:
        if self.location and (self.key or self.certificate_chain):
            raise ConfigError(
                "ssl.keystore.location and ssl.keystore.key or .certificate.chain are both set: keep the file "
                "or the inline PEM",
                key="ssl.keystore.location",
            )
        if bool(self.key) != bool(self.certificate_chain):
            missing = "ssl.keystore.certificate.chain" if self.key else "ssl.keystore.key"
            raise ConfigError(
                f"{missing} is not set: a key and its certificates must be set together", key=missing
            )

    @property
    def is_set(self) -> bool:
        """Whether a key store is set."""
        return bool(self.location or self.key)

    @property
    def setting(self) -> str:
        """Kafka's key that names the store."""
        return "ssl.keystore.key" if self.key else "ssl.keystore.location"

    @property
    def place(self) -> str:
        """The store's place, for messages."""
        if self.location:
            return f"ssl.keystore.location ({self.location})"
        return (
            "ssl.keystore.key with ssl.keystore.certificate.chain"
            if self.key
            else "ssl.keystore.location, not set"
        )

    def read(self) -> Identity | None:
        """Read the store; return `None` if none is set.

        Raises:
            TlsError: If it cannot be read, or does not hold one key and its certificates.
            MissingExtraError: If it is PKCS12 and `cryptography` is not installed.
        """
        if self.location:
            content = _read(self.location, self.setting, has_key=True)
            if _is_pkcs12(content, self.location, self.setting):
                return self._of_pkcs12(content)
            return self._of_pem(content)
        if self.key and self.certificate_chain:
            return self._of_pem(Secret(f"{self.certificate_chain.reveal()}\n{self.key.reveal()}"))
        return None

    def _of_pem(self, content: Secret) -> Identity:
        place, setting = self.place, self.setting
        chain, keys = "".join(_certificates(content)), _private_keys(content)
        if not chain or not keys:
            what, inline = (
                ("private key", "ssl.keystore.key")
                if chain
                else ("certificate", "ssl.keystore.certificate.chain")
            )
            raise TlsError(
                f"{place} does not hold a {what}: a PEM key store holds the client's certificate, those of the CAs "
                f"between it and the root, and the private key. Add the {what}",
                reason=f"no {what}",
                setting=setting if self.location else inline,
            )
        if len(keys) > 1:
            raise TlsError(
                f"{place} holds {len(keys)} private keys: keep the one that belongs to the first certificate",
                reason="several private keys",
                setting=setting,
            )
        password = self.key_password or self.password
        if _is_encrypted(keys[0]) and not password:
            raise TlsError(
                f"the private key in {place} is encrypted: set ssl.key.password",
                reason="password needed",
                setting="ssl.key.password",
            )
        return Identity(chain, keys[0], password, place, setting, "ssl.key.password")

    def _of_pkcs12(self, content: Secret) -> Identity:
        place, setting = self.place, self.setting
        password_setting = "ssl.keystore.password"
        store = _load_pkcs12(content, self.password or self.key_password, place, password_setting)
        if store.key is None or store.cert is None:
            what = "private key" if store.key is None else "certificate of its private key"
            raise TlsError(
                f"{place} is a PKCS12 store without a {what}: is it a trust store? Name the client's key store",
                reason="no private key" if store.key is None else "no certificate",
                setting=setting,
            )
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        others = [entry.certificate for entry in store.additional_certs]
        chain = "".join(map(_pem_of, _chain(store.cert.certificate, others)))
        key = Secret(
            store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
        )
        return Identity(chain, key, None, place, setting, password_setting)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """The certificates that the client trusts; by default those that the system trusts.

    Attributes:
        location: `ssl.truststore.location`, a file: PEM or PKCS12.
        password: `ssl.truststore.password`, of a PKCS12 store.
        certificates: `ssl.truststore.certificates`, the certificates themselves as PEM.

    Raises:
        ConfigError: If both a file and certificates are given.
    """

    location: str | None = None
    password: Secret | None = None
    certificates: Secret | None = None

    def __post_init__(self) -> None:
        if self.location and self.certificates:
            raise ConfigError(
                "ssl.truststore.location and ssl.truststore.certificates are both set: keep one of them",
                key="ssl.truststore.location",
            )

    @property
    def setting(self) -> str:
        """Kafka's key that names the store."""
        return "ssl.truststore.certificates" if self.certificates else "ssl.truststore.location"

    @property
    def place(self) -> str:
        """The store's place, for messages."""
        if self.location:
            return f"ssl.truststore.location ({self.location})"
        return (
            self.setting if self.certificates else "the system's store (ssl.truststore.location is not set)"
        )

    def read(self) -> str | None:
        """Read all of its certificates as PEM; return `None` if none is set.

        Raises:
            TlsError: If it cannot be read, or does not hold a certificate.
            MissingExtraError: If it is PKCS12 and `cryptography` is not installed.
        """
        if not self.location and not self.certificates:
            return None
        if self.location:
            content = _read(self.location, self.setting)
            if _is_pkcs12(content, self.location, self.setting):
                found = self._of_pkcs12(content)
            else:
                found = _certificates(content)
        else:
            found = _certificates(self.certificates or Secret(""))
        if not found:
            raise TlsError(
                f"{self.place} does not hold a certificate: add those of the CAs that issued the brokers'",
                reason="empty store",
                setting=self.setting,
            )
        return "".join(found)

    def _of_pkcs12(self, content: Secret) -> list[str]:
        store = _load_pkcs12(content, self.password, self.place, "ssl.truststore.password")
        entries = [*([store.cert] if store.cert else []), *store.additional_certs]
        return [_pem_of(entry.certificate) for entry in entries]


def file_state(location: str | None, setting: str) -> tuple[int, int, int] | None:
    """Return a file's time, size and inode, which change when it is replaced or written.

    Raises:
        TlsError: If the file is missing or inaccessible.
    """
    if not location:
        return None
    try:
        found = os.stat(location)
    except (OSError, ValueError) as error:
        raise _unreadable(location, setting, error) from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(location: str, setting: str, *, has_key: bool = False) -> Secret:
    """Return the content of a file, with each byte as the character of that number."""
    try:
        found = os.stat(location)
        if stat.S_ISREG(found.st_mode) and 0 < found.st_size <= _MAX_SIZE:
            if has_key and found.st_mode & stat.S_IROTH:
                _warn_of_open_file(location)
            return Secret(Path(location).read_bytes().decode("latin-1"))
    except (OSError, ValueError) as error:
        raise _unreadable(location, setting, error) from None
    if not stat.S_ISREG(found.st_mode):
        what, reason = "is a directory" if stat.S_ISDIR(found.st_mode) else "is not a file", "not a file"
    elif not found.st_size:
        what, reason = "is empty", "empty store"
    else:
        what, reason = (
            f"has {found.st_size} bytes, which is too large for keys and certificates",
            "not a store",
        )
    raise TlsError(
        f"{setting}: {location!r} {what}: name a PEM or PKCS12 file", reason=reason, setting=setting
    )


def _unreadable(location: str, setting: str, error: Exception) -> TlsError:
    if isinstance(error, PermissionError):
        reason, remedy = "permission denied", "give the user of this process read permission"
    elif isinstance(error, FileNotFoundError):
        reason, remedy = "no such file", f"set {setting} to the path of the file, as this process sees it"
    else:
        reason, remedy = "unreadable file", "check the path and the disk"
    why = error.strerror if isinstance(error, OSError) else str(error)
    return TlsError(
        f"{setting}: {location!r} cannot be read ({why}): {remedy}", reason=reason, setting=setting
    )


def _warn_of_open_file(location: str) -> None:
    """Warn once per process about a private key that every user of the machine may read."""
    if os.name != "posix" or location in _open_to_all:
        return
    _open_to_all.add(location)
    _log.warning(
        "Every user of this machine may read the private key in %s (ssl.keystore.location): chmod o-r it.",
        location,
    )


def _is_pkcs12(content: Secret, location: str, setting: str) -> bool:
    """Return whether a store is PKCS12; otherwise it is PEM.

    Raises:
        TlsError: If it is neither.
    """
    if content.reveal().startswith(_JKS):
        target = shlex.quote(str(Path(location).with_suffix(".p12")))
        raise TlsError(
            f"{setting} ({location}) is a JKS store, which only Java can read. Convert it, and set {setting} to "
            f"the result: keytool -importkeystore -srckeystore {shlex.quote(location)} -destkeystore {target} "
            f"-deststoretype pkcs12",
            reason="JKS store",
            setting=setting,
        )
    if _PEM in content.reveal():
        return False
    # PFX ::= SEQUENCE { version INTEGER (3), ... }: after the head of the sequence, whose length takes 0 to 4
    # bytes.
    if content.reveal().startswith("\x30") and "\x02\x01\x03" in content.reveal()[2:9]:
        return True
    is_der = content.reveal().startswith("\x30")
    remedy = (
        "one certificate or key as DER: convert it with openssl x509 -inform der -in FILE, or openssl pkey "
        "-inform der"
        if is_der
        else "neither PEM (-----BEGIN ...) nor PKCS12: name a file of one of these formats"
    )
    raise TlsError(f"{setting} ({location}) is {remedy}", reason="not a store", setting=setting)


def _certificates(content: Secret) -> list[str]:
    return [
        block.text.replace("X509 CERTIFICATE", "CERTIFICATE")
        for block in pem_blocks(content.reveal())
        if block.label in _CERTIFICATE
    ]


def _private_keys(content: Secret) -> list[Secret]:
    return [
        Secret(block.text) for block in pem_blocks(content.reveal()) if block.label.endswith("PRIVATE KEY")
    ]


def _is_encrypted(key: Secret) -> bool:
    """Return whether a key has PKCS8's encryption or that of OpenSSL's first formats."""
    return "BEGIN ENCRYPTED" in key.reveal() or "Proc-Type: 4,ENCRYPTED" in key.reveal()


def _load_pkcs12(
    content: Secret, password: Secret | None, place: str, password_setting: str
) -> PKCS12KeyAndCertificates:
    with MissingExtraError.unless_installed(f"the PKCS12 store of {place}", extra="tls", name="cryptography"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    try:
        return load_pkcs12(
            content.reveal().encode("latin-1"), password.reveal().encode() if password is not None else None
        )
    except UnsupportedAlgorithm as error:
        raise TlsError(
            f"{place} is encrypted with an unsupported algorithm ({error}): export it again as PKCS12",
            reason="unsupported store",
            setting=password_setting,
        ) from None
    except (ValueError, TypeError):
        pass
    if not password:
        raise TlsError(
            f"{place} is a PKCS12 store that needs a password: set {password_setting}",
            reason="password needed",
            setting=password_setting,
        )
    raise TlsError(
        f"{place} cannot be opened with {password_setting}: the password is wrong, or the file is damaged. "
        "Try it with openssl pkcs12 -info -noout -in FILE",
        reason="wrong password",
        setting=password_setting,
    )


def _chain(leaf: Certificate, others: list[Certificate]) -> Iterator[Certificate]:
    """Yield the client's certificate, its issuer, the issuer's issuer and so on, and skip the store's others."""
    left = list(others)
    here: Certificate | None = leaf
    while here is not None:
        yield here
        issuer = here.issuer
        here = next((other for other in left if other.subject == issuer), None)
        if here is not None:
            left.remove(here)


def _pem_of(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode("ascii")


@final
class KeyPassword:
    """The callback for the key's password, without which OpenSSL would ask on the terminal."""

    __slots__ = ("_identity", "was_asked_for")

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.was_asked_for: bool = False

    def __call__(self) -> str:
        """Return the password.

        Raises:
            TlsError: If it is not set.
        """
        self.was_asked_for = True
        identity = self._identity
        if identity.password is None:
            raise TlsError(
                f"the private key in {identity.place} is encrypted: set {identity.password_setting}",
                reason="password needed",
                setting=identity.password_setting,
            )
        return identity.password.reveal()


@contextmanager
def as_file(content: Secret) -> Iterator[str]:
    """Provide a text as a file, as OpenSSL requires: in memory, or readable only by this user."""
    try:
        handle, path, is_named = os.memfd_create("aioproduce"), "", False
        path = f"/proc/self/fd/{handle}"
        if not os.path.exists(path):
            os.close(handle)
            raise OSError("/proc is not available")
    except (AttributeError, OSError):
        handle, path = tempfile.mkstemp()
        is_named = True
    try:
        with open(handle, "w", encoding="latin-1", newline="", closefd=False) as file:
            file.write(content.reveal())
        yield path
    finally:
        os.close(handle)
        if is_named:
            os.unlink(path)


def is_empty_folder(folder: str | None) -> bool:
    """Return whether a folder of certificates, which OpenSSL reads on demand, is empty."""
    try:
        return folder is None or not os.listdir(folder)
    except OSError:
        return True
