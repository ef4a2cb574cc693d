"""A hidden text: a password, a key, a token.

Created by the kinds of the configuration table for every secret key, and by code that fetches secrets. Only
`reveal()` returns the text. Call it where the text is used, and do not store the result in a variable.

`hides_arguments` keeps the arguments of a call out of the tracebacks of its errors. Tools that log tracebacks with
local variables (Sentry, rich, `cgitb`) would otherwise show passwords that are not even in the user's own code:
they came from the environment or from a vault.
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
    """A text that its repr, str and format hide, and that cannot be pickled.

    Args:
        text: The text to hide.

    Example:
        >>> password = Secret("letmein")
        >>> f"{password} {password!r}", password.reveal()
        ('<hidden> Secret(<hidden>)', 'letmein')
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text. Use it in the expression that needs it: local variables appear in tracebacks."""
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
            "a secret cannot be pickled: pass the settings to the process that creates the producer, not the object"
        )

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_Secret__text" or hasattr(self, name):
            raise AttributeError("a secret cannot be changed")
        object.__setattr__(self, name, value)


def hides_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors show neither its arguments nor values derived from them.

    A `ProducerError`, `TypeError` or `ValueError` is about these arguments, and is raised without the frames;
    message, cause and attributes are unchanged. Any other error is a bug, and keeps its frames.

    Args:
        function: A function that receives settings.

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
            if told.__suppress_context__:  # raised `from None`, by a frame that holds the value
                told.__context__ = None
        del args, kwargs
        raise told

    return call
