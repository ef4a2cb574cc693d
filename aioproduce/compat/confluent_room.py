"""Limits the pending messages (`queue.buffering.max.messages`), and queues callers that wait for room.

Used by `confluent.AIOProducer`, for each message.

Invariants:

1. Room is assigned in the order of the requests.
2. Messages are only counted until the known room is used up. Only then the pending messages are counted again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce._native.delivery import DeliveryFuture

# One message in so many is kept to be waited for, so that freed room is noticed at least as often.
_MARKS: Final = 256
# Seconds. Messages without a mark, and those that wait for their topic, are found only by polling.
_LOOK_AGAIN: Final = 0.02


@final
class MessageRoom:
    """Room for a limited number of messages.

    Args:
        limit: The limit.
        pending: Returns the number of pending messages.

    Attributes:
        left: How many may be accepted before the pending messages are counted again.
        taken: How many were accepted, in total.
        stride: One message in so many is to be marked.
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
        """Wait in line for room for one message; return False if there is none within these seconds."""
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
        """Whether callers are waiting, so that others must queue after them."""
        return self._gate.locked()

    def mark(self, delivery: DeliveryFuture) -> None:
        """Keep a message that may be waited for."""
        marks = self._marks
        while marks and marks[0].done():
            marks.popleft()
        marks.append(delivery)

    def forget(self) -> None:
        """Forget all accepted messages, which were dropped."""
        self._marks.clear()
        self.left = 0

    async def outcome(self, timeout: float = inf) -> None:
        """Wait until a marked message is settled or it is time to count again, at most so many seconds."""
        marks = [delivery for delivery in self._marks if not delivery.done()]
        self._marks = deque(marks)
        timeout = max(0.0, min(timeout, _LOOK_AGAIN))
        if marks:
            await asyncio.wait(marks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(timeout)
