"""Opening a queue in a thread, since it may take a while, and a loop must not wait.

Invariant: who is cancelled, or gets an error, leaves nothing locked.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio.to_thread

from aioproduce.errors import SpoolDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.spool.directory import SpoolDirectory
    from aioproduce.spool.spool_queue import SpoolQueue


async def opened(
    take: Callable[[], SpoolDirectory], make: Callable[[SpoolDirectory], SpoolQueue]
) -> SpoolQueue:
    """Lock a queue's directory and open the queue.

    Args:
        take: Returns the directory, locked.
        make: Makes its queue.

    Raises:
        SpoolDirectoryError: if the queue cannot be opened.
    """
    lock = threading.Lock()
    found: list[SpoolQueue] = []
    is_left = False

    def run() -> None:
        queue = _open(make(take()))
        with lock:
            if not is_left:
                found.append(queue)
                return
        queue.directory.close()

    try:
        await anyio.to_thread.run_sync(run)
    except BaseException:
        with lock:
            is_left = True
        for queue in found:
            queue.directory.close()
        raise
    return found[0]


def _open(queue: SpoolQueue) -> SpoolQueue:
    try:
        queue.open()
    except BaseException as error:
        queue.directory.close()
        if isinstance(error, OSError):
            raise SpoolDirectoryError(
                f"the queue in {queue.directory.path} cannot be opened: {error.strerror or error}; it needs the "
                "right to read and to write, and room on the disk",
                directory=queue.directory.path,
            ) from error
        raise
    return queue
