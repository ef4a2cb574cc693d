"""Which event loop runs here: asyncio's interface, or trio's. Neither library is imported to find out.

Where both run in one thread, the task that asks decides. In trio's guest mode, a trio task is one that trio
steps, though the loop of its host counts as running all the while; under trio-asyncio, an asyncio task is one
of that loop, though all of the loop is a task of trio's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_in_trio() -> bool:
    """Whether who calls is a task of trio's."""
    trio: Any = sys.modules.get("trio.lowlevel")
    if trio is None or not hasattr(trio, "in_trio_task") or not trio.in_trio_task():
        return False
    return not _is_in_asyncio_task()


def asyncio_loop_here() -> object:
    """The loop of asyncio's that who calls belongs to; `None` for a task of trio's beside it, too."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None or is_in_trio():
        return None
    return asyncio._get_running_loop()


def asyncio_lookup() -> Callable[[], object]:
    """`asyncio_loop_here()` for who asks often: what is imported is looked up once, here."""
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
