"""Work of a login that runs outside the core: emitted as effects, each outcome reported once.

Owned by `core.cluster.broker_connections`. The Sender drains `effects`, and reports the outcomes.

Invariants:

1. Each `begin()` leads to one call of `on_end`, or to none after `forget()`.
2. The outcome of forgotten or unknown work changes nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias, final

from aioproduce.core.effects import Offload

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.security.mechanism import Work

OnEnd: TypeAlias = "Callable[[object, float], None]"
"""Called with the result or the exception that was raised, and with the current instant."""


@final
class Offloads:
    """Work that runs outside the core.

    Attributes:
        effects: Work for the driver; the caller drains it from the left.
    """

    __slots__ = ("_last_ticket", "_under_way", "effects")

    def __init__(self) -> None:
        self.effects: deque[Offload] = deque()
        self._under_way: dict[int, OnEnd] = {}
        self._last_ticket = 0

    def begin(self, work: Work, on_end: OnEnd) -> int:
        """Emit the work as an effect.

        Returns:
            A ticket for `forget()`.
        """
        self._last_ticket += 1
        self._under_way[self._last_ticket] = on_end
        self.effects.append(Offload(self._last_ticket, work))
        return self._last_ticket

    def forget(self, ticket: int) -> None:
        """Drop the callback, and the effect if the driver has not received it."""
        if self._under_way.pop(ticket, None) is not None:
            for effect in self.effects:
                if effect.ticket == ticket:
                    self.effects.remove(effect)
                    return

    def ended(self, ticket: int, outcome: object, now: float) -> None:
        """Report the outcome to the callback."""
        on_end = self._under_way.pop(ticket, None)
        if on_end is not None:
            on_end(outcome, now)

    def forget_all(self) -> None:
        """Drop all callbacks and effects: the connections are closed for good."""
        self._under_way.clear()
        self.effects.clear()
