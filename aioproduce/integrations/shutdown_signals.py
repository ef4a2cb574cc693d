"""Watches the signals that end a service, without replacing the handlers of its server.

A server (uvicorn, gunicorn's workers, aiohttp's runner) has its own handlers for SIGTERM and SIGINT, and ends the
application only after the last request, but readiness must end at the signal. So while there are watchers, our
handler runs in front of the server's: it calls the watchers, then the server's handler.

Invariants:

1. The effect of the previous handler happens in the same call: handlers of `signal.signal()` are called; those of
   `loop.add_signal_handler()` are run by the loop's own wake-up, which ours does not change.
2. A signal without a handler (it ends the process or is ignored) stays without one: nothing is installed for it.
3. When the last watcher leaves, the previous handlers are restored, unless ours were replaced meanwhile. If another
   handler kept ours and calls it later, it only calls the previous one. Each installation is a new object, so that
   no handler calls itself in a cycle: a reused one could be chained behind a handler that it is chained to.
4. A watcher runs within a signal handler, between any two bytecodes of the main thread. It may set attributes and
   use `loop.call_soon_threadsafe()`, and must not log, lock or raise.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from types import FrameType

_NUMBERS: Final = tuple(
    int(getattr(signal, name)) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)

_watchers: list[Callable[[int], None]] = []
_installed: list[_Chained] = []


@final
class _Chained:
    """Our handler in front of the previous one. A new one for each installation (invariant 3)."""

    __slots__ = ("_number", "_previous", "is_active")

    def __init__(self, number: int, previous: Callable[[int, FrameType | None], Any]) -> None:
        self._number = number
        self._previous = previous
        self.is_active = True
        signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_active:
            for watcher in tuple(_watchers):
                watcher(number)
        self._previous(number, frame)

    def remove(self) -> None:
        """Restore the previous handler, if ours is installed."""
        self.is_active = False
        current: object = signal.getsignal(self._number)
        if current is self:
            signal.signal(self._number, self._previous)


def watch(watcher: Callable[[int], None]) -> bool:
    """Call a watcher with the number of each shutdown signal, before the server's handler.

    Returns:
        Whether any signal is watched. It is not in threads other than the main one, where Python has no signal
        handlers, or if no server handles the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if not _watchers:
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            # Neither SIG_DFL nor SIG_IGN, nor a handler outside of Python (None).
            if handler is not None and not isinstance(handler, int | signal.Handlers):
                _installed.append(_Chained(number, handler))
    if not _installed:
        return False
    _watchers.append(watcher)
    return True


def unwatch(watcher: Callable[[int], None]) -> None:
    """Stop calling a watcher; no effect if it was not watching."""
    if watcher not in _watchers:
        return
    _watchers.remove(watcher)
    if not _watchers:
        while _installed:
            _installed.pop().remove()
