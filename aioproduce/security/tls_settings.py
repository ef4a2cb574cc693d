"""Kafka's `ssl.*` as plain values, and their meaning for OpenSSL: versions, cipher suites, checks.

Created by `making`, read by `tls`. Contradictory values are refused here, before anything is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import ConfigError
from aioproduce.security.key_files import KeyStore, TrustStore

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger("aioproduce")

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
_SPOKEN: Final = (TLS_1_2, TLS_1_3)
_BROKEN: Final = frozenset({"TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello", "SSLv2"})
_NO_KEYS: Final = KeyStore()
_THE_SYSTEM: Final = TrustStore()
_SIGNAL: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Java lists it among cipher suites; OpenSSL sends it anyway."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How the connections of one producer are encrypted.

    Attributes:
        keystore: The client's own certificate and key, for brokers with `ssl.client.auth`; none by default.
        truststore: The trusted certificates; by default those that the system trusts.
        enabled_protocols: `ssl.enabled.protocols`. Versions older than TLS 1.2 are left out with a warning.
        protocol: `ssl.protocol`: `"TLSv1.2"` leaves TLS 1.3 out; `"TLS"` and `"TLSv1.3"` leave nothing out.
        cipher_suites: `ssl.cipher.suites`, with Java's names (IANA's) or OpenSSL's; empty: Python's choice.
        endpoint_identification_algorithm: `"https"` checks the broker's name; an empty text does not.
        context: An SSLContext of the user's own, used unchanged. The other settings must then be unset.

    Raises:
        ConfigError: If a value is unknown, or if two contradict each other.
    """

    keystore: KeyStore = _NO_KEYS
    truststore: TrustStore = _THE_SYSTEM
    enabled_protocols: tuple[str, ...] = _SPOKEN
    protocol: str = TLS_1_3
    cipher_suites: tuple[str, ...] = ()
    endpoint_identification_algorithm: str = "https"
    context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.endpoint_identification_algorithm.lower() not in ("https", ""):
            raise ConfigError(
                f"ssl.endpoint.identification.algorithm is {self.endpoint_identification_algorithm!r}: set it "
                f"to https, or leave it empty to check no names",
                key="ssl.endpoint.identification.algorithm",
            )
        if self.protocol not in ("TLS", *_SPOKEN):
            raise ConfigError(
                f"ssl.protocol is {self.protocol!r}: set it to TLSv1.3, TLSv1.2 or TLS", key="ssl.protocol"
            )
        if self.context is not None and (self.keystore != _NO_KEYS or self.truststore != _THE_SYSTEM):
            raise ConfigError(
                "ssl.context and ssl.keystore.* or ssl.truststore.* are both set: load them into the context",
                key="ssl.context",
            )
        if self.versions() == ():
            raise ConfigError(
                f"ssl.enabled.protocols is {', '.join(self.enabled_protocols)} and ssl.protocol is "
                f"{self.protocol}: that leaves neither TLSv1.2 nor TLSv1.3, the supported versions",
                key="ssl.enabled.protocols",
            )

    @property
    def checks_host(self) -> bool:
        """Whether the broker's certificate must contain the name of the connection."""
        return bool(self.endpoint_identification_algorithm)

    def versions(self) -> tuple[str, ...]:
        """Return the versions of TLS to offer."""
        if unknown := set(self.enabled_protocols) - _BROKEN - set(_SPOKEN):
            raise ConfigError(
                f"ssl.enabled.protocols has {', '.join(sorted(unknown))}: TLSv1.2 and TLSv1.3 are supported",
                key="ssl.enabled.protocols",
            )
        capped = (TLS_1_2,) if self.protocol == TLS_1_2 else _SPOKEN
        return tuple(version for version in capped if version in self.enabled_protocols)

    def warn(self) -> None:
        """Log a warning for each setting that is allowed but unwise."""
        if self.context is None and not self.checks_host:
            _log.warning(
                "ssl.endpoint.identification.algorithm is empty: anyone with a certificate of a trusted CA can "
                "pose as a broker. Set it to https."
            )
        if old := sorted(_BROKEN & set(self.enabled_protocols)):
            _log.warning("ssl.enabled.protocols has %s, which are insecure and ignored.", ", ".join(old))


@final
@dataclass(frozen=True, slots=True)
class CipherChoice:
    """The cipher suites of `ssl.cipher.suites`, with OpenSSL's names.

    Attributes:
        tls_1_2: The suites for TLS 1.2; empty if none is listed.
        tls_1_3: The suites for TLS 1.3; empty if none is listed.
    """

    tls_1_2: tuple[str, ...]
    tls_1_3: frozenset[str]


def choose_ciphers(wanted: Iterable[str], known: Iterable[tuple[str, str]]) -> CipherChoice:
    """Translate names of cipher suites.

    Args:
        wanted: Java's or OpenSSL's names.
        known: Name and TLS version of each suite of this OpenSSL.

    Raises:
        ConfigError: If a name is unknown.
    """
    versions = dict(known)
    older: list[str] = []
    newer: set[str] = set()
    for name in wanted:
        found = name if name in versions else openssl_name(name)
        if versions.get(found) == TLS_1_3:
            newer.add(found)
        elif found in versions:
            older.append(found)
        elif name != _SIGNAL:
            raise ConfigError(
                f"ssl.cipher.suites has {name}, which this OpenSSL does not know. It knows, by its own names or by "
                f"Java's: {', '.join(versions)}",
                key="ssl.cipher.suites",
            )
    return CipherChoice(tuple(older), frozenset(newer))


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite: `AES128-SHA` for `TLS_RSA_WITH_AES_128_CBC_SHA`."""
    name = name.removeprefix("TLS_").removeprefix("RSA_WITH_").replace("_WITH_", "_").replace("_CBC", "")
    name = (
        name.replace("POLY1305_SHA256", "POLY1305")
        .replace("CCM_8", "CCM8")
        .replace("ECDHE_RSA_ARIA", "ECDHE_ARIA")
    )
    for cipher in ("AES", "ARIA", "CAMELLIA"):
        name = name.replace(f"{cipher}_", cipher)
    return name.replace("_", "-")
