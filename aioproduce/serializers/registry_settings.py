"""A registry's settings with Confluent's keys: credentials and TLS, as for Java's and confluent-kafka's clients.

Used by `SchemaRegistryClient.from_mapping`. A key with the prefix `schema.registry.` takes precedence.

Invariants:

1. No secret is shown: a value is a `Secret` from the moment it is read.
2. Nothing is read or requested here: key files and tokens are read at the first request.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from aioproduce.config import ProducerConfig
from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.credentials import Token
from aioproduce.security.making import make_security

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from aioproduce.security.mechanism import Credential, CredentialSource

_PREFIX: Final = "schema.registry."
_REFRESH_FACTOR: Final = 0.8  # the default of `sasl.login.refresh.window.factor`


@final
class SourceToken:
    """The token of an OAUTHBEARER source: fetched once for all callers, and again before it expires.

    Args:
        source: The source of tokens.
        now: Returns the seconds since the epoch.
    """

    __slots__ = ("_credential", "_lock", "_now", "_refresh_at", "_source")

    def __init__(self, source: CredentialSource, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now
        self._credential: Credential | None = None
        self._refresh_at = 0.0
        self._lock: anyio.Lock | None = None

    async def __call__(self) -> Secret:
        """Return the token.

        Raises:
            TokenError: If there is none.
        """
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            if self._credential is None or self._now() >= self._refresh_at:
                await self._fetch()
        assert self._credential is not None
        token: Token = self._credential.value
        return token.value

    async def _fetch(self) -> None:
        if self._source.is_async or self._source.is_static:
            fetched = self._source.fetch()
        else:
            fetched = await anyio.to_thread.run_sync(self._source.fetch, abandon_on_cancel=True)
        credential = await fetched if inspect.isawaitable(fetched) else fetched
        now = self._now()
        self._credential = credential
        expires_at = credential.expires_at
        self._refresh_at = now if expires_at is None else now + (expires_at - now) * _REFRESH_FACTOR


def arguments_of(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of `SchemaRegistryClient` for these settings; other keys are ignored.

    Raises:
        ConfigError: If a key is missing, or if two contradict each other.
    """
    keys = _Keys(settings)
    url = keys.text("url") or keys.text("schema.registry.url")
    if not url:
        raise ConfigError(
            "schema.registry.url is missing: set it to http(s)://host:port", key="schema.registry.url"
        )
    headers = {}
    if cluster := keys.text("bearer.auth.logical.cluster"):
        headers["target-sr-cluster"] = cluster
    if pool := keys.text("bearer.auth.identity.pool.id"):
        headers["Confluent-Identity-Pool-Id"] = pool
    return {
        "urls": url,
        "basic_auth": _basic(keys),
        "bearer_token": _bearer(keys),
        "headers": headers,
        "ssl_context": _context(keys),
    }


@final
class _Keys:
    """Values by key, with or without the prefix."""

    __slots__ = ("settings",)

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.settings = settings

    def text(self, key: str) -> str | None:
        """Return a value that may be shown."""
        value = self.settings.get(_PREFIX + key, self.settings.get(key))
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{key} must be a text, not {type(value).__name__}", key=key)
        return value or None

    def secret(self, key: str) -> Secret | None:
        """Return a secret value."""
        value = self.settings.get(_PREFIX + key, self.settings.get(key))
        if isinstance(value, Secret) or value is None:
            return value
        if not isinstance(value, str):
            raise ConfigError(f"{key} must be a text, not {type(value).__name__}", key=key)
        return Secret(value)

    def source(self) -> CredentialSource:
        """Return the producer's own source of credentials: `sasl.*` of the same settings."""
        sasl = {key: value for key, value in self.settings.items() if key.startswith("sasl.")}
        config = ProducerConfig.from_mapping(
            {
                "bootstrap.servers": self.settings.get("bootstrap.servers", "localhost:9092"),
                "security.protocol": "SASL_SSL",
                **sasl,
            }
        )
        security = make_security(config)
        assert security is not None
        assert security.sasl is not None
        return security.sasl.source


