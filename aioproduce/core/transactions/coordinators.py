"""The known coordinators of transactional ids and consumer groups.

Owned by the transaction manager, which asks for them. A coordinator is lost when it answers that it is not one,
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
    """The kind (`GROUP`, `TRANSACTION`) and the name of what is coordinated."""

    kind: int
    name: str

    @property
    def text(self) -> str:
        """Its name in messages."""
        return f"the group {self.name!r}" if self.kind == GROUP else f"the transactional.id {self.name!r}"


@final
class Coordinators:
    """The known coordinators.

    Args:
        connections: The producer's connections.
    """

    __slots__ = ("_connections", "_known")

    def __init__(self, connections: BrokerConnections) -> None:
        self._connections = connections
        self._known: dict[CoordinatorKey, BrokerAddress] = {}

    def found(self, key: CoordinatorKey, address: BrokerAddress) -> None:
        """Accept the coordinator that a broker reported."""
        self._known[key] = address

    def lost(self, key: CoordinatorKey) -> None:
        """Forget a coordinator that changed or cannot be reached."""
        self._known.pop(key, None)

    def forget_groups(self) -> None:
        """Forget the groups' coordinators: the next transaction may have other groups."""
        self._known = {key: address for key, address in self._known.items() if key.kind == TRANSACTION}

    def knows(self, key: CoordinatorKey) -> bool:
        """Return whether the coordinator is known."""
        return key in self._known

    def connection(self, key: CoordinatorKey, now: float) -> BrokerConnection | None:
        """Return a connection that can send now; `None`: not yet, or the coordinator is lost (`knows()`)."""
        address = self._known[key]
        connection = self._connections.ensure(address, now)
        if connection is not None:
            return connection if connection.can_send(now) else None
        if self._connections.connection(address.node_id) is None:
            # The connection failed and is in back-off: another broker may be coordinator by now.
            self.lost(key)
        return None
