"""The layer that awaits sockets: a driver runs the sans-IO core on an event loop.

`base` has the interface, `asyncio` the driver for asyncio and uvloop, `trio` that for trio. The Producer chooses
one when it starts.
"""

from __future__ import annotations

from aioproduce.drivers.base import Driver, Waiter

__all__ = ["Driver", "Waiter"]
