"""Background tasks of a spool, under asyncio and trio.

A task that ends with an exception reports it to its owner, and never to the loop: under trio it would end the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from aioproduce.drivers.running_loop import is_in_trio

if TYPE_CHECKING:
    import trio


class BackgroundTask(Protocol):
    """A task that runs until its end, or until it is cancelled."""

    def cancel(self) -> None:
        """Cancel it; `ended` is called when it has ended."""


def start_task(
    run: Callable[[], Coroutine[Any, Any, None]], ended: Callable[[BaseException | None], None], name: str
) -> BackgroundTask:
    """Start a task on the running loop.

    Args:
        run: Makes its coroutine.
        ended: Called once in the loop with the exception that ended it; None after its end or a cancellation.
        name: Its name, for debuggers.
    """
    return _TrioTask(run, ended, name) if is_in_trio() else _AsyncioTask(run, ended, name)


class _AsyncioTask:
    def __init__(
        self,
        run: Callable[[], Coroutine[Any, Any, None]],
        ended: Callable[[BaseException | None], None],
        name: str,
    ) -> None:
        self._ended = ended
        self._task = asyncio.get_running_loop().create_task(run(), name=name)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._ended(None if task.cancelled() else task.exception())

    def cancel(self) -> None:
        self._task.cancel()


class _TrioTask:
    def __init__(
        self,
        run: Callable[[], Coroutine[Any, Any, None]],
        ended: Callable[[BaseException | None], None],
        name: str,
    ) -> None:
        import trio

        self._scope: trio.CancelScope = trio.CancelScope()
        self._run = run
        self._ended = ended
        trio.lowlevel.spawn_system_task(self._supervise, name=name)

    async def _supervise(self) -> None:
        failure: BaseException | None = None
        try:
            with self._scope:
                await self._run()
        except Exception as error:
            failure = error
        finally:
            self._ended(failure)

    def cancel(self) -> None:
        self._scope.cancel()
