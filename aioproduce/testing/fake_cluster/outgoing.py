"""What the model's connections send, and how they end: answers in order, late, changed by a fault, or encrypted.

Used by `model` alone.

Invariants:
1. An answer that is due earlier than a previous one waits for that: answers stay in order.
2. A stalled broker sends nothing; what is due meanwhile is sent when it resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from aioproduce.testing.fake_cluster.effects import Close, Effect, Send
from aioproduce.testing.fake_cluster.faults import AnswerFault, Fault, Faults

if TYPE_CHECKING:
    from collections import deque

    from aioproduce.testing.fake_cluster.connections import BrokerSideConnection
    from aioproduce.testing.fake_cluster.secured import SecuredConnections
    from aioproduce.testing.fake_cluster.timers import Timers


@final
@dataclass(slots=True, eq=False, repr=False)
class Outgoing:
    """The output of all connections.

    Args:
        connections: The open ones, by id; a closed one is removed here.
        effects: The list of effects.
        timers: The model's.
        faults: The cluster's.
        secured: Encrypts; `None` without TLS.
    """

    _connections: dict[int, BrokerSideConnection]
    _effects: deque[Effect]
    _timers: Timers
    _faults: Faults
    secured: SecuredConnections | None = None

    def post(self, connection: BrokerSideConnection, frame: bytes, now: float, delay: float = 0.0) -> None:
        """Send an answer."""
        data = len(frame).to_bytes(4, "big") + frame
        self._enqueue(connection, Send(connection.connection_id, data), now, delay)

    def post_faulty(self, connection: BrokerSideConnection, fault: Fault, frame: bytes, now: float) -> None:
        """Send an answer as changed by a fault, if at all."""
        whole = len(frame).to_bytes(4, "big") + frame
        match fault.kind:
            case AnswerFault.DROP:
                pass
            case AnswerFault.RESET_AFTER:
                self.close(connection, is_reset=True)
            case AnswerFault.DELAY:
                self.post(connection, frame, now, fault.seconds)
            case AnswerFault.CUT:
                self._enqueue(connection, Send(connection.connection_id, whole[: fault.length]), now)
                self.close_later(connection, now)
            case AnswerFault.GARBAGE:
                self.post(connection, frame[:4] + fault.payload, now)
            case AnswerFault.HOSTILE_LENGTH:
                length = fault.length.to_bytes(4, "big", signed=True)
                self._enqueue(connection, Send(connection.connection_id, length), now)
            case _:
                self.post(connection, frame, now)

    def close_later(self, connection: BrokerSideConnection, now: float, delay: float = 0.0) -> None:
        """Close a connection after its pending answers, and not before `delay` seconds."""
        self._enqueue(connection, Close(connection.connection_id, is_reset=False), now, delay)

    def close(self, connection: BrokerSideConnection, *, is_reset: bool) -> None:
        """Close a connection now."""
        if self._connections.pop(connection.connection_id, None) is not None:
            self._emit(connection, Close(connection.connection_id, is_reset))

    def reset_all(self, broker_id: int | None) -> None:
        """Reset the connections of a broker, or all."""
        for connection in tuple(self._connections.values()):
            if broker_id in (None, connection.broker_id):
                self.close(connection, is_reset=True)

    def flush(self, connection: BrokerSideConnection, now: float) -> None:
        """Send everything that is due."""
        is_open = connection.connection_id in self._connections
        if not is_open or self._faults.is_stalled(connection.broker_id):
            return
        while connection.outbox and connection.outbox[0][0] <= now:
            effect = connection.outbox.popleft()[1]
            if isinstance(effect, Close):
                self.close(connection, is_reset=effect.is_reset)
                return
            self._emit(connection, effect)

    def _enqueue(
        self, connection: BrokerSideConnection, effect: Send | Close, now: float, delay: float = 0.0
    ) -> None:
        connection.outbox.append((now + delay, effect))
        if delay > 0:
            self._timers.call_at(now + delay, lambda at: self.flush(connection, at))
        else:
            self.flush(connection, now)

    def _emit(self, connection: BrokerSideConnection, effect: Send | Close) -> None:
        if self.secured is None:
            self._effects.append(effect)
        else:
            self.secured.emit(connection, effect)
