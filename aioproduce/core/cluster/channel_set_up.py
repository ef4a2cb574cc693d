"""The way of a connection to an established channel, in turns: one step of one of them for each turn of the loop.

A step takes up to a millisecond (a thread is started for the key files, the first message is made, a chain is
checked). A hundred brokers that answer at once would stop the loop for a tenth of a second.

Used by `core.cluster.broker_connection`; `core.cluster.broker_connections` gives the turns.

Invariants:

1. What comes of a handshake waits for the connection's turn, in order. It is bounded: beyond `_MAX_WAITING` bytes
   it is the connection's turn at once.
2. `Connect` is emitted in a turn, or before the `Close`: the driver reports the end of what it was told of alone.
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
"""Bytes of a handshake that wait for a turn: several times what a broker with a long chain sends."""


@final
class Turns:
    """Connections that can go on with their set-up, by id, in the order in which they could.

    Attributes:
        since: Since when each can. Looked at in every step of the sender, hence without a call.
    """

    __slots__ = ("_taken_at", "since")

    def __init__(self) -> None:
        self.since: dict[int, float] = {}
        self._taken_at = float("-inf")

    def want(self, connection_id: int, now: float) -> None:
        """It can go on; its place in the order stays."""
        self.since.setdefault(connection_id, now)

    def drop(self, connection_id: int) -> None:
        """It has had its turn, or needs none any more."""
        self.since.pop(connection_id, None)

    def next_at(self) -> float:
        """When the next is due: not before the last one, so that the loop is not called late by what that took."""
        return max(self._taken_at, next(iter(self.since.values())))

    def first(self, now: float) -> int | None:
        """Whose turn it is now."""
        if not self.since:
            return None
        self._taken_at = now
        return next(iter(self.since))


@final
class ChannelSetUp:
    """That of one connection, whose channel comes from `open_channel`."""

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
        """The attempt is to be made, in its turn."""
        self._attempt = attempt
        self.want_turn(now)

    def want_turn(self, now: float) -> None:
        """There is something to go on with."""
        self._turns.want(self._connection.connection_id, now)

    def hear(self, data: bytes, now: float) -> None:
        """Bytes came before the channel is established."""
        self._waiting += data
        if len(self._waiting) > _MAX_WAITING:
            self.take_turn(now)
        else:
            self.want_turn(now)

    def take_turn(self, now: float) -> None:
        """Begin the attempt, begin the handshake, or take what has come of it since."""
        connection = self._connection
        self._turns.drop(connection.connection_id)
        self._emit_attempt()
        if connection.state is not ConnectionState.ENCRYPTING:
            return
        if connection.channel is None:
            try:
                # Not before: the key files are read anew with each attempt.
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
        """The connection is closed: it needs no turn."""
        self._turns.drop(self._connection.connection_id)
        self._emit_attempt()

    def _emit_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._effects.append(attempt)
