"""The floor that awaits sockets: a driver runs the sans-IO core on an event loop.

`base` is the seam, `asyncio` the driver for asyncio and uvloop. The Producer picks one when it starts.
"""

from __future__ import annotations

from aioproduce.drivers.base import Driver, Waiter

__all__ = ["Driver", "Waiter"]
