"""How many messages may be on their way at once (`queue.buffering.max.messages`), and who waits for a place.

Called by `confluent.AIOProducer`, for each message.

Invariants:

1. Places are given in the order of asking: nobody overtakes one who waits.
2. Every place that was taken is given back once: with the message's outcome, or where it was never queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import final


@final
class MessageRoom:
    """So many places for messages.

    Args:
        limit: How many places.

    Attributes:
        taken: How many are taken.
        outcomes: How many were given back with an outcome, over its life.
    """

    __slots__ = ("_limit", "_line", "_watchers", "outcomes", "taken")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: deque[asyncio.Future[None]] = deque()
        self._watchers: list[asyncio.Future[None]] = []
        self.taken = 0
        self.outcomes = 0

    def try_take(self) -> bool:
        """Take a place, if one is free and nobody waits."""
        if self.taken >= self._limit or self._line:
            return False
        self.taken += 1
        return True

    async def take(self, timeout: float) -> bool:
        """Wait in line for a place.

        Args:
            timeout: Seconds.

        Returns:
            Whether there came one free in time.
        """
        if self.try_take():
            return True
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        try:
            await asyncio.wait([ticket], timeout=timeout)
        except BaseException:
            if ticket.done():
                self._release()  # cancelled as it was given
            raise
        finally:
            if not ticket.done():
                self._line.remove(ticket)
        return ticket.done()

    def give_back(self) -> None:
        """A message is settled: its place is free."""
        self.outcomes += 1
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
        self._release()

    def give_up(self) -> None:
        """A place was taken for a message that nobody will hear of."""
        self._release()

    def _release(self) -> None:
        if self._line:
            self._line.popleft().set_result(None)  # the place goes over
        else:
            self.taken -= 1

    async def outcome(self, timeout: float | None) -> None:
        """Wait until a message is settled, or none is on its way.

        Args:
            timeout: Seconds; None for no bound.
        """
        if not self.taken:
            return
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await asyncio.wait([watcher], timeout=timeout)
        finally:
            self._watchers.remove(watcher)
