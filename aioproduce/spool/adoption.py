"""Forwards the queues of dead workers, while a worker forwards its own queue.

Invariants:

1. One queue at a time is adopted. It is locked before it is read, so no two workers forward one.
2. A queue of which the cluster takes nothing gives way to the next; it is tried again later. A queue that cannot be
   opened is left alone for as long.
3. The task is never cancelled: it ends an adopted queue as its owner would.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final, final

import anyio.to_thread

from aioproduce.errors import SpoolDirectoryError
from aioproduce.spool.bell import Bell
from aioproduce.spool.queue_opening import opened
from aioproduce.spool.tasks import BackgroundTask, start_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.drivers.base import Driver
    from aioproduce.spool.changes import Changes
    from aioproduce.spool.directory import SpoolDirectory
    from aioproduce.spool.service_directory import ServiceDirectory
    from aioproduce.spool.spool_queue import SpoolQueue
    from aioproduce.spool.writer import SpoolWriter

_log = logging.getLogger("aioproduce.spool")

# Seconds between two looks for queues of dead workers.
_LOOK_EVERY: Final = 5.0
# How long a queue is left alone that could not be opened, or of which the cluster took nothing for so long.
_REFUSE_FOR: Final = 60.0
_STUCK_AFTER: Final = 60.0


@final
class Adoption:
    """The task that forwards queues without a worker. It starts at once.

    Args:
        service: Where the queues are.
        queue_in: Makes the queue of a directory.
        driver: The loop's side.
        changes: Told when an adopted queue has settled something, or is gone; awaited meanwhile.
        left: Called with the writer of a queue that is forwarded no more.
        gives_up_after: The seconds after which an adopted queue's own producer gives a send up.
        has_failed: Called with what ended the task, if it was an error.
    """

    def __init__(
        self,
        service: ServiceDirectory,
        queue_in: Callable[[SpoolDirectory], SpoolQueue],
        driver: Driver,
        changes: Changes,
        left: Callable[[SpoolWriter], None],
        gives_up_after: float,
        has_failed: Callable[[BaseException], None],
    ) -> None:
        self.queue: SpoolQueue | None = None
        self._service = service
        self._queue_in = queue_in
        self._driver = driver
        self._changes = changes
        self._left = left
        self._gives_up_after = gives_up_after
        self._has_failed = has_failed
        self._orphan: SpoolDirectory | None = None
        self._next_look = Bell(driver)
        self._refused: dict[str, float] = {}  # queues that are left alone, and until when
        self._is_last = False
        self._is_ending = False
        self._task: BackgroundTask | None = start_task(
            self._run, self._has_ended, "aioproduce spool adoption"
        )

    def take_no_more(self) -> None:
        """Adopt no further queue. The one that is adopted is forwarded."""
        self._is_last = True

    async def end(self) -> None:
        """Leave the adopted queue to the next worker, and wait until the task has ended."""
        self._is_last = self._is_ending = True
        self._changes.tell()
        self._next_look.ring()
        while self._task is not None:
            await self._changes.wait(inf)

    async def _run(self) -> None:
        try:
            while not self._is_last:
                if self._orphan is None:
                    await anyio.to_thread.run_sync(self._look_for_an_orphan)
                directory, self._orphan = self._orphan, None
                if directory is None:
                    await self._next_look.wait(_LOOK_EVERY)
                else:
                    await self._forward(directory)
        finally:
            if self._orphan is not None:
                self._orphan.close()

    def _look_for_an_orphan(self) -> None:
        now = self._driver.now()
        self._refused = {path: until for path, until in self._refused.items() if until > now}
        self._orphan = self._service.next_orphan(self._refused)

    async def _forward(self, orphan: SpoolDirectory) -> None:
        try:
            self.queue = queue = await opened(lambda: orphan, self._queue_in)
        except SpoolDirectoryError as error:
            self._refused[orphan.path] = self._driver.now() + _REFUSE_FOR
            _log.error("the spool leaves a queue without a worker as it is: %s", error)
            return
        _log.warning("the spool forwards %s, whose worker is gone", orphan.path)
        try:
            await queue.start()
            await self._until_done_or_stuck(queue)
        finally:
            await queue.end()
            self.queue = None
            self._left(queue.writer)
            self._changes.tell()  # a flush waits for it no more

    async def _until_done_or_stuck(self, queue: SpoolQueue) -> None:
        progress, until = -1, 0.0
        stuck_after = max(_STUCK_AFTER, self._gives_up_after)
        while not ((queue.is_drained and not queue.has_letters_to_send) or self._is_ending):
            now = self._driver.now()
            if queue.progress != progress:
                progress, until = queue.progress, now + stuck_after
            elif now >= until:
                await anyio.to_thread.run_sync(self._look_for_an_orphan)
                if self._orphan is not None:
                    self._give_way(queue.directory, stuck_after)
                    return
                until = self._driver.now() + stuck_after
            await self._changes.wait(until)

    def _give_way(self, stuck: SpoolDirectory, seconds: float) -> None:
        """Leave a queue of which the cluster takes nothing, for a while: another one waits."""
        self._refused[stuck.path] = self._driver.now() + _REFUSE_FOR
        _log.warning(
            "the spool leaves %s for %g s: for %g s the cluster took nothing of it, and another queue waits",
            *(stuck.path, _REFUSE_FOR, seconds),
        )

    def _has_ended(self, error: BaseException | None) -> None:
        self._task = None
        if error is not None:
            self._has_failed(error)
        self._changes.tell()
