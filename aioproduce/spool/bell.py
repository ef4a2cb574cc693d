"""A task's wait for something to do, which cannot miss the call."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce.drivers.base import Driver, Waiter


@final
class Bell:
    """Wakes one task.

    A ring that comes while the task does not wait is remembered: the next wait ends at once. So the task can look
    for work, suspend meanwhile, and wait; nothing that came after its look is missed.

    Args:
        driver: The loop's side.

    Example:
        ```python
        while True:
            await do_what_is_there()
            await bell.wait()
        ```
    """

    __slots__ = ("_driver", "_has_rung", "_waiter")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._has_rung = False
        self._waiter: Waiter | None = None

    def ring(self) -> None:
        """Wake the task, or end its next wait at once. It never suspends, and may be called repeatedly."""
        self._has_rung = True
        if self._waiter is not None:
            self._waiter.notify()

    async def wait(self, seconds: float = inf) -> None:
        """Suspend until a ring, at most for some seconds."""
        if not self._has_rung:
            self._waiter = self._driver.make_waiter()
            try:
                await self._waiter.wait(self._driver.now() + seconds)
            finally:
                self._waiter = None
        self._has_rung = False
