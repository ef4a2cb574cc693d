"""The OAuth 2.0 grants of Kafka, which are the requests to a token endpoint.

| grant | authenticates the client with | Kafka |
|---|---|---|
| `ClientSecret` | `client_credentials` and a secret, in a header | KIP-768 |
| `ClientAssertion` | `client_credentials` and a signed JWT (RFC 7523, 2.2) | KIP-1258 |
| `JwtBearer` | a signed JWT that is the grant itself (RFC 7523, 2.1) | KIP-1139 |
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final
from urllib.parse import quote_plus

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.tokens.trouble import Trouble

if TYPE_CHECKING:
    from aioproduce.security.tokens.assertion import Assertion

_log = logging.getLogger("aioproduce")

CLIENT_ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"

_CLIENT_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to a token endpoint.

    Attributes:
        form: The fields of the body.
        authorization: The `Authorization` header; `None`: none.
        hidden: Other texts that messages must not contain: the secret within the header.
    """

    form: Mapping[str, str | Secret]
    authorization: Secret | None = None
    hidden: tuple[Secret, ...] = field(default=())

    def secrets(self) -> tuple[Secret, ...]:
        """Return all texts that messages must not contain."""
        encoded = (
            () if self.authorization is None else (Secret(self.authorization.reveal().partition(" ")[2]),)
        )
        return (*self.hidden, *encoded, *(value for value in self.form.values() if isinstance(value, Secret)))


class Grant(Protocol):
    """A way to request tokens.

    Attributes:
        setting: Kafka's key to check if the endpoint refuses.
    """

    @property
    def setting(self) -> str: ...  # noqa: D102

    def request(self) -> Request | Trouble:
        """Return the request to send now, or why there is none. It may read files and sign."""


@final
class ClientSecret:
    """The `client_credentials` grant, with an id and a secret in a Basic header.

    Args:
        client_id: The client's id.
        client_secret: Its secret.
        scope: The requested scope; `None`: the endpoint's default.
        is_url_encoded: Whether to quote both for a URL in the header, as RFC 6749 (2.3.1) requires and few
            endpoints expect: Kafka's `sasl.oauthbearer.header.urlencode`.

    Raises:
        ConfigError: If the id or the secret is missing.
    """

    setting: Final = CLIENT_SECRET_KEY

    def __init__(
        self,
        client_id: str | None,
        client_secret: Secret | None,
        *,
        scope: str | None = None,
        is_url_encoded: bool = False,
    ) -> None:
        # Spaces around them are dropped, as in Kafka.
        self._id = (client_id or "").strip()
        if not self._id:
            raise ConfigError(_missing(CLIENT_ID_KEY, "clientId"), key=CLIENT_ID_KEY)
        if client_secret is None or not client_secret.reveal().strip():
            raise ConfigError(_missing(CLIENT_SECRET_KEY, "clientSecret"), key=CLIENT_SECRET_KEY)
        if ":" in self._id and not is_url_encoded:
            raise ConfigError(
                f"{CLIENT_ID_KEY} has a colon, which ends the id in the header: set "
                "sasl.oauthbearer.header.urlencode=true",
                key=CLIENT_ID_KEY,
            )
        self._secret = Secret(client_secret.reveal().strip())
        self._scope = scope
        self._is_url_encoded = is_url_encoded

    def request(self) -> Request:
        """Return the request, which is always the same."""
        return Request(
            form=_form({"grant_type": "client_credentials"}, self._scope),
            authorization=Secret(f"Basic {base64.b64encode(self._pair().reveal().encode()).decode()}"),
            hidden=(self._secret,),
        )

    def _pair(self) -> Secret:
        if self._is_url_encoded:
            return Secret(f"{quote_plus(self._id)}:{quote_plus(self._secret.reveal())}")
        return Secret(f"{self._id}:{self._secret.reveal()}")


@final
class ClientAssertion:
    """The `client_credentials` grant, with a JWT that the client has signed instead of a secret.

    Args:
        assertion: The source of the JWT.
        client_id: The client's id, if the endpoint needs it in addition to the JWT.
        scope: The requested scope; `None`: the endpoint's default.
    """

    def __init__(
        self, assertion: Assertion, *, client_id: str | None = None, scope: str | None = None
    ) -> None:
        self._assertion = assertion
        self._id = (client_id or "").strip()
        self._scope = scope

    @property
    def setting(self) -> str:
        """The setting of the assertion."""
        return self._assertion.setting

    def request(self) -> Request | Trouble:
        """Return a request with a new assertion."""
        assertion = self._assertion.create()
        if isinstance(assertion, Trouble):
            return assertion
        form: dict[str, str | Secret] = {
            "grant_type": "client_credentials",
            "client_assertion_type": _CLIENT_ASSERTION_TYPE,
            "client_assertion": assertion,
        }
        if self._id:
            form["client_id"] = self._id
        return Request(form=_form(form, self._scope))


@final
class JwtBearer:
    """The `jwt-bearer` grant: a signed JWT is exchanged for a token.

    Args:
        assertion: The source of the JWT.
        scope: The requested scope; `None`: the endpoint's default.
    """

    def __init__(self, assertion: Assertion, *, scope: str | None = None) -> None:
        self._assertion = assertion
        self._scope = scope

    @property
    def setting(self) -> str:
        """The setting of the assertion."""
        return self._assertion.setting

    def request(self) -> Request | Trouble:
        """Return a request with a new assertion."""
        assertion = self._assertion.create()
        if isinstance(assertion, Trouble):
            return assertion
        return Request(form=_form({"grant_type": _JWT_BEARER, "assertion": assertion}, self._scope))


def client_credentials(
    *,
    client_id: str | None,
    client_secret: Secret | None,
    assertion: Assertion | None,
    scope: str | None = None,
    is_url_encoded: bool = False,
) -> Grant:
    """Return the configured grant in Kafka's order: an assertion if there is one, else the secret.

    Raises:
        ConfigError: If there is neither.
    """
    if assertion is None:
        return ClientSecret(client_id, client_secret, scope=scope, is_url_encoded=is_url_encoded)
    if client_secret:
        _log.warning(
            "%s is used and %s is ignored: remove one of the two", assertion.setting, CLIENT_SECRET_KEY
        )
    return ClientAssertion(assertion, client_id=client_id, scope=scope)


def _form(form: dict[str, str | Secret], scope: str | None) -> dict[str, str | Secret]:
    return {**form, "scope": scope.strip()} if scope and scope.strip() else form


def _missing(key: str, option: str) -> str:
    return (
        f"{key} is missing, which the token endpoint needs: set it (or {option} in sasl.jaas.config), or use "
        "another source of tokens: sasl.oauthbearer.assertion.file, sasl.oauthbearer.assertion.claim.iss with "
        "sasl.oauthbearer.assertion.private.key.file, or sasl.oauthbearer.token.provider"
    )
