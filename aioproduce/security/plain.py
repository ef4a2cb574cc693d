"""PLAIN (RFC 4616): the name and the password, as they are. Use it over TLS only.

`UserPassword` is also what SCRAM is held with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import AuthenticationError

if TYPE_CHECKING:
    from aioproduce.config.secret import Secret
    from aioproduce.security.mechanism import Credential

MECHANISM: Final = "PLAIN"


@final
@dataclass(frozen=True, slots=True)
class UserPassword:
    """Who logs in: `Credential.value` of PLAIN and SCRAM.

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


@final
class Plain:
    """One conversation: a single message. The broker proves nothing in it.

    Args:
        user: Who logs in.
    """

    __slots__ = ("_user",)

    def __init__(self, user: UserPassword) -> None:
        self._user = user

    def start(self) -> bytes:
        """Name and password, each after a NUL; whoever logs in acts as himself.

        Raises:
            AuthenticationError: The name or the password is empty, has a NUL, or cannot be encoded.
        """
        user = self._user
        user.check(MECHANISM)
        if "\0" in user.password.reveal():
            raise AuthenticationError(
                "PLAIN cannot send a password with a NUL character: choose another for sasl.password, or use SCRAM",
                mechanism=MECHANISM,
                setting="sasl.password",
            )
        return f"\0{user.username}\0{user.password.reveal()}".encode()

    def step(self, challenge: bytes) -> None:
        """It went well: a broker that refuses answers with an error code. RFC 4616 has no challenge to read."""


def converse(host: str, credential: Credential) -> Plain:  # noqa: ARG001
    """Make the conversation of one connection, for `Sasl.converse`; `credential.value` is a `UserPassword`."""
    return Plain(credential.value)
