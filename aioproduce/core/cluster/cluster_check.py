"""The core of `aioproduce check`: a driver runs it instead of the Sender, to try each broker once.

It tries the bootstrap servers first, then every broker that their metadata names. An attempt uses the producer's
own connections (`broker_connections`): transport, TLS, versions, login. Then it asks for metadata, and ends. The
caller reads the outcome from the attempt and its connection.

Invariants:

1. An address is tried once, and at most `_AT_ONCE` of them at a time.
2. Every attempt ends, by its answer or by the end of its connection: the connection has time-outs, and the caller
   has `abort()`.
3. Nothing changes in the cluster: no topic is created, no record written, no producer id requested.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.core.cluster.connection_states import ConnectionState
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import BrokerAddress
from aioproduce.wire.requests import encode_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.core.cluster.broker_connection import BrokerConnection
    from aioproduce.core.cluster.broker_connections import BrokerConnections, Lost
    from aioproduce.core.effects import Effect, Offload
    from aioproduce.wire.messages import MetadataResponse

_AT_ONCE: Final = 16
"""Limit of connections at a time, so that one client does not connect to a hundred brokers at once."""


@final
@dataclass(slots=True, eq=False)
class Attempt:
    """The attempt to reach one address.

    Attributes:
        address: The address; its `node_id` is negative for a bootstrap server.
        is_bootstrap: Whether `bootstrap.servers` names it.
        node_ids: The ids under which metadata names it; empty until one does.
        connection: Its connection; `None` before the attempt.
        reached: The states that its connection reached, and when.
        metadata: The broker's answer, or `None`.
        ended_at: When it ended; `None` before.
        error: The error of the connection that ended it, or `None`.
        reason: The failure in words; empty if it has not failed.
    """

    address: BrokerAddress
    is_bootstrap: bool
    node_ids: list[int] = field(default_factory=list)
    connection: BrokerConnection | None = None
    reached: dict[ConnectionState, float] = field(default_factory=dict)
    metadata: MetadataResponse | None = None
    ended_at: float | None = None
    error: BaseException | None = None
    reason: str = ""

    def note(self, now: float) -> None:
        """Record the connection's current state."""
        connection = self.connection
        if connection is not None and connection.is_open:
            self.reached.setdefault(connection.state, now)

    def answered(self, response: MetadataResponse, now: float) -> bool:
        """Record the broker's answer."""
        self.metadata = response
        self.ended_at = now
        return False

    def lost(self, loss: Lost, now: float) -> None:
        """Do nothing: `ClusterCheck` records why the connection was lost."""


