"""Which driver runs the producer: that of the event loop that `start()` is called on.

Two loops are known, asyncio's interface (asyncio itself, uvloop) and trio's: the two that anyio runs, so code
written for anyio finds its driver by this, too. Neither library is imported to find out: what runs has been.

Where both run in one thread, the task that asks decides. In trio's guest mode, a trio task is one that trio
steps, though the loop of its host counts as running all the while; under trio-asyncio, an asyncio task is one
of that loop, though all of the loop is a task of trio's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from aioproduce.errors import MissingExtraError, WrongEventLoopError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.drivers.base import Driver
    from aioproduce.metrics import ProducerMetrics


def make_driver(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    on_unobserved: Callable[[str, int, BaseException, int], None],
) -> Driver:
    """The driver for the loop that runs here.

    Raises:
        WrongEventLoopError: none runs here that there is a driver for.
        MissingExtraError: it is trio's, of a version that is too old.
    """
    if is_in_trio():
        from aioproduce.drivers.trio import TrioDriver

        return TrioDriver(config, metrics, on_unobserved)
    if asyncio_loop_here() is not None:
        from aioproduce.drivers.asyncio import AsyncioDriver

        return AsyncioDriver(config, metrics, on_unobserved)
    trio = sys.modules.get("trio.lowlevel")
    if trio is not None and not hasattr(trio, "in_trio_task"):
        raise MissingExtraError("a producer under trio", extra="trio", name="trio>=0.27")
    raise WrongEventLoopError(
        "start() was called where no event loop runs that aioproduce knows: call it within asyncio.run(), "
        "uvloop.run(), trio.run() or anyio.run()"
    )


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
