"""Hearing of the signals that end a service, without taking them from the server that acts on them.

A server (uvicorn, gunicorn's workers, aiohttp's runner) has its own handlers for SIGTERM and SIGINT, and tells
the application of the end only after the last request. Readiness has to fall at the signal. So a handler of
ours stands in front of the server's while somebody watches: it tells the watchers, then calls the server's.

Invariants:

1. What the handler before ours would have done happens, in the same call: `signal.signal()` handlers are
   called; those of `loop.add_signal_handler()` run by the loop's own wake-up, which ours does not touch.
2. Where nobody handles a signal (it ends the process, or is ignored) it stays so: nothing is installed for it.
3. The last watcher that leaves puts the handlers back, unless somebody else has replaced ours meanwhile; one of
   ours that somebody kept and calls later does nothing but pass the call on. No installation calls itself in a
   circle: one that is used again could stand behind a handler that was chained to it meanwhile.
4. A watcher runs within a signal handler: between any two bytecodes of the main thread. It may set attributes
   and use `loop.call_soon_threadsafe()`, and must not log, lock or raise.
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
    """One handler of ours in front of the one that was there. Made anew at each installation (invariant 3)."""

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
        """Put back the one before, if ours is the one that is called."""
        self.is_active = False
        current: object = signal.getsignal(self._number)
        if current is self:
            signal.signal(self._number, self._previous)


def watch(watcher: Callable[[int], None]) -> bool:
    """Have a watcher called with the number of each signal that asks for the end, before the server's handler.

    Returns:
        Whether any signal is watched. Not in another thread than the main one, where Python has no signal
        handlers, and not where no server handles them.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if not _watchers:
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            # Neither SIG_DFL nor SIG_IGN, nor one that is not of Python (None).
            if handler is not None and not isinstance(handler, int | signal.Handlers):
                _installed.append(_Chained(number, handler))
    if not _installed:
        return False
    _watchers.append(watcher)
    return True


def unwatch(watcher: Callable[[int], None]) -> None:
    """Call it no more; without effect where it was not watching."""
    if watcher not in _watchers:
        return
    _watchers.remove(watcher)
    if not _watchers:
        while _installed:
            _installed.pop().remove()
