"""The layer between a model and its connections: encryption, and the requests that a login allows.

Called only by `model`, if its listeners are secured. Without I/O, like the model.

Invariants:
1. The model sees only plaintext, and output is encrypted in the order in which it is sent.
2. A connection whose handshake fails, or whose client ends TLS, is closed, after the alert if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

from aioproduce.errors import TlsError
from aioproduce.security.channel import Channel
from aioproduce.testing.fake_cluster.effects import Close, Send

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing.fake_cluster.connections import BrokerSideConnection
    from aioproduce.testing.fake_cluster.effects import Effect
    from aioproduce.testing.fake_cluster.faults import Faults


class ServerChannel(Channel, Protocol):
    """The broker's end of an encrypted connection."""

    def end(self) -> None:
        """Announce the end of the data."""


class ServerChannels(Protocol):
    """Creates the brokers' ends."""

    def accept(self) -> ServerChannel:
        """Return a channel for a client that has connected."""


@final
@dataclass(slots=True, eq=False, repr=False)
class SecuredConnections:
    """The encryption of all connections of a cluster.

    Args:
        channels: Creates the channels.
        faults: The cluster's faults.
        emit: Executes an effect.
    """

    _channels: ServerChannels
    _faults: Faults
    _emit: Callable[[Effect], object]

    def opened(self, connection: BrokerSideConnection) -> None:
        """Handle a new connection."""
        connection.channel = self._channels.accept()
        fault = self._faults.take_cut_handshake(connection.broker_id)
        connection.handshake_left = None if fault is None else fault.length

    def decrypt(self, connection: BrokerSideConnection, data: bytes) -> bytes | None:
        """Return the plaintext of received bytes; `None` if the connection is to be closed."""
        channel = connection.channel
        assert channel is not None
        try:
            plaintext = channel.receive(data)
        except TlsError:
            self._flush(connection)
            return None
        may_go_on = self._flush(connection)
        return plaintext if may_go_on and (plaintext or not channel.is_ended) else None

    def emit(self, connection: BrokerSideConnection, effect: Effect) -> None:
        """Execute an effect, encrypted."""
        channel = connection.channel
        assert channel is not None
        if isinstance(effect, Send):
            channel.send((effect.data,))
            self._flush(connection)
            return
        if isinstance(effect, Close) and not effect.is_reset:
            channel.end()
            self._flush(connection)
        self._emit(effect)

    def _flush(self, connection: BrokerSideConnection) -> bool:
        """Send the channel's output. Return False if a fault cut the handshake."""
        assert connection.channel is not None
        data = connection.channel.outgoing()
        left = connection.handshake_left
        if left is not None:
            connection.handshake_left = max(0, left - len(data))
            is_whole, data = len(data) < left, data[:left]
        else:
            is_whole = True
        if data:
            self._emit(Send(connection.connection_id, data))
        return is_whole
