"""Which broker coordinates a transactional id or a consumer group, as far as it is known.

Owned by the transaction manager, which asks for the answers. A coordinator is lost when it says that it is none,
when its connection is lost, and when it cannot be connected to: a broker that is gone answers nothing
(aiokafka#1134).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections
    from aioproduce.wire.messages import BrokerAddress

GROUP: Final = 0
TRANSACTION: Final = 1
"""Kafka's FindCoordinatorRequest.CoordinatorType."""


class CoordinatorKey(NamedTuple):
    """What is coordinated: a kind (`GROUP`, `TRANSACTION`) and a name."""

    kind: int
    name: str

    @property
    def text(self) -> str:
        """What it is, in a message."""
        return f"the group {self.name!r}" if self.kind == GROUP else f"the transactional.id {self.name!r}"


@final
class Coordinators:
    """The known ones.

    Args:
        connections: Ways to them.
    """

    __slots__ = ("_connections", "_known")

    def __init__(self, connections: BrokerConnections) -> None:
        self._connections = connections
        self._known: dict[CoordinatorKey, BrokerAddress] = {}

    def found(self, key: CoordinatorKey, address: BrokerAddress) -> None:
        """A broker said which it is."""
        self._known[key] = address

    def lost(self, key: CoordinatorKey) -> None:
        """It is another one, or cannot be reached."""
        self._known.pop(key, None)

    def forget_groups(self) -> None:
        """A transaction has ended: the next one may be of other groups."""
        self._known = {key: address for key, address in self._known.items() if key.kind == TRANSACTION}

    def knows(self, key: CoordinatorKey) -> bool:
        """Whether it is known."""
        return key in self._known

    def connection(self, key: CoordinatorKey, now: float) -> BrokerConnection | None:
        """A connection that takes a request now; `None`: not yet, or the coordinator is lost (`knows()`)."""
        address = self._known[key]
        connection = self._connections.ensure(address, now)
        if connection is not None:
            return connection if connection.can_send(now) else None
        if self._connections.connection(address.node_id) is None:
            # It could not be connected to, and is left alone for a while: another may be coordinator by now.
            self.lost(key)
        return None
