"""One connection to a broker, without I/O: version negotiation, requests in flight, throttling, time-outs.

`core.cluster.broker_connections` makes connections and passes the driver's facts to them. The sender calls
`can_send` and `send`. A connection emits effects into the deque that all connections share.

Invariants:

1. The state moves only along `CONNECTION_STATES`. A connection that asks for versions sends nothing else.
2. Responses are matched strictly in the order of the requests, by correlation id. A frame that matches no
   request, or does not decode, ends the connection; its request stays in flight until `lost`.
3. A request leaves the connection once: by its response (`receive_data`), by its bytes having left the
   transport where no response is expected (`writable`), or by `lost`. Never by a time-out: that only aborts
   the connection, because the transport may still hold a view of the request's buffers (KAFKA-19012).
4. After `close`, arriving bytes are ignored and nothing is sent.
5. At most one `Send` is outstanding per connection: the next one follows `writable`. So a request without
   response is always the newest one of its connection.
6. The entry in the shared deadlines is never later than `next_deadline()`. It may be earlier: it is refreshed
   when it passes (`handle_timer`), not with each request.
7. The connection's own requests (versions, a login) go one at a time, before any other.
8. With a channel, a `Send` contains the channel's bytes. The request's buffers are free once they are encrypted.
   The channel's own messages are sent when nothing else is outstanding.
9. With a channel, the attempt and its handshake proceed only in the connection's turns
   (`core.cluster.channel_set_up`).

A response may be reported before `writable`, since a driver's reading and writing tasks have no order between
them. The peer has answered the whole request, so its bytes have left the transport.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from aioproduce.core.cluster import connection_words as words
from aioproduce.core.cluster.channel_set_up import ChannelSetUp, Turns
from aioproduce.core.cluster.connection_states import (
    CONNECTION_STATES,
    SET_UP,
    ConnectionEvent,
    ConnectionSettings,
    ConnectionState,
    LossCause,
)
from aioproduce.core.cluster.in_flight_request import Asker, Completed, Encode, InFlightRequest, OwnRequest
from aioproduce.core.cluster.version_negotiation import negotiate
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.effects import Buffer, Close, Connect, Effect, Send
from aioproduce.errors import AuthenticationError, ProducerError, ProtocolError, TlsError
from aioproduce.wire.api import ApiKey, ApiVersions
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.messages import BrokerAddress
from aioproduce.wire.responses import correlation_id_of, decode_body

if TYPE_CHECKING:
    from aioproduce._native.sensors import NodeMetrics
    from aioproduce.core.cluster.authentication import Authentication
    from aioproduce.security.channel import Channel

# Constants of the module, because an attribute of an Enum costs a call.
_PRODUCE: Final = ApiKey.PRODUCE
_READY: Final = ConnectionState.READY
_ENCRYPTING: Final = ConnectionState.ENCRYPTING
_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF
"""An int32 on the wire. Negative ones are legal, but make traces hard to read."""


class BrokerConnection:
    """One TCP connection, from `Connect` to `connection_lost`.

    Attributes:
        connection_id: Its id for the driver.
        address: The broker it goes to.
        state: See `ConnectionState`.
        is_open: Whether it is neither CLOSING nor CLOSED.
        is_ready: Whether it is set up and not closing. It may be busy, throttled, or logging in again.
        in_flight: Requests that await an answer, oldest first.
        unacknowledged: The request that expects no answer and has not left the transport yet.
        is_writable: Whether the transport holds none of our bytes.
        throttled_until: Nothing is sent before this instant.
        api_versions: What was negotiated; `None` before READY.
        connected_at: When the transport was opened; `None` before.
        last_heard_at: When bytes last arrived.
        last_used_at: When bytes last arrived or left. (With a request in flight it is not idle anyway.)
        has_answered: Whether a request other than the connection's own was answered.
        settings: The settings that all connections share.
        setup_timeout: Seconds allowed for the current, or the last, step of the set-up.
        authentication: Its login, or `None`.
        set_up: The set-up of its channel; `None` without TLS.
        channel: Its TLS channel; `None` without TLS, and before the transport is open.
        cause: Why it ended, once CLOSING or CLOSED.
        reason: The cause in words.
        error: The error that ended it, or `None`.
    """

    __slots__ = (
        "_correlation_id",
        "_deadlines",
        "_effects",
        "_frames",
        "_max_in_flight",
        "_own_answered",
        "_own_request",
        "_setup_deadline",
        "_traffic",
        "address",
        "api_versions",
        "authentication",
        "cause",
        "channel",
        "connected_at",
        "connection_id",
        "error",
        "has_answered",
        "in_flight",
        "is_open",
        "is_ready",
        "is_writable",
        "last_heard_at",
        "last_used_at",
        "reason",
        "set_up",
        "settings",
        "setup_timeout",
        "state",
        "throttled_until",
        "unacknowledged",
    )

    def __init__(
        self,
        connection_id: int,
        address: BrokerAddress,
        settings: ConnectionSettings,
        effects: deque[Effect],
        deadlines: Deadlines,
        traffic: NodeMetrics,
        open_channel: Callable[[str], Channel] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._traffic = traffic
        self.channel: Channel | None = None
        self.authentication: Authentication | None = None
        self.has_answered: bool = False
        self.connection_id: int = connection_id
        self.address: BrokerAddress = address
        self.state: ConnectionState = ConnectionState.CONNECTING
        self.is_open: bool = True
        self.is_ready: bool = False
        self.in_flight: deque[InFlightRequest] = deque()
        self.unacknowledged: InFlightRequest | None = None
        self.is_writable: bool = False
        self.throttled_until: float = float("-inf")
        self.api_versions: ApiVersions | None = None
        self.connected_at: float | None = None
        self.last_heard_at: float = float("-inf")
        self.last_used_at: float = float("-inf")
        self.cause: LossCause | None = None
        self.reason: str = ""
        self.error: BaseException | None = None
        self.settings: ConnectionSettings = settings
        self._max_in_flight = settings.max_in_flight
        self._effects = effects
        self.set_up: ChannelSetUp | None = (
            None if open_channel is None else ChannelSetUp(self, open_channel, turns or Turns(), effects)
        )
        self._deadlines = deadlines
        self._frames = FrameReader(settings.max_response_size)
        self._correlation_id = 0
        # The connection's own request while it waits to be sent, and the callback for its answer.
        self._own_request: OwnRequest | None = None
        self._own_answered: Callable[[Any, float], None] | None = None
        self._setup_deadline = inf
        self.setup_timeout: float = 0.0

    @property
    def node_id(self) -> int:
        """The broker's id; negative for a bootstrap server."""
        return self.address.node_id

    @property
    def peer(self) -> str:
        """The broker's name in error messages."""
        # A bootstrap server is only an address until metadata arrives: its node id here is made up.
        node = "bootstrap server" if self.address.node_id < 0 else f"node {self.address.node_id}"
        return f"{self.address.host}:{self.address.port} ({node})"

    @property
    def is_encrypted(self) -> bool:
        """Whether it uses TLS, or will."""
        return self.set_up is not None

    @property
    def pending_count(self) -> int:
        """The number of requests that have not ended, the connection's own included."""
        return len(self.in_flight) + (self.unacknowledged is not None)

    def can_send(self, now: float) -> bool:
        """Return whether `send` may be called: ready, nothing unwritten, room for one more, not throttled."""
        return (
            self.state is _READY
            and self.is_writable
            and len(self.in_flight) < self._max_in_flight
            and self.throttled_until <= now
        )

    def connect(self, now: float, timeout: float, prepare: Callable[[], None] | None = None) -> None:
        """Emit `Connect`, with TLS in its turn. Attempt and handshake end after `timeout` seconds (KIP-601)."""
        self._await_setup(now, timeout)
        attempt = Connect(self.connection_id, self.address.host, self.address.port, timeout, prepare)
        if self.set_up is None:
            self._effects.append(attempt)
        else:
            self.set_up.begin(attempt, now)

    def connection_made(self, now: float) -> None:
        """Accept the open transport: begin TLS if it is wanted, else ask for the broker's versions."""
        if not self.is_open:
            return
        self.connected_at = now
        self.is_writable = True
        if self.set_up is None:
            self._move("connected")
            negotiate(self, self.settings.client_id, now)
        else:
            self._move("connected for TLS")
            self.set_up.want_turn(now)

    def send(
        self,
        api: ApiKey,
        encode: Encode,
        asker: Asker,
        now: float,
        timeout: float | None = None,
        expects_response: bool = True,
        max_version: int | None = None,
    ) -> None:
        """Encode a request in the negotiated version and emit it.

        Args:
            api: The request's API.
            encode: Encodes the request's buffers; if it raises, nothing has changed.
            asker: Receives the answer, or the loss of the connection.
            now: The current instant.
            timeout: Seconds after which the connection is aborted if there is no answer or, if none is
                expected, if the bytes have not left. `request.timeout.ms` by default.
            expects_response: False for a Produce request with acks=0.
            max_version: Highest version to use, if the caller lacks what a later version needs.

        Raises:
            RuntimeError: if `can_send` is false.
            UnsupportedVersionError: if the broker and this client share no version of `api`.
        """
        if not self.can_send(now) or self.api_versions is None:
            raise RuntimeError(f"{self.peer} cannot accept a request now: {self!r}")
        version = self.api_versions.version(api)
        if max_version is not None:
            version = min(version, max_version)
        if timeout is None:
            timeout = self.settings.request_timeout
        self._emit(api, version, encode, asker, now, timeout, expects_response)

    def receive_data(self, data: bytes, now: float, *, in_turn: bool = False) -> list[Completed]:
        """Accept received bytes.

        Answers before a fault in the same bytes count; the fault closes the connection.

        Returns:
            The completed requests, in order.
        """
        completed: list[Completed] = []
        if not self.is_open:
            return completed
        self.last_heard_at = self.last_used_at = now
        if self.state is _ENCRYPTING and not in_turn:
            assert self.set_up is not None
            self.set_up.hear(data, now)
            return completed
        answers = 0
        try:
            if self.channel is not None:
                data = self._decrypt(self.channel, data, now)
            for frame in self._frames.feed(data):
                done = self._handle_frame(frame, now)
                answers += 1
                if done is not None:
                    completed.append(done)
                elif self.cause is not None:
                    return completed  # its login failed
            if self._frames.error is not None:  # after the frames before the fault
                raise self._frames.error
            if self.channel is not None and self.channel.is_ended:
                self.close(*words.describe_end(self))
        except ProtocolError as error:
            fault = words.foreign_protocol(self, data, error)
            self.close(f"{self.peer}: {fault}", LossCause.PROTOCOL_ERROR, fault)
            return completed
        except TlsError as error:
            self.fail(error)
            return completed
        finally:
            self._traffic.received(len(data), answers, now)
        if not self.in_flight:
            self._refresh_deadline()
        return completed

    def writable(self, now: float) -> list[InFlightRequest]:
        """Accept that the transport holds none of our bytes any more.

        Returns:
            The request without an answer that is done with this, if there is one.
        """
        if not self.is_open:
            return []
        self.is_writable = True
        self.last_used_at = now
        if self.channel is not None:
            self.write_channel()
        if self._own_request is not None:
            self._ask_now(now)
        request, self.unacknowledged = self.unacknowledged, None
        if request is None:
            return []
        self._refresh_deadline()
        return [request]

    def close(self, reason: str, cause: LossCause, error: BaseException | None = None) -> None:
        """Emit `Close`, once. The requests in flight stay until `lost`."""
        if not self.is_open:
            return
        self._move("closed by us")
        self.reason, self.cause, self.error = reason, cause, error
        self._deadlines.cancel(self.connection_id)
        if self.set_up is not None:
            self.set_up.end()
        if self.authentication is not None:
            self.authentication.stop()
        self._effects.append(Close(self.connection_id))

    def lost(self, error: BaseException | None) -> list[InFlightRequest]:
        """Accept the loss of the transport.

        Returns:
            Every request that had not ended, in the order of sending.
        """
        if self.is_open:
            is_at_rest = self.state is ConnectionState.READY and not self.pending_count and error is None
            self.cause = LossCause.CLOSED_AT_REST if is_at_rest else LossCause.DISCONNECTED
            self.error = words.security_error_of_loss(self, error) or error
            self.reason = words.describe_loss(self, self.error)
            self._deadlines.cancel(self.connection_id)
            if self.authentication is not None:
                self.authentication.stop()
        self._move("lost")
        requests = [request for request in self.in_flight if request.asker is not None]
        if self.unacknowledged is not None:
            requests.append(self.unacknowledged)  # the newest: invariant 5
        self.in_flight.clear()
        self.unacknowledged = None
        return requests

    def next_deadline(self) -> float | None:
        """Return when to call `handle_timer` if no bytes arrive before; `None`: never."""
        if self.state not in SET_UP:
            return self._setup_deadline if self.is_open else None
        first = self.first_to_expire()
        if first is not None:
            at = first.deadline
        elif self.settings.connections_max_idle >= 0:
            at = self.last_used_at + self.settings.connections_max_idle
        else:
            at = inf
        if self.authentication is not None:
            # A login on a live connection may take until the session ends.
            at = min(at, self.authentication.again_at, self.authentication.ends_at)
        return None if at == inf else at

    def handle_timer(self, now: float) -> None:
        """Close the connection if its deadline has passed, or log in again; else schedule the deadline."""
        if self.authentication is not None and self.is_ready:
            self.authentication.begin_if_due(now)
        deadline = self.next_deadline()
        if deadline is not None and deadline > now:
            self._deadlines.schedule(self.connection_id, deadline)
        elif deadline is not None:
            reason, cause = words.describe_timeout(self, now)
            self.close(reason, cause, words.security_error_of_timeout(self, reason, cause))

    def __repr__(self) -> str:
        return (
            f"<BrokerConnection {self.connection_id} to {self.peer} {self.state.value}, "
            f"{self.pending_count} in flight{'' if self.is_writable else ', not writable'}>"
        )

    # -- the login's calls ---

    def hold(self) -> None:
        """Accept no request until the login has ended; those in flight continue."""
        if self.state is ConnectionState.READY:
            self._move("logging in again")

    def ask(self, request: OwnRequest, now: float) -> None:
        """Send a request of the connection's own as soon as possible.

        Raises:
            UnsupportedVersionError: if the broker and this client share no version of it.
        """
        if self.state is ConnectionState.NEGOTIATING:
            self._await_setup(now, self.settings.request_timeout)
        if request.version is None:  # choose here: `writable` cannot report an unsupported version
            assert self.api_versions is not None
            request = replace(request, version=self.api_versions.version(request.api))
        self._own_request, self._own_answered = request, request.answered
        if self.is_writable:  # else `writable` does it
            self._ask_now(now)

    def authenticated(self) -> None:
        """Accept that the login succeeded."""
        self._move("authenticated")
        self._refresh_deadline()

    def fail(self, error: ProducerError) -> None:
        """Close after a failed login or channel; send the peer an alert if that is possible."""
        if isinstance(error, TlsError | AuthenticationError):
            error.host, error.port = self.address.host, self.address.port
        self.write_channel()
        self.close(f"{self.peer}: {error}", LossCause.SECURITY, error)

    # -- below ---

    def _move(self, event: ConnectionEvent) -> None:
        state = self.state = CONNECTION_STATES.after(self.state, event, self)
        # Kept, not computed: each fact and each request asks.
        self.is_open = state is not ConnectionState.CLOSING and state is not ConnectionState.CLOSED
        self.is_ready = state in SET_UP

    def _await_setup(self, now: float, timeout: float) -> None:
        self.setup_timeout = timeout
        self._setup_deadline = now + timeout
        self._deadlines.schedule(self.connection_id, self._setup_deadline)

    # -- the channel ---

    def _decrypt(self, channel: Channel, data: bytes, now: float) -> bytes:
        plaintext = channel.receive(data)
        if self.state is ConnectionState.ENCRYPTING and channel.is_established:
            self._move("encrypted")
            negotiate(self, self.settings.client_id, now)  # together with the handshake's last bytes
        self.write_channel()
        return plaintext if self.is_open else b""

    def write_channel(self) -> None:
        """Send the channel's own messages: its handshake, a key update."""
        if self.is_writable and self.channel is not None and (data := self.channel.outgoing()):
            self.is_writable = False
            self._effects.append(Send(self.connection_id, [data]))

    # -- requests ---

    def _emit(
        self,
        api: ApiKey,
        version: int,
        encode: Encode,
        asker: Asker | None,
        now: float,
        timeout: float,
        expects_response: bool,
    ) -> None:
        correlation_id = self._correlation_id
        buffers: Sequence[Buffer] = encode(version, correlation_id)
        self._correlation_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        deadline = now + timeout
        request = InFlightRequest(api, version, correlation_id, asker, now, deadline, expects_response)
        if expects_response:
            self.in_flight.append(request)
        else:
            self.unacknowledged = request
        self._deadlines.schedule(self.connection_id, deadline)
        size = 0
        for buffer in buffers:
            size += len(buffer)
        self._traffic.sent(size, now)
        channel = self.channel
        if channel is not None:
            try:
                channel.send(buffers)
            except TlsError as error:
                self.fail(error)
                return
            buffers = [channel.outgoing()]
        self.is_writable = False
        self._effects.append(Send(self.connection_id, buffers))

    def _ask_now(self, now: float) -> None:
        request = self._own_request
        if not self.is_writable or request is None:
            return
        assert request.version is not None, "`ask` chose one"
        self._own_request, timeout = None, self.settings.request_timeout
        self._emit(request.api, request.version, request.encode, None, now, timeout, True)

    def negotiated(self, versions: ApiVersions, now: float) -> None:
        """Accept the broker's versions, and log in if required."""
        self.api_versions = versions
        if self.authentication is None:
            self._move("negotiated")
            return
        self._move("negotiated for a login")
        self._await_setup(now, self.settings.request_timeout)
        self.authentication.begin(now)

    def _handle_frame(self, frame: memoryview, now: float) -> Completed | None:
        correlation_id = correlation_id_of(frame)
        if not self.in_flight:
            raise ProtocolError(f"the broker sent response {correlation_id}, but no request is in flight")
        request = self.in_flight[0]
        if correlation_id != request.correlation_id:
            asked = f"{request.correlation_id} ({request.api.display_name})"
            raise ProtocolError(f"the broker answered request {correlation_id} before the earlier {asked}")
        try:
            response = decode_body(request.api, request.version, frame)
        except ProtocolError as error:
            raise ProtocolError(
                f"the answer to {request.api.display_name} v{request.version} cannot be read: {error}"
            ) from error
        self.in_flight.popleft()
        self._throttle(request, response.throttle, now)
        if request.api is _PRODUCE:
            self._traffic.answered(now - request.sent_at, now)
        if request.asker is not None:
            self.has_answered = True
            return Completed(request, response)
        assert self._own_answered is not None
        self._own_answered(response, now)
        return None

    def _throttle(self, request: InFlightRequest, throttle: float, now: float) -> None:
        if throttle <= 0 or not request.is_throttled_here:
            return
        self.throttled_until = max(self.throttled_until, now + throttle)
        for waiting in self.in_flight:
            waiting.deadline += throttle

    def first_to_expire(self) -> InFlightRequest | None:
        """Return the request with the earliest deadline; `None` if none is in flight."""
        # Not simply the oldest: time-outs may differ. The loop has at most max.in.flight steps, and runs only
        # when a timer fires or the connection falls idle.
        earliest = self.unacknowledged
        for request in self.in_flight:
            if earliest is None or request.deadline < earliest.deadline:
                earliest = request
        return earliest

    def _refresh_deadline(self) -> None:
        """Schedule the deadline: that of an idle connection may be the earlier one."""
        deadline = self.next_deadline()
        if deadline is not None:
            self._deadlines.schedule(self.connection_id, deadline)
