"""Access control of the HTTP servers: a token, in the forms that programs and browsers send.

Used by `dashboard.app` and `reporters.prometheus` for each request.

Invariants:

1. A token is compared in constant time.
2. It is accepted only in a header and never in an address, because logs and histories keep addresses. A browser
   asks for it as a password (`Authorization: Basic`, with any name) and remembers it until the browser ends.
3. Nothing that was sent is repeated or logged.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from typing import Final, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError

CHALLENGE: Final = 'Basic realm="aioproduce", charset="UTF-8"'
"""The `WWW-Authenticate` header of a 401, for which a browser asks for name and password."""

REFUSAL: Final = b"This needs a token: as Authorization: Bearer, or as the password of any user.\n"

_LONGEST: Final = 4096


@final
class HttpAccess:
    """Decides whether a request is allowed.

    Args:
        token: The token, at least 8 characters of ASCII without spaces.

    Raises:
        ConfigError: If the token is not such a text.
    """

    __slots__ = ("_token",)

    def __init__(self, token: str | Secret) -> None:
        self._token = token if isinstance(token, Secret) else Secret(token)
        text = self._token.reveal
        if len(text()) < 8 or not text().isascii() or not text().isprintable() or " " in text():
            raise ConfigError(
                "token must be at least 8 characters of ASCII without spaces: "
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes a good one",
                key="token",
            )

    def allows(self, authorization: str | bytes | None) -> bool:
        """Return whether this value of the header `Authorization` contains the token."""
        value = (
            authorization.encode("latin-1", "replace") if isinstance(authorization, str) else authorization
        )
        if value is None or len(value) > _LONGEST:
            return False
        scheme, _, rest = value.partition(b" ")
        if scheme.lower() == b"bearer":
            return self._is_token(rest.strip())
        if scheme.lower() == b"basic":
            try:
                pair = base64.b64decode(rest.strip(), validate=True)
            except binascii.Error:
                return False
            return self._is_token(pair.partition(b":")[2])
        return False

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self._token.reveal().encode())


def made_access(token: str | Secret | None) -> HttpAccess | None:
    """Return the access control for this token; `None` allows everybody."""
    return None if token is None else HttpAccess(token)


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
