"""The set-up of TLS channels in turns: one step of one connection per turn of the event loop.

A step takes up to a millisecond: it starts a thread for the key files, makes the first message, or checks a chain.
A hundred brokers that answer at once would block the loop for a tenth of a second.

Used by `core.cluster.broker_connection`; `core.cluster.broker_connections` assigns the turns.

Invariants:

1. Received handshake bytes wait for the connection's turn, in order. They are bounded: beyond `_MAX_WAITING` bytes
   the connection gets its turn at once.
2. `Connect` is emitted in a turn, or before the `Close`: the driver reports the end only of a connection that it
   knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from aioproduce.core.cluster.connection_states import ConnectionState
from aioproduce.errors import TlsError

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.effects import Connect, Effect
    from aioproduce.security.channel import Channel

_MAX_WAITING: Final = 64 * 1024
"""Limit of handshake bytes that wait for a turn: several times what a broker with a long chain sends."""


@final
class Turns:
    """Connections that can continue their set-up, by id, in order.

    Attributes:
        since: Since when each can. The sender reads it in every step, so it is a plain attribute.
    """

    __slots__ = ("_taken_at", "since")

    def __init__(self) -> None:
        self.since: dict[int, float] = {}
        self._taken_at = float("-inf")

    def want(self, connection_id: int, now: float) -> None:
        """Add a connection; one that already waits keeps its place."""
        self.since.setdefault(connection_id, now)

    def drop(self, connection_id: int) -> None:
        """Remove a connection that had its turn, or needs none."""
        self.since.pop(connection_id, None)

    def next_at(self) -> float:
        """Return when the next turn is due: not before the last one, whose duration would count as loop lag."""
        return max(self._taken_at, next(iter(self.since.values())))

    def first(self, now: float) -> int | None:
        """Return the connection whose turn it is now, or `None`."""
        if not self.since:
            return None
        self._taken_at = now
        return next(iter(self.since))


@final
class ChannelSetUp:
    """The channel set-up of one connection; `open_channel` makes the channel."""

    __slots__ = ("_attempt", "_connection", "_effects", "_open_channel", "_turns", "_waiting")

    def __init__(
        self,
        connection: BrokerConnection,
        open_channel: Callable[[str], Channel],
        turns: Turns,
        effects: deque[Effect],
    ) -> None:
        self._connection = connection
        self._open_channel = open_channel
        self._turns = turns
        self._effects = effects
        self._attempt: Connect | None = None
        self._waiting = bytearray()

    def begin(self, attempt: Connect, now: float) -> None:
        """Schedule the connection attempt for the next turn."""
        self._attempt = attempt
        self.want_turn(now)

    def want_turn(self, now: float) -> None:
        """Ask for a turn."""
        self._turns.want(self._connection.connection_id, now)

    def hear(self, data: bytes, now: float) -> None:
        """Accept bytes that arrive before the channel is established."""
        self._waiting += data
        if len(self._waiting) > _MAX_WAITING:
            self.take_turn(now)
        else:
            self.want_turn(now)

    def take_turn(self, now: float) -> None:
        """Begin the attempt, begin the handshake, or process the handshake bytes received since."""
        connection = self._connection
        self._turns.drop(connection.connection_id)
        self._emit_attempt()
        if connection.state is not ConnectionState.ENCRYPTING:
            return
        if connection.channel is None:
            try:
                # Not earlier: the key files are read again for each attempt.
                connection.channel = self._open_channel(connection.address.host)
                connection.channel.start()
            except TlsError as error:
                connection.fail(error)
                return
            connection.write_channel()
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            connection.receive_data(data, now, in_turn=True)

    def end(self) -> None:
        """Drop the turn of a closed connection."""
        self._turns.drop(self._connection.connection_id)
        self._emit_attempt()

    def _emit_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._effects.append(attempt)
