"""What is done elsewhere for a login: handed out as effects, and each end told once to who asked for it.

Owned by `core.cluster.broker_connections`. The Sender drains `effects`, and reports the ends.

Invariants:

1. Each `begin()` leads to one call of `on_end`, or to none if it was forgotten.
2. An end of what was forgotten, or is not known, changes nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias, final

from aioproduce.core.effects import Offload

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.security.mechanism import Work

OnEnd: TypeAlias = "Callable[[object, float], None]"
"""Is told the result, or the exception that was raised, and the current instant."""


@final
class Offloads:
    """Work under way.

    Attributes:
        effects: What the driver is to run; drained from the left by the caller.
    """

    __slots__ = ("_last_ticket", "_under_way", "effects")

    def __init__(self) -> None:
        self.effects: deque[Offload] = deque()
        self._under_way: dict[int, OnEnd] = {}
        self._last_ticket = 0

    def begin(self, work: Work, on_end: OnEnd) -> int:
        """Have it done.

        Returns:
            A ticket, to forget it by.
        """
        self._last_ticket += 1
        self._under_way[self._last_ticket] = on_end
        self.effects.append(Offload(self._last_ticket, work))
        return self._last_ticket

    def forget(self, ticket: int) -> None:
        """Nobody waits for its end any more. What has not been handed out is not done."""
        if self._under_way.pop(ticket, None) is not None:
            for effect in self.effects:
                if effect.ticket == ticket:
                    self.effects.remove(effect)
                    return

    def ended(self, ticket: int, outcome: object, now: float) -> None:
        """The driver has done it."""
        on_end = self._under_way.pop(ticket, None)
        if on_end is not None:
            on_end(outcome, now)

    def forget_all(self) -> None:
        """The connections are closed for good."""
        self._under_way.clear()
        self.effects.clear()
