"""librdkafka's options for TLS and SASL: their rows in the table, and Kafka's own keys for them.

Used by `confluent_option_tables`, whose table includes them, and by `confluent_options`.

Invariants:

1. As in librdkafka, an option counts only if the protocol, the mechanism and `sasl.oauthbearer.method` use it.
2. PEM files with a certificate and its key are read once, when the producer is created, as in librdkafka.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

from aioproduce.config import Key, ProducerConfig, Secret
from aioproduce.config.kinds import TEXT, Choice, Function, Int, Kind, Unused
from aioproduce.config.security_kinds import Hidden
from aioproduce.config.security_table import SASL_MECHANISMS
from aioproduce.errors import ConfigError

_PEM: Final = Hidden("PEM", can_be_empty=True)
_PASSWORD: Final = Hidden("a password", can_be_empty=True)
_BOOL: Final = Choice(
    {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False},
    is_any_case=True,
    allowed="true or false",
)
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_GRANTS: Final = ("client_credentials", _JWT_BEARER)

_KEYTAB: Final = "the ticket comes from the credential cache or KRB5_CLIENT_KTNAME: put it there with kinit"
_ENGINE: Final = "keys come from files or PEM texts: set ssl.keystore.location or ssl.key.location"
_CURVES: Final = "OpenSSL's own are used; leave it out"
_CALLBACK_OF_C: Final = "librdkafka accepts it only from C; leave it out"


def _text(name: str, *aliases: str) -> Key:
    return Key(name, TEXT, "", aliases=aliases)


def _secret(name: str, kind: Kind, *aliases: str) -> Key:
    return Key(name, kind, None, has_secret=True, aliases=aliases)


def _refused(name: str, remedy: str, *accepted: str) -> Key:
    return Key(name, Unused("WORD", *accepted, ""), accepted[0] if accepted else None, remedy)


# fmt: off
SECURITY_TAKEN: Final = (
    Key("security.protocol", Choice(("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"), is_any_case=True),
        "plaintext"),
    _text("ssl.ca.location"),
    _secret("ssl.ca.pem", _PEM),
    _text("ssl.certificate.location"),
    _secret("ssl.certificate.pem", _PEM),
    _text("ssl.key.location"),
    _secret("ssl.key.pem", _PEM),
    _secret("ssl.key.password", _PASSWORD),
    _text("ssl.keystore.location"),
    _secret("ssl.keystore.password", _PASSWORD),
    Key("ssl.endpoint.identification.algorithm", Choice(("none", "https"), is_any_case=True), "https"),
    _text("ssl.cipher.suites"),
    _text("https.ca.location"),
    Key("sasl.mechanisms", Choice(SASL_MECHANISMS[:-1]), "GSSAPI", aliases=("sasl.mechanism",)),
    _text("sasl.username"),
    _secret("sasl.password", _PASSWORD),
    Key("sasl.kerberos.service.name", TEXT, "kafka"),
    Key("sasl.oauthbearer.method", Choice(("default", "oidc"), is_any_case=True), "default"),
    _text("sasl.oauthbearer.config"),
    Key("oauth_cb", Function("a callable", can_be_async=True), None),
    _text("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
    _secret("sasl.oauthbearer.client.secret", _PASSWORD, "sasl.oauthbearer.client.credentials.client.secret"),
    _text("sasl.oauthbearer.scope"),
    _text("sasl.oauthbearer.extensions"),
    _text("sasl.oauthbearer.token.endpoint.url"),
    Key("sasl.oauthbearer.sub.claim.name", TEXT, "sub"),
    Key("sasl.oauthbearer.grant.type", Choice(_GRANTS, is_any_case=True), "client_credentials"),
    Key("sasl.oauthbearer.assertion.algorithm", Choice(("RS256", "ES256"), is_any_case=True), "RS256"),
    _text("sasl.oauthbearer.assertion.private.key.file"),
    _secret("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD),
    _text("sasl.oauthbearer.assertion.file"),
    _text("sasl.oauthbearer.assertion.claim.aud"),
    _text("sasl.oauthbearer.assertion.claim.iss"),
    _text("sasl.oauthbearer.assertion.claim.sub"),
    Key("sasl.oauthbearer.assertion.claim.exp.seconds", Int(1), 300),
    Key("sasl.oauthbearer.assertion.claim.nbf.seconds", Int(0), 60),
    Key("sasl.oauthbearer.assertion.claim.jti.include", _BOOL, False),
    _text("sasl.oauthbearer.assertion.jwt.template.file"),
)

SECURITY_REFUSED: Final = (
    _refused("enable.ssl.certificate.verification",
        "without it anybody can pose as the broker: set ssl.ca.location or ssl.ca.pem to its authority", "true"),
    _refused("ssl.curves.list", _CURVES),
    _refused("ssl.sigalgs.list", _CURVES),
    _refused("ssl.crl.location", "use aioproduce.Producer with an ssl_context that contains the list"),
    _refused("ssl.ca.certificate.stores", "the system's store is used; leave it out", "Root"),
    _refused("ssl.providers", _CURVES),
    _refused("ssl.engine.location", _ENGINE),
    _refused("ssl.engine.id", _ENGINE, "dynamic"),
    *(_refused(name, _CALLBACK_OF_C) for name in (
        "ssl_key", "ssl_certificate", "ssl_ca", "ssl_engine_callback_data", "ssl.certificate.verify_cb")),
    _refused("https.ca.pem", "put it into a file, and set https.ca.location to that"),
    _refused("sasl.kerberos.principal", _KEYTAB, "kafkaclient"),
    _refused("sasl.kerberos.keytab", _KEYTAB),
    _refused("sasl.kerberos.kinit.cmd", _KEYTAB,
        'kinit -R -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}'),
    _refused("sasl.kerberos.min.time.before.relogin", _KEYTAB, "60000"),
    _refused("enable.sasl.oauthbearer.unsecure.jwt", "pass an oauth_cb; it may return an unsecured JWT", "false"),
    _refused("oauthbearer_token_refresh_cb", "pass a callable as oauth_cb"),
    _refused("sasl.oauthbearer.assertion.private.key.pem",
        "put it into a file, and set sasl.oauthbearer.assertion.private.key.file"),
    _refused("sasl.oauthbearer.metadata.authentication.type",
        "pass an oauth_cb that asks that service", "none"),
)
# fmt: on


def security_settings(values: Mapping[str, Any]) -> dict[str, object]:
    """Return Kafka's keys for librdkafka's options.

    Raises:
        ConfigError: If a file cannot be read, or if options contradict each other.
    """
    protocol = values["security.protocol"].upper()
    settings: dict[str, object] = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings |= _tls(values)
    if protocol.startswith("SASL"):
        settings |= _sasl(values)
    return settings


def _tls(values: Mapping[str, Any]) -> dict[str, object]:
    location = values["ssl.ca.location"]
    if os.path.isdir(location):
        raise ConfigError(
            "ssl.ca.location is a directory: set it to a file that contains all certificates",
            key="ssl.ca.location",
        )
    has_check = values["ssl.endpoint.identification.algorithm"] == "https"
    return _set(
        {
            # `probe` searches for the system's store, which is the default here.
            "ssl.truststore.location": "" if location == "probe" else location,
            "ssl.truststore.certificates": values["ssl.ca.pem"],
            "ssl.keystore.location": values["ssl.keystore.location"],
            "ssl.keystore.password": values["ssl.keystore.password"],
            "ssl.keystore.certificate.chain": _pem(values, "ssl.certificate"),
            "ssl.keystore.key": _pem(values, "ssl.key"),
            "ssl.key.password": values["ssl.key.password"],
            # OpenSSL's syntax of a list.
            "ssl.cipher.suites": [name for name in values["ssl.cipher.suites"].split(":") if name],
        }
    ) | ({} if has_check else {"ssl.endpoint.identification.algorithm": ""})


def _pem(values: Mapping[str, Any], name: str) -> Secret | None:
    path, text = values[f"{name}.location"], values[f"{name}.pem"]
    if not path:
        return text or None
    if text:
        raise ConfigError(f"{name}.location and {name}.pem are both set: leave one of them out")
    try:
        return Secret(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        reason = "it is not PEM"
    raise ConfigError(f"{name}.location cannot be read: {reason}", key=f"{name}.location")


def _sasl(values: Mapping[str, Any]) -> dict[str, object]:
    mechanism = values["sasl.mechanisms"]
    settings: dict[str, object] = {"sasl.mechanism": mechanism}
    if mechanism in _WITH_PASSWORD:
        settings |= _set({"sasl.username": values["sasl.username"], "sasl.password": values["sasl.password"]})
    elif mechanism == "GSSAPI":
        settings["sasl.kerberos.service.name"] = values["sasl.kerberos.service.name"]
    elif values["sasl.oauthbearer.method"] == "oidc":
        settings |= _oidc(values)
    elif values["oauth_cb"] is not None:
        asked = token_provider(values["oauth_cb"], values["sasl.oauthbearer.config"])
        settings["sasl.oauthbearer.token.provider"] = asked
    else:
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs tokens: pass a callable as oauth_cb, or set "
            "sasl.oauthbearer.method=oidc and sasl.oauthbearer.token.endpoint.url"
        )
    return settings


def _oidc(values: Mapping[str, Any]) -> dict[str, object]:
    of = "sasl.oauthbearer"
    retriever = "JwtBearer" if values[f"{of}.grant.type"] == _JWT_BEARER else "ClientCredentials"
    same = (
        "scope", "extensions", "token.endpoint.url", "sub.claim.name", "assertion.algorithm", "assertion.file",
        "assertion.private.key.file", "assertion.private.key.passphrase", "assertion.claim.aud",
        "assertion.claim.iss", "assertion.claim.sub", "assertion.claim.exp.seconds", "assertion.claim.nbf.seconds",
        "assertion.claim.jti.include",
    )  # fmt: skip
    return _set(
        {
            f"{of}.jwt.retriever.class": f"{_OAUTH}.{retriever}JwtRetriever",
            f"{of}.client.credentials.client.id": values[f"{of}.client.id"],
            f"{of}.client.credentials.client.secret": values[f"{of}.client.secret"],
            f"{of}.assertion.template.file": values[f"{of}.assertion.jwt.template.file"],
            f"{of}.token.endpoint.ca.location": values["https.ca.location"],
            **{f"{of}.{name}": values[f"{of}.{name}"] for name in same},
        }
    )


def _set(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that are not empty."""
    return {
        name: value for name, value in settings.items() if value not in (None, "", []) and value != Secret("")
    }


