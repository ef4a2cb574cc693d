"""What Kafka's `ssl.keystore.*` and `ssl.truststore.*` name, read and recognised by its content.

Called by `tls`, in a thread: it reads files. It knows nothing of OpenSSL's contexts; what comes out is PEM.

Invariants:

1. A store is what its bytes say: PEM or PKCS12, whatever its suffix or `ssl.*.type` is. Only Java's own JKS and
   JCEKS are refused, with the command that converts them.
2. A private key and a password are within `Secret`, and revealed in the expression that uses them: no frame that an
   error leaves has one in a local variable.
3. Every fault is a `TlsError` that names the setting, the file and the remedy, never its content.
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
"""Bytes of a store. The largest ones, with every public CA in the world, have a quarter of a million."""

_JKS: Final = ("\xfe\xed\xfe\xed", "\xce\xce\xce\xce")
_PEM: Final = "-----BEGIN "
_CERTIFICATE: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE"})

_open_to_all: set[str] = set()
"""Key files that were warned of in this process."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Who the client says it is: its certificates, and the key that goes with the first of them.

    Attributes:
        chain: Certificates as PEM, the client's own one first.
        key: The private key as PEM; encrypted if it was so in a PEM store.
        password: What opens the key, if it is encrypted.
        place: Where they came from, for messages: `"ssl.keystore.location (client.pem)"`.
        setting: The key of Kafka's that named them.
        password_setting: And the one that has the password.
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
    """Where the client's own certificate and key are; nowhere by default.

    Attributes:
        location: `ssl.keystore.location`, a file: PEM with both, or PKCS12.
        password: `ssl.keystore.password`: of a PKCS12 store. Of a PEM store's key too, if `key_password` is unset.
        key: `ssl.keystore.key`, the key itself as PEM.
        certificate_chain: `ssl.keystore.certificate.chain`, its certificates as PEM.
        key_password: `ssl.key.password`: of a key in PEM. Of a PKCS12 store too, if `password` is unset.

    Raises:
        ConfigError: A file and a key are both given, or one of key and chain without the other.
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
                f"{missing} is not set: a key and its certificates are of use together only", key=missing
            )

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return bool(self.location or self.key)

    @property
    def setting(self) -> str:
        """The key that names it, or would."""
        return "ssl.keystore.key" if self.key else "ssl.keystore.location"

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if self.location:
            return f"ssl.keystore.location ({self.location})"
        return (
            "ssl.keystore.key with ssl.keystore.certificate.chain"
            if self.key
            else "ssl.keystore.location, not set"
        )

    def read(self) -> Identity | None:
        """Read the store; `None` if none is set.

        Raises:
            TlsError: It cannot be read, or does not hold one key and its certificates.
            MissingExtraError: It is PKCS12 and `cryptography` is not installed.
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
                f"{place} holds no {what}: a PEM key store has the client's certificate, those of the CAs "
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
                f"{place} is a PKCS12 store without a {what}: is it a trust store? Name the client's own one",
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
    """Whom the client trusts; by default those whom the system trusts.

    Attributes:
        location: `ssl.truststore.location`, a file: PEM or PKCS12.
        password: `ssl.truststore.password`, of a PKCS12 store.
        certificates: `ssl.truststore.certificates`, the certificates themselves as PEM.

    Raises:
        ConfigError: Both a file and certificates are given.
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
        """The key that names it, or would."""
        return "ssl.truststore.certificates" if self.certificates else "ssl.truststore.location"

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if self.location:
            return f"ssl.truststore.location ({self.location})"
        return (
            self.setting if self.certificates else "the system's store (ssl.truststore.location is not set)"
        )

    def read(self) -> str | None:
        """Read all of its certificates, as PEM; `None` if none is set.

        Raises:
            TlsError: It cannot be read, or holds no certificate.
            MissingExtraError: It is PKCS12 and `cryptography` is not installed.
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
                f"{self.place} holds no certificate: put those of the CAs there that issued the brokers'",
                reason="empty store",
                setting=self.setting,
            )
        return "".join(found)

    def _of_pkcs12(self, content: Secret) -> list[str]:
        store = _load_pkcs12(content, self.password, self.place, "ssl.truststore.password")
        entries = [*([store.cert] if store.cert else []), *store.additional_certs]
        return [_pem_of(entry.certificate) for entry in entries]


