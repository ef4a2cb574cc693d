"""The common interface of all requests to brokers: metadata, producer id, produce, telemetry, audit marks.

The Sender holds a list of exchanges and calls the same methods of each, in the list's order; it does not know their
subjects. A new kind of request is a module with an `Exchange`, its encoding in `wire.requests`, and its line in the
Sender's list.

    facts:  `answered` and `lost`, from `core.cluster.in_flight_request.Asker`: the end of each request
    steps:  `advance(now)`: send what is due; called in each step of the core
    time:   `timer_at`: when to call again; `handle_timer(now)`: a timer of the core is due
    end:    `begin_close(now)`, then `finish(now)` in each step until it returns that nothing is left

Invariants:

1. `advance()` sends only what is due and waits for nothing: a later step sends what cannot be sent now. An exchange
   that needs a connection sets `awaits_connection`; otherwise a connection with room again causes no step. The
   attribute describes the latest step: a change that would alter it causes another step by itself.
2. After `begin_close()` the exchange begins nothing new, and its pending work ends at some instant at the latest.
3. `wake_all()` notifies all waiters of the exchange, in any state.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproduce.core.cluster.broker_connections import Lost


class Exchange:
    """One kind of requests to brokers. A kind overrides only the methods that it needs.

    Attributes:
        timer_at: When to call again, if nothing happens before; infinity: never.
        awaits_connection: Whether a request was due in the latest step that no connection could accept.
    """

    # Attributes, not methods: they are read with every request.
    __slots__ = ("awaits_connection", "timer_at")

    def __init__(self) -> None:
        self.timer_at: float = inf
        self.awaits_connection: bool = False

    def advance(self, now: float) -> None:
        """Send what is due to the brokers that can accept it."""

    def answered(self, response: Any, now: float) -> bool:
        """Handle the answer to a request of this exchange; see `Asker`."""
        raise NotImplementedError(f"{type(self).__name__} sends no requests itself")

    def lost(self, loss: Lost, now: float) -> None:
        """Handle the loss of the connection that carried a request of this exchange; see `Asker`."""
        raise NotImplementedError(f"{type(self).__name__} sends no requests itself")

    def handle_timer(self, now: float) -> None:
        """Do what is due. A step of the core follows."""
        if self.timer_at <= now:
            self.timer_at = inf

    def begin_close(self, now: float) -> None:
        """Begin the end: the producer accepts no more records."""

    def finish(self, now: float) -> bool:
        """Finish, after the exchanges before this one; return whether nothing is left to do."""
        return True

    def wake_all(self) -> None:
        """Notify all waiters, since something more serious has happened than what they wait for."""
