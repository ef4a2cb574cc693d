"""The base of the reporters that report periodically.

Used by the JSON lines, the logging reporter and the workers' files, which implement a single report.

Invariants:

1. The last report is made at the end of the `async with`, which waits for it at most `_END_PATIENCE`.
2. Only one report is made at a time. A report that takes too long makes later ones fewer, not late.
3. An exception of a report is logged at a bounded rate, and the next report is made in time.
4. Targets that may hang (a disk, a pipe) are written by a thread that does not delay the process's end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self

from aioproduce.core.bounded_log import BoundedLog

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("aioproduce")

_END_PATIENCE: Final = 5.0
"""Seconds that the end waits for the last report, so that a hanging disk does not hang the service's shutdown."""

_LOG_INTERVAL: Final = 60.0


class PeriodicReporter(ABC):
    """Reports every `period` seconds during its `async with`, and once more at its end.

    Args:
        period: Seconds between reports.
        is_at_once: Whether the first report is made at the beginning and not after the first period.

    Raises:
        ValueError: If the period is not above 0.
    """

    def __init__(self, period: float, *, is_at_once: bool = False) -> None:
        if not period > 0:
            raise ValueError(f"period must be more than 0 seconds, not {period}")
        self._period = period
        self._is_at_once = is_at_once
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._bounded_log = BoundedLog(_log, _LOG_INTERVAL)

    def _prepare(self) -> None:  # noqa: B027 (most have nothing to prepare)
        """Acquire what the reports need; called once, before the first."""

    @abstractmethod
    async def _report(self) -> None:
        """Make one report."""

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError(f"a {type(self).__name__} can be used only once: create another one")
        self._prepare()
        self._task = asyncio.create_task(self._run(), name=f"aioproduce {type(self).__name__}")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._ended.set()
        try:
            _done, late = await asyncio.wait({self._task}, timeout=_END_PATIENCE)
            if late:
                _log.warning(
                    "%s: the last report was not made within %g s", type(self).__name__, _END_PATIENCE
                )
        finally:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time() - (self._period if self._is_at_once else 0)
        is_last = False
        while not is_last:
            due_at = max(due_at + self._period, loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_at):
                    await self._ended.wait()
            is_last = self._ended.is_set()
            try:
                await self._report()
            except Exception as problem:
                self._bounded_log.warning(
                    type(problem).__name__,
                    time.monotonic(),
                    "%s failed and continues: %s: %s",
                    type(self).__name__,
                    type(problem).__name__,
                    problem,
                )


async def in_a_thread(work: Callable[..., object], *arguments: Any) -> None:
    """Run this in a daemon thread, because threads of `asyncio.to_thread` delay the process's end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(problem: BaseException | None) -> None:
        if done.cancelled():
            return  # nobody waits any more
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

    def run() -> None:
        problem: BaseException | None = None
        try:
            work(*arguments)
        except BaseException as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(tell, problem)

    threading.Thread(target=run, name="aioproduce report", daemon=True).start()
    await done
