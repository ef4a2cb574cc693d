"""What the fault tests share: those that break connections run on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What meets resets and half frames is the loop's transports, and each loop has its own.

    The outages take as long as their time-outs, on one loop as on the other: one is enough.
    """
    if item.path.name in ("test_proxy.py", "test_wire_faults.py"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