def _basic(keys: _Keys) -> tuple[str, Secret] | None:
    source = keys.text("basic.auth.credentials.source")
    user_info = keys.secret("basic.auth.user.info")
    if source == "SASL_INHERIT":
        user = keys.source().fetch()
        value = getattr(user, "value", None)
        if not hasattr(value, "password"):
            raise ConfigError(
                "basic.auth.credentials.source=SASL_INHERIT needs a name and a password in sasl.*",
                key="basic.auth.credentials.source",
            )
        return value.username, value.password  # type: ignore[union-attr]  # it has both
    if source not in (None, "USER_INFO", "URL"):
        raise ConfigError(
            f"basic.auth.credentials.source is {source!r}: set it to USER_INFO, URL or SASL_INHERIT",
            key="basic.auth.credentials.source",
        )
    if user_info is None or source == "URL":
        return None
    if ":" not in user_info.reveal():
        raise ConfigError("basic.auth.user.info must be name:password", key="basic.auth.user.info")
    return user_info.reveal().partition(":")[0], Secret(user_info.reveal().partition(":")[2])


def _bearer(keys: _Keys) -> Secret | SourceToken | None:
    source = keys.text("bearer.auth.credentials.source")
    token = keys.secret("bearer.auth.token")
    if source in (None, "STATIC_TOKEN"):
        if source is not None and token is None:
            raise ConfigError("bearer.auth.token is missing: set it to the token", key="bearer.auth.token")
        return token
    if source in ("SASL_INHERIT", "SASL_OAUTHBEARER_INHERIT"):
        return SourceToken(keys.source())
    if source == "OAUTHBEARER":
        return SourceToken(_endpoint(keys))
    raise ConfigError(
        f"bearer.auth.credentials.source is {source!r}: set it to STATIC_TOKEN, OAUTHBEARER or "
        "SASL_OAUTHBEARER_INHERIT; pass a function of your own as bearer_token=",
        key="bearer.auth.credentials.source",
    )


def _endpoint(keys: _Keys) -> CredentialSource:
    """Return the producer's own kind of token source, with the registry's keys."""
    given: dict[str, object] = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": keys.text("bearer.auth.issuer.endpoint.url"),
        "sasl.oauthbearer.client.credentials.client.id": keys.text("bearer.auth.client.id"),
        "sasl.oauthbearer.client.credentials.client.secret": keys.secret("bearer.auth.client.secret"),
        "sasl.oauthbearer.scope": keys.text("bearer.auth.scope"),
        "sasl.oauthbearer.token.endpoint.ca.location": keys.text("ssl.ca.location"),
    }
    for key, needed in (
        ("bearer.auth.issuer.endpoint.url", "sasl.oauthbearer.token.endpoint.url"),
        ("bearer.auth.client.id", "sasl.oauthbearer.client.credentials.client.id"),
        ("bearer.auth.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
    ):
        if not given[needed]:
            raise ConfigError(f"bearer.auth.credentials.source=OAUTHBEARER needs {key}", key=key)
    return _Keys({key: value for key, value in given.items() if value is not None}).source()


def _context(keys: _Keys) -> Callable[[], ssl.SSLContext] | None:
    """Return a function that creates a context with these certificates, or `None` if none are set."""
    from aioproduce.security.key_files import KeyStore, TrustStore

    certificate, key = keys.text("ssl.certificate.location"), keys.text("ssl.key.location")
    trust = keys.text("ssl.ca.location") or keys.text("ssl.truststore.location")
    store = keys.text("ssl.keystore.location") or (certificate if key in (None, certificate) else None)
    if key is not None and certificate is None:
        raise ConfigError("ssl.key.location needs ssl.certificate.location", key="ssl.certificate.location")
    if trust is None and store is None and certificate is None:
        return None
    key_password = keys.secret("ssl.key.password")
    store_password = keys.secret("ssl.keystore.password")
    truststore = TrustStore(location=trust, password=keys.secret("ssl.truststore.password"))

    def make() -> ssl.SSLContext:
        from aioproduce.security.http_tls import client_context

        if store is None and certificate is not None and key is not None:
            keystore = KeyStore(
                certificate_chain=_content(certificate, "ssl.certificate.location"),
                key=_content(key, "ssl.key.location"),
                key_password=key_password,
            )
        else:
            keystore = KeyStore(location=store, password=store_password, key_password=key_password)
        return client_context(keystore, truststore)

    return make


def _content(path: str, setting: str) -> Secret:
    try:
        return Secret(Path(path).read_text("latin-1"))
    except OSError as error:
        why = error.strerror
    raise ConfigError(f"{setting}: {path!r} cannot be read ({why})", key=setting)