def file_state(location: str | None, setting: str) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written: time, size, inode.

    Raises:
        TlsError: It is not there, or not to be seen.
    """
    if not location:
        return None
    try:
        found = os.stat(location)
    except (OSError, ValueError) as error:
        raise _unreadable(location, setting, error) from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(location: str, setting: str, *, has_key: bool = False) -> Secret:
    """The content of a file, each byte as the character of that number."""
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
        what, reason = f"has {found.st_size} bytes, too many for keys and certificates", "not a store"
    raise TlsError(
        f"{setting}: {location!r} {what}: name a PEM or PKCS12 file", reason=reason, setting=setting
    )


def _unreadable(location: str, setting: str, error: Exception) -> TlsError:
    if isinstance(error, PermissionError):
        reason, remedy = "permission denied", "let the user that this process runs as read it"
    elif isinstance(error, FileNotFoundError):
        reason, remedy = "no such file", f"set {setting} to the path of the file, as this process sees it"
    else:
        reason, remedy = "unreadable file", "see that the path is right and that its disk is well"
    why = error.strerror if isinstance(error, OSError) else str(error)
    return TlsError(
        f"{setting}: {location!r} cannot be read ({why}): {remedy}", reason=reason, setting=setting
    )


def _warn_of_open_file(location: str) -> None:
    """A key that every user of the machine may read is told of once in a process."""
    if os.name != "posix" or location in _open_to_all:
        return
    _open_to_all.add(location)
    _log.warning(
        "Every user of this machine may read the private key in %s (ssl.keystore.location): chmod o-r it.",
        location,
    )


def _is_pkcs12(content: Secret, location: str, setting: str) -> bool:
    """Whether a store is PKCS12; if not, it is PEM.

    Raises:
        TlsError: It is neither.
    """
    if content.reveal().startswith(_JKS):
        target = shlex.quote(str(Path(location).with_suffix(".p12")))
        raise TlsError(
            f"{setting} ({location}) is a JKS store, which only Java reads. Convert it, and set {setting} to "
            f"the result: keytool -importkeystore -srckeystore {shlex.quote(location)} -destkeystore {target} "
            f"-deststoretype pkcs12",
            reason="JKS store",
            setting=setting,
        )
    if _PEM in content.reveal():
        return False
    # PFX ::= SEQUENCE { version INTEGER (3), ... }: behind the sequence's head, whose length takes 0 to 4 bytes.
    if content.reveal().startswith("\x30") and "\x02\x01\x03" in content.reveal()[2:9]:
        return True
    is_der = content.reveal().startswith("\x30")
    remedy = (
        "one certificate or key as DER: convert it, by openssl x509 -inform der -in FILE, or openssl pkey "
        "-inform der"
        if is_der
        else "neither PEM (-----BEGIN ...) nor PKCS12: name such a file"
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
    """PKCS8's own encryption, or that of OpenSSL's first formats."""
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
            f"{place} is encrypted by an algorithm that is not known here ({error}): export it anew as PKCS12",
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
        f"{place} is not opened by {password_setting}: the password is wrong, or the file is damaged. Try it by "
        f"openssl pkcs12 -info -noout -in FILE",
        reason="wrong password",
        setting=password_setting,
    )


def _chain(leaf: Certificate, others: list[Certificate]) -> Iterator[Certificate]:
    """The client's certificate, its issuer, the issuer's, as far as they are there: a store has others too."""
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
    """What OpenSSL asks for the key's password: without one it would ask on the terminal."""

    __slots__ = ("_identity", "was_asked_for")

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.was_asked_for: bool = False

    def __call__(self) -> str:
        """Give it.

        Raises:
            TlsError: It is not set.
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
    """Put a text where OpenSSL reads it, which takes files only: in memory, or in a file that only we may open."""
    try:
        handle, path, is_named = os.memfd_create("aioproduce"), "", False
        path = f"/proc/self/fd/{handle}"
        if not os.path.exists(path):
            os.close(handle)
            raise OSError("/proc is not there")
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
    """Whether there is nothing in a folder of certificates, which OpenSSL looks into as it needs them."""
    try:
        return folder is None or not os.listdir(folder)
    except OSError:
        return True
