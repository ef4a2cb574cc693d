"""Tasks' wait for the next change of something that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.drivers.base import Driver, Waiter


@final
class Changes:
    """Wakes every task that waits.

    A change that comes while nobody waits is told to nobody: a task looks at the state, and waits without a
    suspension in between.

    Args:
        driver: Returns the loop's side, which is asked for when a task waits.

    Example:
        ```python
        while not is_drained():
            await changes.wait(deadline)
        ```
    """

    __slots__ = ("_driver", "_waiters")

    def __init__(self, driver: Callable[[], Driver]) -> None:
        self._driver = driver
        self._waiters: list[Waiter] = []

    def tell(self) -> None:
        """Wake all that wait. It never suspends."""
        while self._waiters:
            self._waiters.pop().notify()

    async def wait(self, deadline: float) -> bool:
        """Wait for the next change; return false at the deadline, a time of the driver's clock."""
        waiter = self._driver().make_waiter()
        self._waiters.append(waiter)
        try:
            return await waiter.wait(deadline)
        finally:
            if waiter in self._waiters:  # its time is over
                self._waiters.remove(waiter)
