"""The security of a `FakeCluster`: protocols of its listeners, users, and the settings of its clients.

Users create `FakeSecurity` and `FakeTls`; `FakeCluster` uses `ClusterSecurity`, which is made from them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.testing.fake_cluster.sasl_mechanisms import (
    MECHANISMS,
    SCRAM_HASHES,
    TokenVerifier,
    Users,
    unsecured_claims,
    unsecured_token,
)
from aioproduce.testing.fake_cluster.sasl_server import SaslServer

if TYPE_CHECKING:
    import ssl

    from aioproduce.testing.fake_cluster.certificates import Authority, Identity
    from aioproduce.testing.fake_cluster.model import ClusterModel

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_CLIENT_AUTH: Final = ("none", "requested", "required")
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    **dict.fromkeys(SCRAM_HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTls:
    """TLS of a cluster's listeners, with generated certificates (extra `tls`).

    Args:
        versions: `ssl.enabled.protocols`.
        client_auth: `ssl.client.auth`: `none`, `requested`, or `required` (mutual TLS).
        certificate: The brokers' certificate: `valid`, `expired`, `not yet valid`, `wrong host`, `self-signed` or
            `unknown authority`. `FakeCluster.set_certificate()` changes it.
        sends_close_notify: Whether a broker sends close_notify when it closes a connection; some do not.

    Raises:
        ValueError: If a value is none of these.
    """

    versions: tuple[str, ...] = _TLS_VERSIONS
    client_auth: str = "none"
    certificate: str = "valid"
    sends_close_notify: bool = True

    def __post_init__(self) -> None:
        from aioproduce.testing.fake_cluster.certificates import CERTIFICATE_KINDS

        _check("version of TLS", self.versions, _TLS_VERSIONS)
        _check("client_auth", (self.client_auth,), _CLIENT_AUTH)
        _check("certificate", (self.certificate,), CERTIFICATE_KINDS)


@final
@dataclass(frozen=True, slots=True)
class FakeSecurity:
    """The security settings of a cluster.

    Args:
        protocol: `security.protocol` of all its listeners. `PLAINTEXT` differs from no security at all: brokers
            offer the APIs of SASL, as Kafka's do, and answer them with ILLEGAL_SASL_STATE.
        users: Name -> password, for PLAIN and SCRAM; `FakeCluster.set_password()` changes them.
        mechanisms: `sasl.enabled.mechanisms`; `client_settings()` uses the first by default.
        tls: The settings of TLS, for the protocols that use it.
        connections_max_reauth_ms: `connections.max.reauth.ms`: clients must log in again within this many
            milliseconds (KIP-368); 0 or less: never, unless a token expires.
        session_lifetime_ms: Sent to clients instead of the session's real lifetime. Some brokers send a negative
            one.
        failed_authentication_delay_ms: `connection.failed.authentication.delay.ms`.
        scram_iterations: Of PBKDF2; brokers accept 4,096 to 16,384, and no limit is enforced here.
        verify_token: For OAUTHBEARER: returns a token's claims, of which `sub` and `exp` are read, or raises
            ValueError if the token is not valid. By default unsigned JWTs of any subject are accepted.

    Raises:
        ValueError: If a value is none of Kafka's.

    Example:
        >>> security = FakeSecurity("SASL_SSL", users={"alice": "secret"})
        >>> async with FakeCluster(security=security) as cluster:
        ...     settings = cluster.client_settings()      # security.protocol, ssl.truststore.certificates, sasl.*
    """

    protocol: str = "SASL_SSL"
    users: Mapping[str, str] = field(default_factory=lambda: {"alice": "alice-secret"}, repr=False)
    mechanisms: tuple[str, ...] = MECHANISMS
    tls: FakeTls = field(default_factory=FakeTls)
    connections_max_reauth_ms: int = 0
    session_lifetime_ms: int | None = None
    failed_authentication_delay_ms: int = 100
    scram_iterations: int = 4096
    verify_token: TokenVerifier = field(default=unsecured_claims, repr=False)

    def __post_init__(self) -> None:
        _check("security.protocol", (self.protocol,), PROTOCOLS)
        _check("SASL mechanism", self.mechanisms, MECHANISMS)

    @property
    def has_tls(self) -> bool:
        """Whether listeners use TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients must log in."""
        return self.protocol.startswith("SASL")


@final
class ClusterSecurity:
    """The state of a cluster's `FakeSecurity`: the current users, and the certificates.

    Args:
        security: The settings.
        host: The address on which the brokers listen.

    Raises:
        MissingExtraError: If it uses TLS, and `cryptography` is not installed.
    """

    __slots__ = ("_authority", "_broker", "_context", "security", "users")

    def __init__(self, security: FakeSecurity, host: str) -> None:
        self.security: FakeSecurity = security
        self.users: Users = Users(dict(security.users), os.urandom, security.scram_iterations)
        self._authority: Authority | None = None
        self._broker: Identity | None = None
        self._context: ssl.SSLContext | None = None
        if security.has_tls:
            from aioproduce.testing.fake_cluster.certificates import Authority

            self._authority = Authority(host)
            self.set_certificate(security.tls.certificate)

    def install(self, model: ClusterModel) -> None:
        """Apply it to a model."""
        security = self.security
        sasl = make_sasl(security, self.users, model)
        if not security.has_tls:
            model.secure(None, sasl, asks_for_login=security.has_sasl)
            return
        from aioproduce.testing.fake_cluster.tls_server import TlsServerChannels

        channels = TlsServerChannels(
            self._require_context, sends_close_notify=security.tls.sends_close_notify
        )
        model.secure(channels, sasl, asks_for_login=security.has_sasl)

    # Certificates

    @property
    def ca(self) -> str:
        """The certificate that clients trust, in PEM."""
        return self._require_authority().ca

    def set_certificate(self, kind: str) -> None:
        """Change the brokers' certificate for new connections."""
        from aioproduce.testing.fake_cluster.certificates import CERTIFICATE_KINDS
        from aioproduce.testing.fake_cluster.tls_server import server_context

        _check("certificate", (kind,), CERTIFICATE_KINDS)
        authority = self._require_authority()
        tls = self.security.tls
        self._context = server_context(
            authority.broker(kind), versions=tls.versions, client_auth=tls.client_auth, ca=authority.ca
        )

    def client_identity(self, name: str = "client") -> Identity:
        """Return a certificate and a key for a client."""
        return self._require_authority().client(name)

    def client_context(self) -> ssl.SSLContext:
        """Return a context for a client that trusts the cluster, with a client certificate if one is required."""
        from aioproduce.testing.fake_cluster.tls_server import client_context

        return client_context(self.ca, self.client_identity() if self._has_client_identity else None)

    @property
    def _has_client_identity(self) -> bool:
        return self.security.tls.client_auth != "none"

    def _require_authority(self) -> Authority:
        if self._authority is None:
            raise ValueError(f"a cluster with {self.security.protocol} has no certificates")
        return self._authority

    def _require_context(self) -> ssl.SSLContext:
        assert self._context is not None
        return self._context

    # Settings of clients

    def client_settings(
        self, user: str | None, mechanism: str | None, directory: str | os.PathLike[str] | None
    ) -> dict[str, str]:
        """Return the settings for a client's configuration, with Kafka's keys."""
        security = self.security
        settings = {"security.protocol": security.protocol}
        if security.has_tls:
            settings |= self._tls_settings(directory)
        if security.has_sasl:
            settings |= self._sasl_settings(user, mechanism or security.mechanisms[0])
        return settings

    def _tls_settings(self, directory: str | os.PathLike[str] | None) -> dict[str, str]:
        identity = self.client_identity() if self._has_client_identity else None
        if directory is None:
            settings = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca}
            if identity is not None:
                settings["ssl.keystore.type"] = "PEM"
                settings["ssl.keystore.certificate.chain"] = identity.chain
                settings["ssl.keystore.key"] = identity.key
            return settings
        settings = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": _write(directory, "ca.pem", self.ca),
        }
        if identity is not None:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.location"] = _write(directory, "client.pem", identity.key + identity.chain)
        return settings

    def _sasl_settings(self, user: str | None, mechanism: str) -> dict[str, str]:
        module = f"{_LOGIN_MODULES[mechanism]} required"
        if mechanism == "OAUTHBEARER":
            options = (
                f"unsecuredLoginStringClaim_sub={_quoted(user or next(iter(self.users.passwords), 'client'))}"
            )
        else:
            name = next(iter(self.users.passwords)) if user is None else user
            options = f"username={_quoted(name)} password={_quoted(self.users.passwords[name])}"
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} {options};"}


