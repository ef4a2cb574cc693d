"""What nobody catches, made troubles: for everything that runs in a simulation."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGERS = ("aioproduce", "asyncio")


@contextmanager
def watching(troubles: list[str]) -> Iterator[None]:
    """Warnings raise; what destructors raise and what is logged as an error become troubles.

    What the body left in circles is collected before it ends: so its destructors are heard here, and not later.
    """
    listener = _Listener(troubles)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    formerly = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.propagate = False
        # Whatever others have set: what is not made is not heard.
        logger.setLevel(logging.ERROR)
    former, sys.unraisablehook = (
        sys.unraisablehook,
        lambda unraisable: troubles.append(f"unraisable: {unraisable.exc_value!r} in {unraisable.object!r}"),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = former
        for logger, (propagate, level) in zip(loggers, formerly, strict=True):
            logger.removeHandler(listener)
            logger.propagate = propagate
            logger.setLevel(level)


def note_exception(troubles: list[str], _loop: object, context: dict[str, Any]) -> None:
    """As an exception handler of the loop."""
    troubles.append(f"{context['message']}: {context.get('exception')!r}")


class _Listener(logging.Handler):
    def __init__(self, troubles: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._troubles = troubles

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("close() of producer %r was cancelled"):
            return  # by the scenario itself, and the line reports what that loses
        self._troubles.append(f"logged: {record.getMessage()} {record.exc_info}")
