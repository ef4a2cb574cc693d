"""The shape of everything that is asked of brokers: metadata, a producer id, produce, telemetry, audit marks.

The Sender holds a list of exchanges and asks each the same things, in the list's order; it knows nothing of what
they are about. A new kind of request is a module with an `Exchange`, its encoding in `wire.requests`, and its line
in the Sender's list.

    facts:  `answered` and `lost`, from `core.cluster.in_flight_request.Asker`: the end of each request
    steps:  `advance(now)`: send what is due; called in each step of the core
    time:   `timer_at`: when to be asked again; `handle_timer(now)`: some timer of the core has come
    end:    `begin_close(now)`, then `finish(now)` in each step until it says that nothing is left

Invariants:

1. `advance()` sends nothing that is not due and waits for nothing: what cannot be sent now is sent in a later step.
   An exchange that needs a connection says so by `awaits_connection`, else room that comes free wakes nobody. It
   tells of the latest step: whatever changes it makes news, and so another step, by itself.
2. After `begin_close()` nothing new is begun, and what is under way has an end that time alone brings, if nothing
   else does.
3. `wake_all()` tells everybody who waits on the exchange, whatever state it is in.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproduce.core.cluster.broker_connections import Lost


class Exchange:
    """One kind of talk with brokers. What a kind does not need it leaves as it is here.

    Attributes:
        timer_at: When to look again, if nothing happens before; infinity: never.
        awaits_connection: Whether something was due in the latest step that no connection could take.
    """

    # Attributes, not methods: they are read with every request.
    __slots__ = ("awaits_connection", "timer_at")

    def __init__(self) -> None:
        self.timer_at: float = inf
        self.awaits_connection: bool = False

    def advance(self, now: float) -> None:
        """Send what is due to whoever can take it."""

    def answered(self, response: Any, now: float) -> bool:
        """A request of this exchange was answered; see `Asker`."""
        raise NotImplementedError(f"{type(self).__name__} asks nothing by itself")

    def lost(self, loss: Lost, now: float) -> None:
        """The connection that carried a request of this exchange is gone; see `Asker`."""
        raise NotImplementedError(f"{type(self).__name__} asks nothing by itself")

    def handle_timer(self, now: float) -> None:
        """Do what is due. The core takes a step afterwards."""
        if self.timer_at <= now:
            self.timer_at = inf

    def begin_close(self, now: float) -> None:
        """The producer takes no more records."""

    def finish(self, now: float) -> bool:
        """The producer closes, and those before this exchange have finished; says whether nothing is left here."""
        return True

    def wake_all(self) -> None:
        """Tell everybody who waits: there is something graver than what they wait for."""