@final
class ClusterCheck:
    """A core that tries brokers, and sends no records.

    Args:
        client_id: Kafka's `client.id`.
        bootstrap: `(host, port)` of the brokers to begin with.
        connections: Makes the connections; nothing else uses it.
        topic: A topic to ask for too, or `None`.

    Attributes:
        connections: The argument of that name.
        attempts: All attempts, in the order in which their addresses became known.
        settled: Always empty: nothing is delivered here.
    """

    __slots__ = (
        "_by_connection",
        "_client_id",
        "_has_work",
        "_is_aborted",
        "_topic",
        "_waiting",
        "attempts",
        "connections",
        "settled",
    )

    def __init__(
        self,
        client_id: str,
        bootstrap: Sequence[tuple[str, int]],
        connections: BrokerConnections,
        topic: str | None,
    ) -> None:
        self._client_id = client_id
        self._topic = topic
        self._waiting: deque[Attempt] = deque()
        self._by_connection: dict[int, Attempt] = {}
        self._has_work = True
        self._is_aborted = False
        self.connections: BrokerConnections = connections
        self.attempts: list[Attempt] = []
        self.settled: deque[Any] = deque()
        for host, port in bootstrap:
            self._add(BrokerAddress(self._free_id, host, port), is_bootstrap=True)

    @property
    def has_work(self) -> bool:
        """Whether `next_effect()` may return an effect."""
        return self._has_work or bool(self.connections.effects) or bool(self.connections.offloads.effects)

    @property
    def is_closed(self) -> bool:
        """Whether every attempt and every connection has ended."""
        return not self._waiting and len(self.connections) == 0

    def abort(self, reason: str, now: float) -> None:
        """End all attempts, for this reason."""
        self._is_aborted = True
        for attempt in self._waiting:
            attempt.reason, attempt.ended_at = f"not tried: {reason}", now
        self._waiting.clear()
        self.connections.close_all(reason, now)
        self._has_work = True

    # -- facts ---

    def connection_made(self, connection_id: int, now: float) -> None:
        """Accept that the transport is open."""
        self.connections.connection_made(connection_id, now)
        self._note(connection_id, now)

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Accept bytes from a broker."""
        for completed in self.connections.receive_data(connection_id, data, now):
            if completed.request.asker is not None:
                completed.request.asker.answered(completed.response, now)
        self._note(connection_id, now)

    def writable(self, connection_id: int, now: float) -> None:
        """Accept that a transport holds none of our bytes any more."""
        self.connections.writable(connection_id, now)
        self._note(connection_id, now)

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> None:
        """Accept that a transport is lost, or an attempt to open one failed."""
        attempt = self._by_connection.pop(connection_id, None)
        lost = self.connections.connection_lost(connection_id, error, now)
        if attempt is not None and lost is not None and attempt.ended_at is None:
            attempt.ended_at = now
            attempt.error, attempt.reason = lost.connection.error, lost.reason
        self._has_work = True

    def offloaded(self, ticket: int, outcome: object, now: float) -> None:
        """Accept the outcome of a login's offloaded work."""
        self.connections.offloaded(ticket, outcome, now)
        for connection_id in list(self._by_connection):
            self._note(connection_id, now)

    def compressed(self, batch: Any, records: bytes, now: float) -> None:  # noqa: ARG002
        """Raise `RuntimeError`: no `Compress` was emitted."""
        raise RuntimeError("a check of the cluster has no records")

    def compression_failed(self, batch: Any, error: BaseException, now: float) -> None:  # noqa: ARG002
        """Raise `RuntimeError`: no `Compress` was emitted."""
        raise RuntimeError("a check of the cluster has no records") from error

    def next_timer(self) -> float | None:
        """Return when to call `handle_timer()`; `None`: never."""
        return self.connections.next_timer()

    def handle_timer(self, now: float) -> None:
        """End attempts that took too long."""
        self.connections.handle_timer(now)
        self._has_work = True

    def next_effect(self, now: float) -> Effect | Offload | None:
        """Return the driver's next effect; `None` if the core is at rest."""
        connections = self.connections
        while True:
            if connections.effects:
                return connections.effects.popleft()
            if connections.offloads.effects:
                return connections.offloads.effects.popleft()
            if not self._has_work:
                return None
            self._has_work = False
            self._advance(now)

    # -- below ---

    @property
    def _free_id(self) -> int:
        return -1 - len(self.attempts)

    def _note(self, connection_id: int, now: float) -> None:
        attempt = self._by_connection.get(connection_id)
        if attempt is not None:
            attempt.note(now)
        self._has_work = True

    def _add(self, address: BrokerAddress, *, is_bootstrap: bool) -> None:
        for known in self.attempts:
            if (known.address.host, known.address.port) == (address.host, address.port):
                break
        else:
            # Listeners of two networks report different addresses of one node: both are tried.
            is_taken = any(known.address.node_id == address.node_id for known in self.attempts)
            at = BrokerAddress(self._free_id, address.host, address.port) if is_taken else address
            known = Attempt(at, is_bootstrap)
            self.attempts.append(known)
            self._waiting.append(known)
        if address.node_id >= 0 and address.node_id not in known.node_ids:
            known.node_ids.append(address.node_id)

    def _advance(self, now: float) -> None:
        for attempt in list(self._by_connection.values()):
            connection = attempt.connection
            assert connection is not None
            if attempt.metadata is not None:
                if connection.is_open:
                    for address in attempt.metadata.brokers:
                        self._add(address, is_bootstrap=False)
                    self.connections.close(connection.connection_id, "it has answered", now)
            elif connection.can_send(now) and not connection.in_flight:
                self._ask(attempt, connection, now)
        while self._waiting and len(self._by_connection) < _AT_ONCE and not self._is_aborted:
            self._begin(self._waiting.popleft(), now)

    def _begin(self, attempt: Attempt, now: float) -> None:
        self.connections.ensure(attempt.address, now)
        connection = attempt.connection = self.connections.connection(attempt.address.node_id)
        assert connection is not None, "a node that was never tried has no back-off"
        self._by_connection[connection.connection_id] = attempt
        attempt.note(now)

    def _ask(self, attempt: Attempt, connection: BrokerConnection, now: float) -> None:
        topics = [] if self._topic is None else [self._topic]
        connection.send(
            ApiKey.METADATA,
            lambda version, correlation_id: [
                encode_metadata(
                    version,
                    correlation_id,
                    self._client_id,
                    topics,
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=version >= _FIRST_WITH_OPERATIONS,
                )
            ],
            attempt,
            now,
        )


_FIRST_WITH_OPERATIONS: Final = 8
"""The first version of Metadata that reports what this client may do (KIP-430)."""
