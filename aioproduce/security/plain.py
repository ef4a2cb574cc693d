"""PLAIN (RFC 4616): the name and the password, as they are. Use it over TLS only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import AuthenticationError

if TYPE_CHECKING:
    from aioproduce.security.credentials import UserPassword
    from aioproduce.security.mechanism import Credential

MECHANISM: Final = "PLAIN"


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
