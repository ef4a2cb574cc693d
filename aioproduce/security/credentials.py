"""The credentials of a login (`Credential.value`): a bearer token, or a user name and password.

Created by the sources of credentials, used by the mechanisms.
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
    """The credential of an OAUTHBEARER login.

    Attributes:
        value: The token as it is sent.
        extensions: SASL extensions (KIP-342), e.g. Confluent Cloud's `logicalCluster` and `identityPoolId`.
    """

    value: Secret
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@final
@dataclass(frozen=True, slots=True)
class UserPassword:
    """The credential of a PLAIN or SCRAM login.

    Attributes:
        username: Kafka's user, or the id of a delegation token.
        password: The password, or the HMAC of the delegation token.
    """

    username: str
    password: Secret

    def check(self, mechanism: str) -> None:
        """Check that a login is possible with these values.

        Raises:
            AuthenticationError: If a part is empty or cannot be encoded as UTF-8, or if the name has a NUL.
        """
        if problem := _problem(self.username):
            raise AuthenticationError(
                f"the user name {problem}: set sasl.username, or username in sasl.jaas.config",
                mechanism=mechanism,
                setting="sasl.username",
            )
        # The mechanism decides about a NUL in a password: SCRAM sends only a proof of it.
        if problem := _problem(self.password.reveal().replace("\0", "-")):
            raise AuthenticationError(
                f"the password {problem}: set sasl.password, or password in sasl.jaas.config",
                mechanism=mechanism,
                setting="sasl.password",
            )


def _problem(text: str) -> str:
    """Return what is wrong with the text. Raising is not possible: an encoding error contains the text."""
    if not text:
        return "is empty"
    if "\0" in text:
        return "has a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which UTF-8 cannot encode"
    return ""
