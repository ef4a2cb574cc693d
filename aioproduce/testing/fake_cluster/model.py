"""The brokers of a cluster as one model without I/O: events in, effects out, `now` an argument.

Used by `server` (real sockets) and by simulated networks. The events are `connection_opened`, `receive_data`,
`connection_closed` and `handle_timer`. After each, the caller executes `effects`, and returns at `next_timer()`.

Invariants:
1. The same events at the same times give the same effects: no clock, no randomness, no unordered iteration.
2. A connection is served as Kafka does it: one request at a time, answers in the order of requests, and the next
   request is not read while one waits (a long poll, a join).
3. Any bytes from a client lead to an answer or to a closed connection, never to an exception.
4. Requests to a stalled broker are kept, neither processed nor answered, until it resumes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from kio.serial.errors import OutOfBoundValue

from aioproduce.errors import ProtocolError
from aioproduce.testing.fake_cluster import cluster_apis
from aioproduce.testing.fake_cluster.apis import BrokerApis
from aioproduce.testing.fake_cluster.connections import BrokerSideConnection, ReceivedRequest, RequestLog
from aioproduce.testing.fake_cluster.effects import Effect, SetReading
from aioproduce.testing.fake_cluster.encoding import encode_response
from aioproduce.testing.fake_cluster.exchange import Body, Exchange, Handler, Outcome
from aioproduce.testing.fake_cluster.faults import AnswerFault, Faults
from aioproduce.testing.fake_cluster.outgoing import Outgoing
from aioproduce.testing.fake_cluster.sasl_server import (
    SASL_VERSIONS,
    Admission,
    SaslServer,
    SaslSession,
    illegal_state,
)
from aioproduce.testing.fake_cluster.secured import SecuredConnections
from aioproduce.testing.fake_cluster.timers import Action, Timers
from aioproduce.wire.api import ApiKey
from aioproduce.wire.reader import RequestHeader, decode_request, decode_request_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.testing.fake_cluster.groups import GroupCoordinator
    from aioproduce.testing.fake_cluster.partition import PartitionState
    from aioproduce.testing.fake_cluster.pending_offsets import PendingOffsets
    from aioproduce.testing.fake_cluster.secured import ServerChannels
    from aioproduce.testing.fake_cluster.state import ClusterState
    from aioproduce.testing.fake_cluster.telemetry import TelemetryCollector
    from aioproduce.testing.fake_cluster.transaction_coordinator import TransactionCoordinator


# quota.window.size.seconds, of which Kafka averages eleven: how much may arrive at once.
_QUOTA_WINDOW: Final = 1.0


@final
class ClusterModel:
    """A whole cluster.

    Args:
        state: Brokers and topics.
        epoch_ms: The wall clock, in milliseconds since the epoch, where `now` is 0.

    Attributes:
        effects: What to do to sockets, in order; the caller empties it.
        produce_quota: Bytes per second that each connection may produce (Kafka counts them by user and client id).
            Clients that exceed it get `throttle_time_ms`, and are not read meanwhile. `None` means no limit.
        telemetry: The metrics that the cluster requests of clients (KIP-714), and those received.
        groups: All consumer groups.
        offsets: Their committed and pending offsets.
        transactions: All transactional ids, and their coordinators.
        wake: Called when a call other than an event (a call on `faults`) created work for `handle_timer`.
    """

    def __init__(self, state: ClusterState, *, epoch_ms: int) -> None:
        self.state = state
        self.effects: deque[Effect] = deque()
        self.requests: RequestLog = RequestLog()
        self.faults: Faults = Faults(self._plan_fault_change, self._plan_reset, self._end_sessions)
        self.connections_opened: int = 0
        self.produce_quota: float | None = None
        self.wake: Callable[[], None] = lambda: None
        self.epoch_ms = epoch_ms
        self._now = 0.0
        self._is_in_fact = False
        self._connections: dict[int, BrokerSideConnection] = {}
        self._timers = Timers()
        self._outgoing = Outgoing(self._connections, self.effects, self._timers, self.faults)
        self._sasl: SaslServer | None = None
        self._asks_for_login = False
        self._apis = BrokerApis(
            state,
            self.faults,
            self._timers,
            wall_ms=self.wall_ms,
            answer=self._answer,
            described=self._described,
            plan=self._plan,
        )
        self._views = self._apis.views
        self._versions = self._apis.versions
        self.telemetry: TelemetryCollector = self._apis.telemetry
        self.groups: GroupCoordinator = self._apis.groups
        self.offsets: PendingOffsets = self._apis.offsets
        self.transactions: TransactionCoordinator = self._apis.transactions
        self._handlers: dict[int, Handler] = {
            **self._apis.handlers(),
            ApiKey.SASL_HANDSHAKE: lambda exchange, now: self._logins.handshake(
                self._connections[exchange.connection_id].login, exchange, now
            ),
            ApiKey.SASL_AUTHENTICATE: lambda exchange, now: self._logins.authenticate(
                self._connections[exchange.connection_id].login, exchange, now
            ),
        }
        state.changed = self._partition_changed
        state.described = self._described

    # Events

    def connection_opened(self, broker_id: int, now: float) -> int:
        """Handle that a client connected to a broker.

        Returns:
            The connection's id.
        """
        self._now = now
        self.connections_opened += 1
        connection = BrokerSideConnection(self.connections_opened, broker_id, now)
        self._connections[connection.connection_id] = connection
        if self._outgoing.secured is not None:
            self._outgoing.secured.opened(connection)
        if self._asks_for_login:
            connection.login = SaslSession()
        self._update_reading(connection)
        return connection.connection_id

    def receive_data(self, connection_id: int, data: bytes, now: float) -> None:
        """Handle received bytes; those of a closed connection are ignored."""
        self._now = now
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        self._is_in_fact = True
        self._receive(connection, data, now)
        self._is_in_fact = False

    def connection_closed(self, connection_id: int, now: float) -> None:
        """Handle that the client closed the connection."""
        self._now = now
        self._connections.pop(connection_id, None)

    def handle_timer(self, now: float) -> None:
        """Do everything that is due."""
        self._now = now
        self._is_in_fact = True
        self._timers.run_due(now)
        self._is_in_fact = False

    def next_timer(self) -> float | None:
        """Return when `handle_timer` has something to do."""
        return self._timers.next_at()

    def broker_stopped(self, broker_id: int, now: float) -> None:
        """Handle that a broker's process ended: its connections are gone, others lead its partitions."""
        self._now = now
        self._is_in_fact = True
        self._outgoing.reset_all(broker_id)
        self.state.set_running(broker_id, False)
        self._apis.brokers_changed(now)
        self._is_in_fact = False

    def broker_started(self, broker_id: int, now: float) -> None:
        """Handle that a broker is back, as a follower, or as leader of partitions without a leader."""
        self._now = now
        self._is_in_fact = True
        self.state.set_running(broker_id, True)
        self._apis.brokers_changed(now)
        self._is_in_fact = False

    # Inspection and settings

    def secure(self, channels: ServerChannels | None, sasl: SaslServer, *, asks_for_login: bool) -> None:
        """Make all listeners use TLS, require a login, or both; called before a client connects.

        Args:
            channels: Creates the brokers' ends of TLS; `None`: no TLS.
            sasl: The logins.
            asks_for_login: Whether a login is required; if not, SaslHandshake is answered with ILLEGAL_SASL_STATE.
        """
        if channels is not None:
            self._outgoing.secured = SecuredConnections(channels, self.faults, self.effects.append)
        self._sasl, self._asks_for_login = sasl, asks_for_login
        self.set_api_versions(SASL_VERSIONS)

    def wall_ms(self, now: float) -> int:
        """Return the brokers' wall clock, in milliseconds since the epoch."""
        return self.epoch_ms + int(now * 1000)

    @property
    def connections(self) -> list[BrokerSideConnection]:
        """The open connections, oldest first."""
        return list(self._connections.values())

    def set_api_versions(
        self, versions: Mapping[int, tuple[int, int] | None], broker: int | None = None
    ) -> None:
        """Change which versions brokers advertise and accept; `None` removes an API."""
        for broker_id in self._versions if broker is None else (broker,):
            own = self._versions[broker_id]
            for api, supported in versions.items():
                if supported is None:
                    own.pop(api, None)
                else:
                    own[api] = supported

    @property
    def metadata_delay(self) -> float:
        """Seconds until changes appear in the brokers' answers to Metadata; 0 by default."""
        return self._views.delay

    @metadata_delay.setter
    def metadata_delay(self, seconds: float) -> None:
        self._views.set_delay(seconds, self._now)

    # Serving

    def _receive(self, connection: BrokerSideConnection, data: bytes, now: float) -> None:
        if self.faults.is_stalled(connection.broker_id):
            connection.unread.append(data)
            return
        if self._outgoing.secured is not None:
            plaintext = self._outgoing.secured.decrypt(connection, data)
            if plaintext is None:
                self._outgoing.close(connection, is_reset=False)
                return
            data = plaintext
        try:
            frames = connection.framer.feed(data)
            arrived = [(self._note(connection, frame, now), frame) for frame in frames]
        except ProtocolError:
            self._outgoing.close(connection, is_reset=False)
            return
        connection.frames.extend(arrived)
        self._serve(connection, now)
        if connection.framer.error is not None:
            self._outgoing.close(connection, is_reset=False)

    def _note(self, connection: BrokerSideConnection, frame: memoryview, now: float) -> RequestHeader:
        header = decode_request_header(frame)
        connection.client_id = header.client_id
        connection.requests += 1
        self.requests.add(
            ReceivedRequest(
                api_key=header.api_key,
                api_version=header.api_version,
                broker_id=connection.broker_id,
                connection_id=connection.connection_id,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
                size=len(frame),
                at=now,
                is_throttled=now < connection.throttled_until,
            )
        )
        return header

    def _serve(self, connection: BrokerSideConnection, now: float) -> None:
        """Process requests until one has to wait. Not recursive: an answer inside returns to this loop."""
        if connection.is_serving:
            return
        connection.is_serving = True
        while self._can_serve(connection, now):
            self._handle(connection, *connection.frames.popleft(), now)
        connection.is_serving = False

    def _can_serve(self, connection: BrokerSideConnection, now: float) -> bool:
        return (
            bool(connection.frames)
            and connection.in_progress is None
            and now >= connection.throttled_until
            and connection.connection_id in self._connections
            and not self.faults.is_stalled(connection.broker_id)
            and (connection.login is None or not connection.login.is_failed)
        )

    def _handle(
        self, connection: BrokerSideConnection, header: RequestHeader, frame: memoryview, now: float
    ) -> None:
        broker_id = connection.broker_id
        supported = self._versions[broker_id].get(header.api_key)
        fault = self.faults.take_answer_fault(header.api_key, broker_id)
        if fault is not None and fault.kind in (AnswerFault.RESET_BEFORE, AnswerFault.LATE):
            if fault.kind is AnswerFault.LATE:
                late = bytes(frame)
                self._timers.call_at(now + fault.seconds, lambda at: self._arrive_late(broker_id, late, at))
            self._outgoing.close(connection, is_reset=True)
            return
        if supported is None or not supported[0] <= header.api_version <= supported[1]:
            self._refuse_version(connection, header, now)
            return
        admission = self._admit(connection, header, now)
        if admission is Admission.CLOSED:
            return
        try:
            request = decode_request(frame)
        except ProtocolError:
            self._outgoing.close(connection, is_reset=False)
            return
        exchange = Exchange(
            connection.connection_id,
            broker_id,
            request.api_key,
            request.api_version,
            request.correlation_id,
            request.client_id,
            request.body,
            fault,
            max(
                self.faults.take_throttle(request.api_key, broker_id),
                self._over_quota(connection, request.api_key, len(frame), now),
            ),
        )
        connection.in_progress = exchange
        outcome: Body | Outcome
        if admission is Admission.ILLEGAL:
            outcome = illegal_state(exchange) or Outcome.CLOSE
        else:
            outcome = self._handlers[request.api_key](exchange, now)
        if outcome is Outcome.CLOSE:
            self._outgoing.close(connection, is_reset=False)
        elif outcome is Outcome.NO_ANSWER:
            connection.in_progress = None
            self._mute(connection, exchange.throttle, now)
            if fault is not None and fault.kind is AnswerFault.RESET_AFTER:
                self._outgoing.close(connection, is_reset=True)
        elif isinstance(outcome, Mapping):
            self._answer(exchange, outcome, now)

    def _arrive_late(self, broker_id: int, frame: bytes, now: float) -> None:
        """Process a request whose connection is gone, through one that nobody reads from."""
        if not self.state.brokers[broker_id].is_running or self._outgoing.secured is not None:
            return
        late = self._connections[self.connection_opened(broker_id, now)]
        self._receive(late, len(frame).to_bytes(4, "big") + frame, now)
        if not late.unread:  # a stalled broker reads it later
            self._connections.pop(late.connection_id, None)

    @property
    def _logins(self) -> SaslServer:
        assert self._sasl is not None, "who has no logins does not speak their APIs"
        return self._sasl

    def _admit(self, connection: BrokerSideConnection, header: RequestHeader, now: float) -> Admission:
        """Return whether the connection's login allows a request; close the connection if necessary."""
        login = connection.login
        if login is None:
            return Admission.SERVED
        was_over = login.principal is not None
        admission = self._logins.admit(login, header.api_key, now)
        if admission is Admission.CLOSED:
            self._outgoing.close_later(connection, now, 0.0 if was_over else self._logins.failed_delay)
        return admission

    def _over_quota(self, connection: BrokerSideConnection, api: int, size: int, now: float) -> float:
        """Return the seconds until a connection is within its quota again, with a second's worth to spare."""
        if self.produce_quota is None or api != ApiKey.PRODUCE:
            return 0.0
        paid_until = max(connection.quota_paid_until, now - _QUOTA_WINDOW) + size / self.produce_quota
        connection.quota_paid_until = paid_until
        return max(0.0, paid_until - now)

    def _mute(self, connection: BrokerSideConnection, seconds: float, now: float) -> None:
        """Read nothing more from a connection for a while (KIP-219)."""
        if seconds > 0:
            connection.throttled_until = now + seconds
            self._timers.call_at(connection.throttled_until, lambda at: self._serve_if_open(connection, at))

    def _refuse_version(self, connection: BrokerSideConnection, header: RequestHeader, now: float) -> None:
        """Close the connection for an unsupported version, as Kafka does, except for ApiVersions (KIP-511)."""
        versions = self._versions[connection.broker_id]
        if header.api_key != ApiKey.API_VERSIONS or ApiKey.API_VERSIONS not in versions:
            self._outgoing.close(connection, is_reset=False)
            return
        body = cluster_apis.unsupported_api_versions(versions)
        self._outgoing.post(
            connection, encode_response(ApiKey.API_VERSIONS, 0, header.correlation_id, body), now
        )

    # Answering

    def _answer(self, exchange: Exchange, body: Body, now: float) -> None:
        connection = self._connections.get(exchange.connection_id)
        if connection is None:
            return
        assert connection.in_progress is exchange, "a handler answers once"
        connection.in_progress = None
        if exchange.throttle > 0:
            body = {**body, "throttle_time": exchange.throttle}
            self._mute(connection, exchange.throttle, now)
        fault = exchange.answer_fault
        correlation_id = exchange.correlation_id
        if fault is not None and fault.kind is AnswerFault.WRONG_CORRELATION_ID:
            correlation_id = (correlation_id + 1_000_003) & 0x7FFF_FFFF
        try:
            frame = encode_response(exchange.api_key, exchange.api_version, correlation_id, body)
        except OutOfBoundValue:
            # A name from a newer version that is too long for the two length bytes of this one.
            self._outgoing.close(connection, is_reset=False)
            return
        if fault is None:
            self._outgoing.post(connection, frame, now)
        else:
            self._outgoing.post_faulty(connection, fault, frame, now)
        if connection.login is not None and connection.login.is_failed:
            self._outgoing.close_later(connection, now, self._logins.failed_delay)
        self._serve(connection, now)

    # Connections

    def _end_sessions(self, broker_id: int | None) -> None:
        for connection in self.connections:
            if connection.login is not None and broker_id in (None, connection.broker_id):
                connection.login.ends_at = float("-inf")

    def _serve_if_open(self, connection: BrokerSideConnection, now: float) -> None:
        if connection.connection_id in self._connections:
            self._serve(connection, now)

    # Changes

    def _described(self) -> None:
        if self._views.delay > 0:
            self._plan(self._views.changed)

    # Calls on `faults` and `state` have no time, and come from outside or amid a request: `handle_timer` executes
    # their consequences.

    def _partition_changed(self, partition: PartitionState) -> None:
        # At once, because the next change may hide this one.
        self._apis.partition_changed(partition)
        if partition.tracked is not None or self._apis.has_markers:
            self._plan(lambda at: self._apis.changed_partition(partition, at))

    def _plan_fault_change(self) -> None:
        self._views.faults_changed(self._now)
        self._plan(self._faults_changed)

    def _plan_reset(self, broker_id: int | None) -> None:
        self._plan(lambda _: self._outgoing.reset_all(broker_id))

    def _plan(self, action: Action) -> None:
        self._timers.call_at(self._now, action)
        if not self._is_in_fact:
            self.wake()

    def _faults_changed(self, now: float) -> None:
        self._apis.faults_changed(now)
        for connection in self.connections:
            self._update_reading(connection)
            self._outgoing.flush(connection, now)
            self._serve_if_open(connection, now)
            unread, connection.unread = connection.unread, []
            for data in unread:
                if connection.connection_id in self._connections:
                    self._receive(connection, data, now)

    def _update_reading(self, connection: BrokerSideConnection) -> None:
        is_reading = not self.faults.is_stalled(connection.broker_id)
        if is_reading != connection.is_reading:
            connection.is_reading = is_reading
            self.effects.append(SetReading(connection.connection_id, is_reading))
