"""Why there is no token, as a value: an error is raised where no frame holds a secret.

Whatever handles a revealed secret, or calls a library that does (an HTTP client's exceptions hold their request,
a signer's frames the passphrase), returns a `Trouble` instead of raising. `given()` makes a `TokenError` of it, at
the end and outside of every `except`: the error has no cause, no context, and no frame but those of who asked.
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
    """What a `TokenError` is to say.

    Attributes:
        message: Cause and remedy, without a secret.
        setting: Kafka's key of the setting to look at first.
    """

    message: str
    setting: str


def given(outcome: _T | Trouble) -> _T:
    """The outcome, where it is not trouble.

    Raises:
        TokenError: It is.
    """
    if isinstance(outcome, Trouble):
        raise TokenError(f"{_on_one_line(outcome.message)} ({outcome.setting})", setting=outcome.setting)
    return outcome


def printable(foreign: object, secrets: Iterable[Secret] = ()) -> str:
    """What somebody else said, on one line of at most 300 letters, without these secrets.

    Args:
        foreign: A text, or anything with one.
        secrets: What must not be in it, as it is or quoted for a URL: a peer may repeat what it was sent.
    """
    text = str(foreign)
    for secret in secrets:
        # An empty one is everywhere, and one of a letter or two says nothing about itself where it stands.
        if len(secret.reveal()) > 2:
            text = text.replace(secret.reveal(), "<hidden>")
            text = text.replace(quote(secret.reveal(), safe=""), "<hidden>")
            text = text.replace(quote_plus(secret.reveal()), "<hidden>")
    text = _on_one_line(text[: 2 * _LENGTH]).strip()
    return text if len(text) <= _LENGTH else text[:_LENGTH] + "..."


def _on_one_line(text: str) -> str:
    """Without what would move a terminal's cursor, or begin another line of a log."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
