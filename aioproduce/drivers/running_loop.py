"""Detection of the running event loop, asyncio's interface or trio's, without an import of either.

If both run in one thread, the calling task decides. In trio's guest mode, a trio task is one that trio steps,
although the host's loop counts as running the whole time. Under trio-asyncio, an asyncio task belongs to the
asyncio loop, although that loop is itself a trio task.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_in_trio() -> bool:
    """Return whether the caller is a trio task."""
    trio: Any = sys.modules.get("trio.lowlevel")
    if trio is None or not hasattr(trio, "in_trio_task") or not trio.in_trio_task():
        return False
    return not _is_in_asyncio_task()


def asyncio_loop_here() -> object:
    """Return the caller's asyncio loop; `None` without one, also for a trio task next to such a loop."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None or is_in_trio():
        return None
    return asyncio._get_running_loop()


def asyncio_lookup() -> Callable[[], object]:
    """Return a faster `asyncio_loop_here()`, which looks up the imported modules only once."""
    asyncio: Any = sys.modules["asyncio"]
    get_running_loop: Callable[[], object] = asyncio._get_running_loop
    in_trio_task = getattr(sys.modules.get("trio.lowlevel"), "in_trio_task", None)
    if in_trio_task is None:
        return get_running_loop

    def lookup() -> object:
        return None if in_trio_task() and not _is_in_asyncio_task() else get_running_loop()

    return lookup


def _is_in_asyncio_task() -> bool:
    asyncio: Any = sys.modules.get("asyncio")
    return (
        asyncio is not None and asyncio._get_running_loop() is not None and asyncio.current_task() is not None
    )
