"""The choice of the producer's driver: the one for the event loop that calls `start()`.

There are drivers for asyncio's interface (asyncio itself, uvloop) and for trio. anyio runs on these two, so this
also finds the driver for code written for anyio. It imports neither library: the one that runs is imported already.
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
    from aioproduce.drivers.in_process import Dial
    from aioproduce.metrics import ProducerMetrics


def make_driver(
    config: ProducerConfig,
    metrics: ProducerMetrics,
    on_unobserved: Callable[[str, int, BaseException, int], None],
    dial: Dial | None = None,
) -> Driver:
    """Make the driver for the running event loop.

    Args:
        config: The producer's configuration.
        metrics: The producer's metrics.
        on_unobserved: Called with failed records that nobody asked for.
        dial: Makes connections within this process; `None` for connections to brokers.

    Raises:
        WrongEventLoopError: if no supported event loop runs here.
        MissingExtraError: if trio is too old.
    """
    if is_in_trio():
        from aioproduce.drivers.trio import TrioDriver

        return TrioDriver(config, metrics, on_unobserved, dial)
    if asyncio_loop_here() is not None:
        from aioproduce.drivers.asyncio import AsyncioDriver

        return AsyncioDriver(config, metrics, on_unobserved, dial)
    trio = sys.modules.get("trio.lowlevel")
    if trio is not None and not hasattr(trio, "in_trio_task"):
        raise MissingExtraError("a producer under trio", extra="trio", name="trio>=0.27")
    raise WrongEventLoopError(
        "start() was called without a supported event loop running: call it within asyncio.run(), uvloop.run(), "
        "trio.run() or anyio.run()"
    )
