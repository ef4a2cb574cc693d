"""What conversations are held with: a bearer token, or a name and its password (`Credential.value`).

Made by the sources of credentials, used by the mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from aioproduce.errors import AuthenticationError

if TYPE_CHECKING:
    from aioproduce.config.secret import Secret


@final
@dataclass(frozen=True, slots=True)
class Token:
    """What logs in by OAUTHBEARER.

    Attributes:
        value: The token as it is sent.
        extensions: What else the broker is told (KIP-342): Confluent Cloud's `logicalCluster` and `identityPoolId`.
    """

    value: Secret
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@final
@dataclass(frozen=True, slots=True)
class UserPassword:
    """Who logs in: by PLAIN or SCRAM.

    Attributes:
        username: Kafka's user, or the id of a delegation token.
        password: The password, or the HMAC of that token.
    """

    username: str
    password: Secret

    def check(self, mechanism: str) -> None:
        """Refuse what no login can be held with.

        Raises:
            AuthenticationError: A part is empty, or is text that UTF-8 cannot encode, or the name has a NUL.
        """
        if problem := _problem(self.username):
            raise AuthenticationError(
                f"the user name {problem}: set sasl.username, or username in sasl.jaas.config",
                mechanism=mechanism,
                setting="sasl.username",
            )
        # A NUL in a password is the mechanism's to judge: SCRAM sends only a proof of it.
        if problem := _problem(self.password.reveal().replace("\0", "-")):
            raise AuthenticationError(
                f"the password {problem}: set sasl.password, or password in sasl.jaas.config",
                mechanism=mechanism,
                setting="sasl.password",
            )


def _problem(text: str) -> str:
    """What is wrong with it; said and not raised, for an error of the encoder carries the text."""
    if not text:
        return "is empty"
    if "\0" in text:
        return "has a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which UTF-8 cannot encode"
    return ""