@final
class SaslCredentials:
    """The credentials of the next PLAIN or SCRAM login, from the options or `set_sasl_credentials()`.

    Attributes:
        username: Kafka's user.
        password: The password.
    """

    __slots__ = ("password", "username")

    password: Secret
    username: str

    def __init__(self, username: str, password: Secret) -> None:
        self.username, self.password = username, password

    @classmethod
    def of(cls, config: ProducerConfig) -> SaslCredentials | None:
        """Return the credentials of a configuration; `None` if its mechanism does not need a password."""
        if not config.sasl_username or config.sasl_password is None:
            return None
        return cls(config.sasl_username, config.sasl_password)

    async def ask(self) -> tuple[str, Secret]:
        """Return both, as a `sasl.credentials.provider`."""
        return self.username, self.password


@final
class CallbackToken:
    """The result of an `oauth_cb`, in the form of our token providers.

    Attributes:
        value: The token.
        expires_at: Seconds since the epoch.
        principal: The user's name.
        extensions: SASL extensions.
    """

    __slots__ = ("expires_at", "extensions", "principal", "value")

    expires_at: float
    extensions: Mapping[str, str] | dict[str, str]
    principal: str

    def __init__(
        self,
        value: str,
        expires_at: float,
        principal: str = "",
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.value: Secret = Secret(value)
        self.expires_at, self.principal, self.extensions = expires_at, principal, extensions or {}


def token_provider(callback: Callable[[str], Any], config: str) -> Callable[[], Any]:
    """Return a provider of tokens that calls an `oauth_cb`, sync or async.

    Args:
        callback: Called with `config`; returns `(token, expires_at)`, optionally followed by a principal and a dict
            of extensions.
        config: `sasl.oauthbearer.config`.
    """

    async def ask() -> CallbackToken:
        return CallbackToken(*await callback(config))

    def call() -> CallbackToken:
        return CallbackToken(*callback(config))

    is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - the method of an object
    )
    return ask if is_async else call