def make_sasl(security: FakeSecurity, users: Users, model: ClusterModel) -> SaslServer:
    """Create the login handling of a model's brokers."""
    reauth, announced = security.connections_max_reauth_ms, security.session_lifetime_ms
    return SaslServer(
        security.mechanisms,
        users,
        security.verify_token,
        model.faults,
        model.wall_ms,
        max_reauth=reauth / 1000 if reauth > 0 else None,
        announced_lifetime=None if announced is None else announced / 1000,
        failed_delay=security.failed_authentication_delay_ms / 1000,
    )


def token_for(user: str, *, lifetime: float = 3600.0, **claims: Any) -> str:
    """Return an unsigned JWT, issued now, which a `FakeCluster` accepts by default.

    Args:
        user: Its subject.
        lifetime: In seconds.
        **claims: Further claims.
    """
    return unsecured_token(user, issued_at=time.time(), lifetime=lifetime, **claims)


def made_security(given: FakeSecurity | str | Mapping[str, Any] | None) -> FakeSecurity | None:
    """Convert a short form: a protocol's name, or the arguments of `FakeSecurity` (`tls` in the same way)."""
    if given is None or isinstance(given, FakeSecurity):
        return given
    if isinstance(given, str):
        return FakeSecurity(given)
    options = dict(given)
    if isinstance(options.get("tls"), Mapping):
        options["tls"] = FakeTls(**options["tls"])
    return FakeSecurity(**options)


def _check(what: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not values:
        raise ValueError(f"at least one {what} is needed: choose from {', '.join(known)}")
    for value in values:
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}: choose from {', '.join(known)}")


def _quoted(value: str) -> str:
    """Return a quoted value for `sasl.jaas.config`, whose quotes and backslashes are escaped as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _write(directory: str | os.PathLike[str], name: str, content: str) -> str:
    path = Path(directory) / name
    path.touch(mode=0o600)
    path.write_text(content)
    return str(path)
