"""Keeps what was given to a call out of the tracebacks of its errors.

Called by whatever takes settings from users. Who logs tracebacks with local variables (Sentry, rich, `cgitb`) would
see passwords there which stand nowhere in the user's own code: they came from the environment or from a vault.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from aioproduce.errors import ProducerError

P = ParamSpec("P")
R = TypeVar("R")


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
