"""The reason why there is no token, as a value, so that errors are raised only where no frame holds a secret.

Code that handles a revealed secret, or calls a library that does (an HTTP client's exceptions hold their request,
a signer's frames the passphrase), returns a `Trouble` instead of raising. `given()` turns it into a `TokenError` at
the end, outside of every `except`: that error has no cause, no context, and only the frames of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final
from urllib.parse import quote, quote_plus

from aioproduce.errors import TokenError

if TYPE_CHECKING:
    from aioproduce.config.secret import Secret

_T = TypeVar("_T")

_LENGTH: Final = 300


@final
@dataclass(frozen=True, slots=True)
class Trouble:
    """The content of a `TokenError`.

    Attributes:
        message: Cause and remedy, without a secret.
        setting: Kafka's key of the setting to check first.
    """

    message: str
    setting: str


def given(outcome: _T | Trouble) -> _T:
    """Return the outcome if it is not trouble.

    Raises:
        TokenError: If it is trouble.
    """
    if isinstance(outcome, Trouble):
        raise TokenError(f"{_on_one_line(outcome.message)} ({outcome.setting})", setting=outcome.setting)
    return outcome


def printable(foreign: object, secrets: Iterable[Secret] = ()) -> str:
    """Return a foreign text on one line of at most 300 characters, without these secrets.

    Args:
        foreign: A text, or an object with one.
        secrets: Texts to hide, also if quoted for a URL: a peer may repeat what it was sent.
    """
    text = str(foreign)
    for secret in secrets:
        # An empty secret matches everywhere, and one of a letter or two reveals nothing.
        if len(secret.reveal()) > 2:
            text = text.replace(secret.reveal(), "<hidden>")
            text = text.replace(quote(secret.reveal(), safe=""), "<hidden>")
            text = text.replace(quote_plus(secret.reveal()), "<hidden>")
    text = _on_one_line(text[: 2 * _LENGTH]).strip()
    return text if len(text) <= _LENGTH else text[:_LENGTH] + "..."


def _on_one_line(text: str) -> str:
    """Replace characters that would move a terminal's cursor or begin another line of a log."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
