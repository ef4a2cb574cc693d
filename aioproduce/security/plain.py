"""PLAIN (RFC 4616): name and password in clear text. Use it only over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import AuthenticationError

if TYPE_CHECKING:
    from aioproduce.security.credentials import UserPassword
    from aioproduce.security.mechanism import Credential

MECHANISM: Final = "PLAIN"


@final
class Plain:
    """One login conversation: a single message. The broker does not authenticate itself.

    Args:
        user: The credential.
    """

    __slots__ = ("_user",)

    def __init__(self, user: UserPassword) -> None:
        self._user = user

    def start(self) -> bytes:
        """Return name and password, each after a NUL, without another identity to act as.

        Raises:
            AuthenticationError: If the name or the password is empty, has a NUL, or cannot be encoded.
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
        """Accept the login: a broker that refuses answers with an error code, and RFC 4616 has no challenges."""


def converse(host: str, credential: Credential) -> Plain:  # noqa: ARG001
    """Make the conversation of one connection, for `Sasl.converse`; `credential.value` is a `UserPassword`."""
    return Plain(credential.value)
