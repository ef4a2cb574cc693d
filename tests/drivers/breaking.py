"""Bugs of the core that a test puts in: it is compiled, so its classes cannot be patched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce.core.exchanges.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.core.sender import Sender


class _Broken(Exchange):
    """An exchange that raises at the core's next step."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def advance(self, now: float) -> None:
        raise self._error


def break_core(sender: Sender, error: BaseException) -> None:
    """Have the core raise in its next step, and make that step due."""
    sender._exchanges.insert(0, _Broken(error))
    sender._has_work = True


class Altered:
    """An object with some methods replaced; everything else is the original's.

    Args:
        original: The object.
        methods: The replacements, by name.
    """

    def __init__(self, original: Any, **methods: Callable[..., Any]) -> None:
        self._original = original
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._original, name)
