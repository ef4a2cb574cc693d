"""Which driver runs the producer: that of the event loop that `start()` is called on.

Two loops are known, asyncio's interface (asyncio itself, uvloop) and trio's: the two that anyio runs, so code
written for anyio finds its driver by this, too. Neither library is imported to find out: what runs has been.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aioproduce.drivers.running_loop import asyncio_loop_here, is_in_trio
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
