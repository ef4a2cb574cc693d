r"""OAUTHBEARER (RFC 7628): a token, with Kafka's extensions (KIP-342).

A broker that refuses a token sends the reason as JSON, and expects one `\x01` before it ends the login. The reason
is then in `OAuthBearer.refusal`, for the core's error.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import AuthenticationError

if TYPE_CHECKING:
    from aioproduce.config.secret import Secret
    from aioproduce.security.credentials import Token
    from aioproduce.security.mechanism import Credential

MECHANISM: Final = "OAUTHBEARER"

_B64TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750, section 2.1."""

_EXTENSION_KEY: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")
"""RFC 7628, section 3.1; Kafka refuses an empty value."""

_MAX_REFUSAL: Final = 4096
_MAX_TEXT: Final = 200


@final
class OAuthBearer:
    """One login conversation.

    Args:
        token: The token to log in with.

    Attributes:
        refusal: Why the broker refused the token, if it gave a reason; empty if it has not refused.
    """

    __slots__ = ("_token", "refusal")

    def __init__(self, token: Token) -> None:
        self._token = token
        self.refusal: str = ""

    def start(self) -> bytes:
        """Return the token and its extensions.

        Raises:
            AuthenticationError: If a character is not allowed in the protocol.
        """
        token = self._token
        if not _B64TOKEN.fullmatch(token.value.reveal()):
            raise AuthenticationError(
                "the token is empty, or has characters that bearer tokens must not have (RFC 6750): check what"
                " sasl.oauthbearer.token.provider, or the token endpoint, returns",
                mechanism=MECHANISM,
                setting="sasl.oauthbearer.token.provider",
            )
        for number, (key, value) in enumerate(token.extensions.items(), 1):
            if problem := _extension_problem(key, value):
                raise AuthenticationError(
                    f"extension {number} of the token {problem}: check sasl.oauthbearer.extensions",
                    mechanism=MECHANISM,
                    setting="sasl.oauthbearer.extensions",
                )
        extensions = "".join(f"{key}={value}\x01" for key, value in token.extensions.items())
        return f"n,,\x01auth=Bearer {token.value.reveal()}\x01{extensions}\x01".encode()

    def step(self, challenge: bytes) -> bytes | None:
        r"""Return `None` for an empty challenge, which means success, or `\x01` for a refusal, and set `refusal`.

        Raises:
            AuthenticationError: If the broker continues after its refusal.
        """
        if self.refusal:
            raise AuthenticationError(
                f"the broker refused the token: {self.refusal}", mechanism=MECHANISM, setting=None
            )
        if not challenge:
            return None
        self.refusal = _refusal(challenge, self._token.value)
        return b"\x01"


def _extension_problem(key: str, value: str) -> str:
    if key == "auth":
        return "is named auth, which is the token itself"
    if not _EXTENSION_KEY.fullmatch(key):
        return "has a name with other characters than letters (KIP-342)"
    if not _EXTENSION_VALUE.fullmatch(value):
        return "is empty, or has a character that is not printable ASCII (RFC 7628)"
    return ""


def _refusal(challenge: bytes, token: Secret) -> str:
    """Return the broker's reason, shortened, printable, and without the token."""
    if len(challenge) > _MAX_REFUSAL:
        return f"{len(challenge):,} bytes, which is too long"
    try:
        found: Any = json.loads(challenge)
    except (ValueError, RecursionError):
        return "an answer that is not JSON"
    if not isinstance(found, dict):
        return "an answer that is not a JSON object"
    said = [f"{key} {found[key]}" for key in ("status", "scope") if isinstance(found.get(key), str)]
    text = ", ".join(said).replace(token.reveal(), "<hidden>")
    return "".join(char if " " <= char <= "~" else "?" for char in text[:_MAX_TEXT]) or "no status"


def converse(host: str, credential: Credential) -> OAuthBearer:  # noqa: ARG001
    """Make the conversation of one connection, for `Sasl.converse`; `credential.value` is a `Token`."""
    return OAuthBearer(credential.value)
