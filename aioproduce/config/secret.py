"""A text that nobody sees: a password, a key, a token.

Made by the kinds of the configuration table for every key that holds one, and by whoever has fetched one. What is
behind it is seen by `reveal()` alone, which is called where it is used and not held in a variable.

What was given to a call is kept out of the tracebacks of its errors by `hides_arguments`. Who logs tracebacks with
local variables (Sentry, rich, `cgitb`) would see passwords there which stand nowhere in the user's own code: they
came from the environment or from a vault.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import wraps
from typing import Final, NoReturn, ParamSpec, Self, TypeVar, final

from aioproduce.errors import ProducerError

P = ParamSpec("P")
R = TypeVar("R")

_HIDDEN: Final = "<hidden>"


@final
class Secret:
    """A text whose repr, str and format show nothing, and which is never pickled.

    Args:
        text: What is to be hidden.

    Example:
        >>> password = Secret("letmein")
        >>> f"{password} {password!r}", password.reveal()
        ('<hidden> Secret(<hidden>)', 'letmein')
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """The text itself. Use it in the expression that needs it: a local variable is in tracebacks."""
        return self.__text

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__text.encode(), other.__text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN})"

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return format(_HIDDEN, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError(
            "a secret is not pickled: hand the settings over where the producer is made, and not the object"
        )

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_Secret__text" or hasattr(self, name):
            raise AttributeError("a secret does not change")
        object.__setattr__(self, name, value)


def hides_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose errors show neither its arguments nor what it made of them.

    A `ProducerError`, `TypeError` or `ValueError` is about these arguments, and leaves without the frames: message,
    cause and attributes are as they were. Any other error is a bug, and keeps its frames.

    Args:
        function: One that is given settings.

    Example:
        >>> @hides_arguments
        ... def connect(**settings: object) -> None: ...
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (ProducerError, TypeError, ValueError) as error:
            told = error.with_traceback(None)
            if told.__suppress_context__:  # raised `from None`, by a frame that has the value
                told.__context__ = None
        del args, kwargs
        raise told

    return call
