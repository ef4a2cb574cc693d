"""A producer's connections: one for each node, reconnect back-off, and the choice of the least loaded.

The sender owns the one `BrokerConnections`. It asks for connections (`ensure`, `least_loaded`), reports the
driver's facts, and drains `effects`.

Invariants:

1. A node has at most one open connection; any number of its older ones may be closing. Every connection
   stays known exactly until its `connection_lost`.
2. A request's memory may be released only after its response, or after `connection_lost` of its connection
   (`writable` if no response is expected).
3. After a connection ends, for any cause, the node is tried again only when its reconnect back-off has passed.
   The back-off is exponential in the ends before a successful negotiation, has jitter, and a negotiation resets
   it. Only an address change skips it: that is another peer.
4. Facts about unknown or closed connections are ignored. No effect of a connection is left in `effects`
   after its `connection_lost`.
5. `next_timer()` costs the same however many connections there are; after `handle_timer(now)` it is later
   than `now`. It may be early (a deadline is refreshed when it passes), never late.
6. `handle_timer` returns each node that was refused because of a back-off, or that is throttled, when that time
   has passed: nobody has to poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

from aioproduce.core.cluster.authentication import Authentication
from aioproduce.core.cluster.broker_connection import BrokerConnection
from aioproduce.core.cluster.channel_set_up import Turns
from aioproduce.core.cluster.connection_states import ConnectionSettings, LossCause
from aioproduce.core.cluster.in_flight_request import Completed, InFlightRequest
from aioproduce.core.cluster.login import Login
from aioproduce.core.cluster.node import Backoffs, Node, security_error_of
from aioproduce.core.cluster.offloads import Offloads
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.effects import Effect
from aioproduce.core.retry import ExponentialBackoff
from aioproduce.errors import ProducerError, TlsError, UnsupportedVersionError
from aioproduce.metrics import ProducerMetrics
from aioproduce.wire.messages import BrokerAddress

if TYPE_CHECKING:
    from aioproduce.core.cluster.finalized_features import FinalizedFeatures
    from aioproduce.security.security import Security


SILENCE: Final = 1.0
"""Seconds without a byte, while requests wait, after which a broker counts as silent."""


@final
@dataclass(frozen=True, slots=True)
class Lost:
    """A lost connection.

    Attributes:
        connection: The connection, closed.
        requests: Every request that had no response (or, if none is expected, may not have been written in
            full), in the order of sending. Their memory is free from now on.
        cause: Why it ended.
        reason: The cause in words, with the peer's name.
    """

    connection: BrokerConnection
    requests: list[InFlightRequest]
    cause: LossCause
    reason: str


class BrokerConnections:
    """A producer's connections, by node and by connection id.

    Args:
        client_id: Kafka's `client.id`.
        max_in_flight: Limit of requests in flight per connection.
        request_timeout: Seconds for the negotiation's requests.
        connections_max_idle: Seconds without traffic after which a connection is closed; negative: never.
        setup_backoff: The set-up time-out by the number of set-ups that failed in a row (KIP-601).
        reconnect_backoff: The pause by the number of connections that ended in a row before they were ready.
        random: `random(n)` returns a number from 0 to n-1.
        metrics: Records the connections' traffic.
        security: How they are encrypted, and how they log in; `None`: neither.
        login: The credential of the connections that log in.
        offloads: Work of logins that runs outside the core.
        jitter: Returns a number in `0 <= x < 1`.

    Attributes:
        login: The argument of that name.
        offloads: The argument of that name.
        effects: Effects for the driver; the caller drains them from the left.
        negotiations: How many connections have become ready so far.
    """

    __slots__ = (
        "_backoffs",
        "_by_id",
        "_deadlines",
        "_fatal_errors",
        "_is_closed",
        "_jitter",
        "_last_connection_id",
        "_metrics",
        "_nodes",
        "_random",
        "_security",
        "_settings",
        "_turns",
        "_wakeups",
        "effects",
        "login",
        "negotiations",
        "offloads",
    )

    def __init__(
        self,
        *,
        client_id: str,
        max_in_flight: int,
        request_timeout: float,
        connections_max_idle: float,
        setup_backoff: ExponentialBackoff,
        reconnect_backoff: ExponentialBackoff,
        random: Callable[[int], int],
        metrics: ProducerMetrics,
        security: Security | None = None,
        login: Login | None = None,
        offloads: Offloads | None = None,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self._metrics = metrics
        self._security = security
        self._jitter = jitter
        self.login: Login | None = login
        self.offloads: Offloads = Offloads() if offloads is None else offloads
        self._backoffs = Backoffs(setup_backoff, reconnect_backoff, jitter)
        self.effects: deque[Effect] = deque()
        self.negotiations: int = 0
        self._settings = ConnectionSettings(
            client_id=client_id,
            max_in_flight=max_in_flight,
            request_timeout=request_timeout,
            connections_max_idle=connections_max_idle,
        )
        self._random = random
        self._nodes: dict[int, Node] = {}
        self._by_id: dict[int, BrokerConnection] = {}
        self._fatal_errors: dict[int, UnsupportedVersionError] = {}
        self._last_connection_id = 0
        self._is_closed = False
        self._deadlines: Deadlines = Deadlines()  # by connection id
        self._turns = Turns()
        self._wakeups: Deadlines = Deadlines()  # by node id (invariant 6)

    # State

    def __len__(self) -> int:
        """Return the number of connections without `connection_lost` so far, closing ones included."""
        return len(self._by_id)

    @property
    def open_count(self) -> int:
        """The number of open connections: made, and not closing."""
        return sum(one.is_open and one.connected_at is not None for one in self._by_id.values())

    @property
    def in_flight(self) -> int:
        """The number of requests in flight on all connections."""
        return sum(one.pending_count for one in self._by_id.values())

    def in_flight_to(self, node_id: int) -> int:
        """Return the number of requests in flight to one broker, also on its older connections."""
        return sum(one.pending_count for one in self._by_id.values() if one.node_id == node_id)

    def silent_for(self, node_id: int, now: float) -> float:
        """Return the seconds that requests to a broker have waited without a byte from it; 0 if none waits."""
        node = self._nodes.get(node_id)
        since = None if node is None else node.unanswered_since()
        return 0.0 if since is None else max(now - since, 0.0)

    def silent(self, now: float) -> list[tuple[BrokerAddress, float]]:
        """Return the brokers that have been silent for `SILENCE` seconds or more, and for how long."""
        found = ((node.address, self.silent_for(node_id, now)) for node_id, node in self._nodes.items())
        return [(address, seconds) for address, seconds in found if seconds >= SILENCE]

    def connection(self, node_id: int) -> BrokerConnection | None:
        """Return the node's open connection in any state, or `None`."""
        node = self._nodes.get(node_id)
        return None if node is None else node.connection

    def connection_by_id(self, connection_id: int) -> BrokerConnection | None:
        """Return the connection, also while it is closing; `None` once it is lost."""
        return self._by_id.get(connection_id)

    def ready(self) -> list[BrokerConnection]:
        """Return the negotiated connections, also busy and throttled ones, oldest first."""
        return [one for one in self._by_id.values() if one.is_ready]

    def is_ready(self, node_id: int, now: float) -> bool:
        """Return whether the node's connection is negotiated and not throttled. It may be busy."""
        connection = self.connection(node_id)
        return connection is not None and connection.is_ready and connection.throttled_until <= now

    def can_connect(self, node_id: int, now: float) -> bool:
        """Return whether a connection may be opened: there is none, and the back-off has passed."""
        if self._is_closed:
            return False
        node = self._nodes.get(node_id)
        return node is None or (node.connection is None and node.next_attempt_at <= now)

    def next_attempt_at(self, node_id: int) -> float | None:
        """Return when a connection may be opened; `-inf`: never tried; `None`: there is one."""
        node = self._nodes.get(node_id)
        if node is None:
            return -inf
        return node.next_attempt_at if node.connection is None else None

    def last_error(self, node_id: int) -> str | None:
        """Return the node's last error in words; `None` since it was last ready."""
        node = self._nodes.get(node_id)
        return None if node is None else node.last_error

    @property
    def features(self) -> FinalizedFeatures:
        """The cluster's finalized features, as its brokers reported them."""
        return self._settings.features

    @property
    def fatal_error(self) -> UnsupportedVersionError | None:
        """The error of a broker that this client cannot work with, until the broker changes; or `None`."""
        return next(iter(self._fatal_errors.values()), None)

    @property
    def security_error(self) -> ProducerError | None:
        """The error of a setting or a login that keeps the client from every broker, or `None`.

        A transient error counts when it has happened twice and no broker has answered.
        """
        has_answered = any(one.has_answered for one in self._by_id.values())
        return None if has_answered else security_error_of(self._nodes.values())

    def all_unavailable(self, addresses: Sequence[BrokerAddress], now: float) -> bool:
        """Return whether all of these brokers are in back-off, and none is connected or connecting (KIP-899)."""
        return not any(
            self.connection(address.node_id) is not None or self.can_connect(address.node_id, now)
            for address in addresses
        )

    # Asking for connections

    def ensure(self, address: BrokerAddress, now: float) -> BrokerConnection | None:
        """Return the node's connection if it is ready, else begin to connect if that is allowed.

        Args:
            address: The broker, by its latest metadata. A connection to another address of the same node is
                closed.
            now: The current instant.

        Returns:
            The connection once READY (it may be busy or throttled: `can_send`); `None` while it is being
            set up or may not be tried yet. In the latter case `handle_timer` returns the node when it may.
        """
        node = self._node_at(address, now)
        if node is not None and node.connection is not None:
            return node.connection if node.connection.is_ready else None
        if self.can_connect(address.node_id, now):
            self._connect(address, now)
        elif node is not None and not self._is_closed:
            self._wakeups.schedule(address.node_id, node.next_attempt_at)
        return None

    def least_loaded(self, addresses: Sequence[BrokerAddress], now: float) -> BrokerConnection | None:
        """Return a connection for a request that any broker can answer.

        It is the one with the fewest requests in flight among those that can send now. If there is none, and
        none is being set up, this opens a connection to a broker whose back-off has passed: the one that was
        tried longest ago, or one that was never tried.

        Args:
            addresses: The brokers to choose from.
            now: The current instant.

        Returns:
            A connection that can send now, or `None`.
        """
        best: BrokerConnection | None = None
        is_connecting = False
        candidates: list[BrokerAddress] = []
        if not addresses:
            return None
        offset = self._random(len(addresses))
        for index in range(len(addresses)):
            address = addresses[(offset + index) % len(addresses)]
            node = self._node_at(address, now)
            connection = None if node is None else node.connection
            if connection is None:
                candidates.append(address)
            elif connection.can_send(now):
                if best is None or len(connection.in_flight) < len(best.in_flight):
                    best = connection
            elif not connection.is_ready:
                is_connecting = True
        if best is None and not is_connecting:
            self._connect_any(candidates, now)
        return best

    def retain(self, node_ids: Collection[int]) -> None:
        """Forget nodes that are not among these, as soon as they have no open connection.

        Call it when metadata changed: otherwise a cluster whose brokers come and go under new ids would fill
        the map of nodes.
        """
        for node_id, node in list(self._nodes.items()):
            node.is_retained = node_id in node_ids
            self._forget_unused(node_id, node)

    def close(self, connection_id: int, reason: str, now: float) -> None:
        """Abort a connection. `connection_lost` returns its requests."""
        connection = self._by_id.get(connection_id)
        if connection is not None:
            connection.close(reason, LossCause.REQUESTED)
            self._note_end(connection, now)

    def close_all(self, reason: str, now: float) -> None:
        """Abort every connection, and open no more. Each still gets its `connection_lost`."""
        self._is_closed = True
        for connection in self._by_id.values():
            connection.close(reason, LossCause.REQUESTED)
            self._note_end(connection, now)
        self._wakeups.clear()
        self.offloads.forget_all()

    # The driver's facts

    def offloaded(self, ticket: int, outcome: object, now: float) -> None:
        """Accept the outcome of a login's offloaded work: a result or an exception."""
        self.offloads.ended(ticket, outcome, now)
        self._note_changes(now)

    def _note_changes(self, now: float) -> None:
        """Note ends and logins: a login can succeed or fail at any time, not only when bytes arrive."""
        for connection in self._by_id.values():
            if not connection.is_open:
                self._note_end(connection, now)
            elif connection.is_ready:
                self._note_ready(connection, now)

    def _note_ready(self, connection: BrokerConnection, now: float) -> None:
        """Reset the node's failures when its connection becomes ready. Later calls do nothing."""
        node = self._nodes[connection.node_id]
        if node.ready_id == connection.connection_id:
            return
        node.ready_id = connection.connection_id
        self.negotiations += 1
        if connection.is_encrypted and connection.authentication is None:
            self._metrics.authenticated(True, False, 0.0, now)
        node.failed_attempts, node.last_error, node.silent_since = 0, None, None
        self._fatal_errors.pop(connection.node_id, None)

    def connection_made(self, connection_id: int, now: float) -> None:
        """Accept that the transport is open."""
        connection = self._by_id.get(connection_id)
        if connection is None or not connection.is_open:
            return
        self._metrics.connections_created.record(1, now)
        connection.connection_made(now)
        self._nodes[connection.node_id].failed_setups = 0
        self._note_changes(now)  # making its channel may have failed

    def receive_data(self, connection_id: int, data: bytes, now: float) -> list[Completed]:
        """Accept bytes from the broker.

        Returns:
            The answers, in the order of the requests. Bytes that are not Kafka's protocol close the
            connection, and its `connection_lost` returns the unanswered requests.
        """
        connection = self._by_id.get(connection_id)
        if connection is None:
            return []
        was_ready, had_answered = connection.is_ready, connection.has_answered
        completed = connection.receive_data(data, now)
        if not connection.is_open:
            self._note_end(connection, now)
            return completed
        if connection.is_ready and not was_ready:
            self._note_ready(connection, now)
        if connection.has_answered and not had_answered:
            self._nodes[connection.node_id].has_answered()
        if connection.throttled_until > now:
            self._wakeups.schedule(connection.node_id, connection.throttled_until)
        return completed

    def writable(self, connection_id: int, now: float) -> list[InFlightRequest]:
        """Accept that the transport holds none of our bytes any more.

        Returns:
            Requests without a response that are done with this (acks=0).
        """
        connection = self._by_id.get(connection_id)
        if connection is None:
            return []
        done = connection.writable(now)
        if not connection.is_open:
            self._note_end(connection, now)
        return done

    def connection_lost(self, connection_id: int, error: BaseException | None, now: float) -> Lost | None:
        """Accept that the connection is lost, or could not be opened.

        Args:
            connection_id: The connection's id.
            error: The reason, if the driver has one; `None` if the peer or the client closed it.
            now: The current instant.

        Returns:
            The connection with its requests in flight; `None` for an unknown one.
        """
        connection = self._by_id.pop(connection_id, None)
        if connection is None:
            return None
        if connection.connected_at is not None:
            self._metrics.connections_closed.record(1, now)
        if connection.set_up is not None:
            connection.set_up.take_turn(now)  # the last bytes may contain the reason
        requests = connection.lost(error)
        self._note_end(connection, now)
        self._drop_effects(connection_id)
        cause = connection.cause if connection.cause is not None else LossCause.DISCONNECTED
        return Lost(connection, requests, cause, connection.reason)

    # Time

    def next_timer(self) -> float | None:
        """Return when to call `handle_timer`; `None`: no timer is set."""
        if self._turns.since:
            return self._turns.next_at()
        deadline = self._deadlines.next_at()
        wakeup = self._wakeups.next_at()
        if self.login is not None and self.login.timer_at < inf:
            wakeup = self.login.timer_at if wakeup is None else min(wakeup, self.login.timer_at)
        if deadline is None or wakeup is None:
            return wakeup if deadline is None else deadline
        return min(deadline, wakeup)

    def handle_timer(self, now: float) -> list[int]:
        """Abort connections that timed out, and close idle ones.

        Returns:
            Nodes whose throttling or back-off is over (invariant 6).
        """
        turn = self._turns.first(now)
        if turn is not None:
            connection = self._by_id[turn]
            assert connection.set_up is not None
            connection.set_up.take_turn(now)
            if not connection.is_open:
                self._note_end(connection, now)
        due = self._deadlines.pop_due(now)
        for connection_id in due:
            self._by_id[connection_id].handle_timer(now)
        if self.login is not None and self.login.timer_at <= now:
            self.login.handle_timer(now)
        if due or self.login is not None:
            self._note_changes(now)
        awake: list[int] = []
        for node_id in self._wakeups.pop_due(now):
            again_at = self._waits_until(node_id)
            if again_at > now:
                self._wakeups.schedule(node_id, again_at)
            else:
                awake.append(node_id)
        return awake

    def _waits_until(self, node_id: int) -> float:
        node = self._nodes.get(node_id)
        if node is None:
            return -inf
        return node.next_attempt_at if node.connection is None else node.connection.throttled_until

    def _node_at(self, address: BrokerAddress, now: float) -> Node | None:
        """Return the node's state, or `None`; close a connection to a former address of the node."""
        node = self._nodes.get(address.node_id)
        if node is None:
            return None
        node.is_retained = True
        if (node.address.host, node.address.port) == (address.host, address.port):
            return node
        connection = node.connection
        if connection is not None:
            connection.close(
                f"node {address.node_id} moved from {connection.address.host}:{connection.address.port} "
                f"to {address.host}:{address.port}",
                LossCause.ADDRESS_CHANGED,
            )
            self._note_end(connection, now)
        self._fatal_errors.pop(address.node_id, None)
        self._nodes[address.node_id] = Node(address)
        return self._nodes[address.node_id]

    def _connect(self, address: BrokerAddress, now: float) -> None:
        node = self._nodes.setdefault(address.node_id, Node(address))
        self._last_connection_id += 1
        security = self._security
        channels = None if security is None else security.channels
        sensors = self._metrics.node(address.node_id)
        sensors.in_flight = partial(self.in_flight_to, address.node_id)
        sensors.silent_for = partial(self.silent_for, address.node_id)
        connection = BrokerConnection(
            self._last_connection_id,
            address,
            self._settings,
            self.effects,
            self._deadlines,
            sensors,
            None if channels is None else channels.open,
            self._turns,
        )
        if security is not None and security.sasl is not None and self.login is not None:
            connection.authentication = Authentication(
                connection,
                security.sasl,
                self._settings.client_id,
                self.login,
                self.offloads,
                self._jitter,
                self._metrics,
            )
        self._by_id[connection.connection_id] = connection
        node.connection = connection
        self._wakeups.cancel(address.node_id)
        connection.connect(
            now,
            self._backoffs.setup.backoff(node.failed_setups),
            None if channels is None else channels.prepare,
        )

    def _connect_any(self, candidates: list[BrokerAddress], now: float) -> None:
        """Connect to the candidate that was tried longest ago, or schedule a wake-up for the next one due."""
        chosen: BrokerAddress | None = None
        for address in candidates:
            if not self.can_connect(address.node_id, now):
                continue
            if chosen is None or self._last_ended_at(address) < self._last_ended_at(chosen):
                chosen = address
        if chosen is not None:
            self._connect(chosen, now)
        elif candidates and not self._is_closed:
            first = min(candidates, key=lambda address: self._nodes[address.node_id].next_attempt_at)
            self._wakeups.schedule(first.node_id, self._nodes[first.node_id].next_attempt_at)

    def _last_ended_at(self, address: BrokerAddress) -> float:
        node = self._nodes.get(address.node_id)
        return -inf if node is None else node.last_ended_at

    def _note_end(self, connection: BrokerConnection, now: float) -> None:
        """Start the node's back-off after the end of its open connection. Later calls do nothing."""
        node = self._nodes.get(connection.node_id)
        if node is None or node.connection is not connection:
            return
        if connection.cause in (LossCause.REQUEST_TIMEOUT, LossCause.SETUP_TIMEOUT):
            node.silent_since = node.unanswered_since()
        node.connection = None
        node.last_ended_at = now
        node.next_attempt_at = now + node.pause_after(connection.error, self._backoffs)
        if isinstance(connection.error, TlsError) and connection.is_encrypted and not connection.api_versions:
            self._metrics.authentication_failed(True, now)
        node.failed_attempts += 1
        if connection.connected_at is None:
            node.failed_setups += 1
        if connection.cause is not LossCause.IDLE:
            node.last_error = connection.reason
        if isinstance(connection.error, UnsupportedVersionError):
            self._fatal_errors[connection.node_id] = connection.error
        self._forget_unused(connection.node_id, node)

    def _forget_unused(self, node_id: int, node: Node) -> None:
        if not node.is_retained and node.connection is None:
            del self._nodes[node_id]
            self._fatal_errors.pop(node_id, None)
            self._wakeups.cancel(node_id)

    def _drop_effects(self, connection_id: int) -> None:
        """Keep invariant 4, in place: the driver holds the deque."""
        kept = [effect for effect in self.effects if effect.connection_id != connection_id]
        if len(kept) != len(self.effects):
            self.effects.clear()
            self.effects.extend(kept)
