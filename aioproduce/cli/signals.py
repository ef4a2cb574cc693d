"""SIGINT and SIGTERM during a run, handled on the event loop.

Called by the runs that send records (`run`): a first signal ends the sending, a second one the wait for
acknowledgements. Also called by the commands that run until a signal (`dev`, `dashboard`, `top`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@final
class Signals:
    """The signals that have arrived and are not handled yet."""

    __slots__ = ("_came",)

    def __init__(self) -> None:
        self._came: asyncio.Queue[signal.Signals] = asyncio.Queue()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals on the running event loop during the context, instead of Python."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._came.put_nowait, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                if handler is not None:  # `None` if it was not installed from Python
                    signal.signal(number, handler)

    async def during(self, work: asyncio.Task[Any]) -> signal.Signals | None:
        """Wait for the end of a task or for a signal, and return the signal."""
        waiting = asyncio.create_task(self._came.get())
        try:
            await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() and not work.done() else None
        finally:
            waiting.cancel()


def ended_by_signal() -> asyncio.Event:
    """Return an event that the next SIGINT or SIGTERM sets."""
    ended = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended
