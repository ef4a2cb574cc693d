"""How many messages may be on their way at once (`queue.buffering.max.messages`), and who waits for room.

Called by `confluent.AIOProducer`, for each message.

Invariants:

1. Room is given in the order of asking: nobody overtakes one who waits.
2. Nothing is done for a message but counting, until as many were taken as there was room for; then it is looked how
   many still are on their way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.delivery import DeliveryFuture

# Of so many messages one is kept to be waited for: what comes free is noticed at least so often.
_MARKS: Final = 256
# Seconds; of messages without a mark, and those that wait for their topic, nobody else tells.
_LOOK_AGAIN: Final = 0.02


@final
class MessageRoom:
    """Room for so many messages.

    Args:
        limit: For how many.
        pending: Tells how many are on their way.

    Attributes:
        left: How many may be taken before it is looked again.
        taken: How many were taken, over its life.
        stride: Of so many messages one is to be marked.
    """

    __slots__ = ("_gate", "_limit", "_marks", "_pending", "left", "stride", "taken")

    def __init__(self, limit: int, pending: Callable[[], int]) -> None:
        self._limit = limit
        self._pending = pending
        self._gate = asyncio.Lock()
        self._marks: deque[DeliveryFuture] = deque()
        self.left: int = limit
        self.taken: int = 0
        self.stride: int = max(1, limit // _MARKS)

    async def take(self, timeout: float) -> bool:
        """Wait in line for room for one for at most so many seconds; False if there came none."""
        try:
            async with asyncio.timeout(timeout), self._gate:
                while self.left <= 0:
                    self.left = self._limit - self._pending()
                    if self.left <= 0:
                        await self.outcome()
        except TimeoutError:
            return False
        return True

    @property
    def is_contended(self) -> bool:
        """Whether somebody waits: then others have to go behind."""
        return self._gate.locked()

    def mark(self, delivery: DeliveryFuture) -> None:
        """Remember a message that may be waited for."""
        marks = self._marks
        while marks and marks[0].done():
            marks.popleft()
        marks.append(delivery)

    def forget(self) -> None:
        """What was taken is given up."""
        self._marks.clear()
        self.left = 0

    async def outcome(self, timeout: float = inf) -> None:
        """Wait until a marked message is settled, or it is time to look again; at most so many seconds."""
        marks = [delivery for delivery in self._marks if not delivery.done()]
        self._marks = deque(marks)
        timeout = max(0.0, min(timeout, _LOOK_AGAIN))
        if marks:
            await asyncio.wait(marks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(timeout)
