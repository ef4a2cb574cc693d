"""One connection to one broker, without I/O: version negotiation, requests in flight, throttling, time-outs.

`core.cluster.broker_connections` makes these and passes the driver's facts on to them; the sender calls `can_send`
and `send` on the ones that it is given. What leaves a connection is an effect in the deque that all
connections share.

Invariants:

1. The state moves only along `CONNECTION_STATES`. Who asks for versions (NEGOTIATING) sends nothing else.
2. Responses are matched strictly in the order of the requests, by correlation id. A frame that fits no
   request, or does not decode, ends the connection; its request stays in flight until `lost`.
3. A request leaves the connection once: by its response (`receive_data`), by its bytes having left the
   transport where no response is expected (`writable`), or by `lost`. Never by a time-out: that only aborts
   the connection, because the transport may still hold a view of the request's buffers (KAFKA-19012).
4. After `close` no byte that arrives is looked at, and nothing is sent.
5. At most one `Send` is outstanding per connection: the next one comes after `writable`. So a request
   without response is always the newest one of its connection.
6. The entry in the shared deadlines is never later than `next_deadline()`. It may be earlier: it is
   refreshed when it comes up (`handle_timer`), not with each request.

A response may be reported before `writable` (a driver with one task to read and one to write has no order
between them): the peer has answered the whole request, so its bytes are gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, final

from aioproduce.core.cluster.in_flight_request import Asker, Completed, Encode, InFlightRequest
from aioproduce.core.deadlines import Deadlines
from aioproduce.core.effects import Close, Connect, Effect, Send
from aioproduce.core.state_table import StateTable
from aioproduce.errors import ProtocolError
from aioproduce.metrics import NodeMetrics
from aioproduce.wire.api import CLIENT_VERSIONS, ApiKey, ApiVersions
from aioproduce.wire.error_codes import UNSUPPORTED_VERSION
from aioproduce.wire.framing import FrameReader
from aioproduce.wire.messages import ApiVersionsResponse, BrokerAddress
from aioproduce.wire.requests import encode_api_versions
from aioproduce.wire.responses import correlation_id_of, decode_body

_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF
"""An int32 on the wire; negative ones are legal but help nobody who reads a trace."""

_REQUIRED_APIS: Final = (ApiKey.PRODUCE, ApiKey.METADATA)
"""Without these no record can be sent: refused at negotiation, with the versions, not at a first request."""

_CLIENT_THROTTLES_SINCE: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {ApiKey.PRODUCE: 6, ApiKey.METADATA: 6, ApiKey.API_VERSIONS: 2, ApiKey.INIT_PRODUCER_ID: 1}
)
"""KIP-219: from these versions on the broker answers at once and mutes the connection afterwards. Before, it
held the answer back for the throttle time itself: waiting again would double it."""


class ConnectionState(Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"
    CLOSING = "closing"
    """`Close` was emitted; the requests in flight wait for the driver's `connection_lost`."""
    CLOSED = "closed"


_Event: TypeAlias = Literal["connected", "negotiated", "closed by us", "lost"]

CONNECTION_STATES: Final[StateTable[ConnectionState, _Event]] = StateTable(
    "the connection",
    {
        ConnectionState.CONNECTING: {
            "connected": ConnectionState.NEGOTIATING,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.NEGOTIATING: {
            "negotiated": ConnectionState.READY,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.READY: {"closed by us": ConnectionState.CLOSING, "lost": ConnectionState.CLOSED},
        ConnectionState.CLOSING: {"lost": ConnectionState.CLOSED},
        ConnectionState.CLOSED: {},
    },
)


class LossCause(Enum):
    """Why a connection ended."""

    DISCONNECTED = "disconnected"
    """By the peer or the network, or it could not be opened."""
    CLOSED_AT_REST = "closed at rest"
    """By the peer, in order and with nothing under way: as a broker does by its own `connections.max.idle.ms`."""
    SETUP_TIMEOUT = "setup timeout"
    REQUEST_TIMEOUT = "request timeout"
    PROTOCOL_ERROR = "protocol error"
    IDLE = "idle"
    ADDRESS_CHANGED = "address changed"
    REQUESTED = "requested"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """What is equal for all connections of a producer.

    Attributes:
        client_id: Kafka's `client.id`.
        max_in_flight: Requests sent and not answered, at most.
        request_timeout: Seconds for a request, those of the negotiation included.
        connections_max_idle: Seconds without traffic after which a connection is closed; negative: never.
        max_response_size: Larger frames are a protocol error: they are no answer to anything we ask.
    """

    client_id: str
    max_in_flight: int
    request_timeout: float
    connections_max_idle: float
    # Kafka's own default for socket.request.max.bytes, and ample: metadata of 100,000 partitions takes 7 MB.
    max_response_size: int = 100 * 1024 * 1024


@final
class BrokerConnection:
    """One TCP connection, from `Connect` to `connection_lost`.

    Attributes:
        connection_id: Its identity towards the driver.
        address: The broker it goes to.
        state: See `ConnectionState`.
        in_flight: Requests whose answer is awaited, oldest first.
        unacknowledged: The request that expects no answer and has not left the transport yet.
        is_writable: Whether the transport holds none of our bytes.
        throttled_until: Nothing is sent before this instant.
        api_versions: What was negotiated; `None` before READY.
        connected_at: When the transport was there; `None` before.
        last_used_at: When bytes last came or were last gone. (With a request under way it is not idle anyhow.)
        cause: Why it ended, once CLOSING or CLOSED.
        reason: The same in words.
        error: The error that ended it, where one did.
    """

    __slots__ = (
        "_correlation_id",
        "_deadlines",
        "_effects",
        "_frames",
        "_negotiation_version",
        "_settings",
        "_setup_deadline",
        "_setup_timeout",
        "_traffic",
        "address",
        "api_versions",
        "cause",
        "connected_at",
        "connection_id",
        "error",
        "in_flight",
        "is_writable",
        "last_used_at",
        "reason",
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
        deadlines: Deadlines[int],
        traffic: NodeMetrics,
    ) -> None:
        self._traffic = traffic
        self.connection_id = connection_id
        self.address = address
        self.state = ConnectionState.CONNECTING
        self.in_flight: deque[InFlightRequest] = deque()
        self.unacknowledged: InFlightRequest | None = None
        self.is_writable = False
        self.throttled_until = float("-inf")
        self.api_versions: ApiVersions | None = None
        self.connected_at: float | None = None
        self.last_used_at = float("-inf")
        self.cause: LossCause | None = None
        self.reason = ""
        self.error: BaseException | None = None
        self._settings = settings
        self._effects = effects
        self._deadlines = deadlines
        self._frames = FrameReader(settings.max_response_size)
        self._correlation_id = 0
        # The version to ask for next; None while an answer is awaited and once negotiated.
        self._negotiation_version: int | None = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]
        self._setup_deadline = float("inf")
        self._setup_timeout = 0.0

    @property
    def node_id(self) -> int:
        """The broker's id; negative for a bootstrap server."""
        return self.address.node_id

    @property
    def host(self) -> str:
        """Where it goes to."""
        return self.address.host

    @property
    def port(self) -> int:
        """Where it goes to."""
        return self.address.port

    @property
    def peer(self) -> str:
        """The broker as error messages name it."""
        return f"{self.address.host}:{self.address.port} (node {self.address.node_id})"

    @property
    def is_open(self) -> bool:
        """Whether it is, or is becoming, of use: neither CLOSING nor CLOSED."""
        return self.state is not ConnectionState.CLOSING and self.state is not ConnectionState.CLOSED

    @property
    def is_ready(self) -> bool:
        """Whether versions are negotiated and it is not closing. It may still be busy or throttled."""
        return self.state is ConnectionState.READY

    @property
    def pending_count(self) -> int:
        """Requests that have not ended, ours included."""
        return len(self.in_flight) + (self.unacknowledged is not None)

    def can_send(self, now: float) -> bool:
        """Whether `send` may be called: ready, nothing unwritten, room for one more, not throttled."""
        return (
            self.state is ConnectionState.READY
            and self.is_writable
            and len(self.in_flight) < self._settings.max_in_flight
            and self.throttled_until <= now
        )

    def connect(self, now: float, timeout: float) -> None:
        """Emits `Connect`; the attempt is given up after `timeout` seconds (KIP-601)."""
        self._setup_timeout = timeout
        self._setup_deadline = now + timeout
        self._deadlines.schedule(self.connection_id, self._setup_deadline)
        self._effects.append(Connect(self.connection_id, self.address.host, self.address.port, timeout))

    def connection_made(self, now: float) -> None:
        """The transport is there: asks for the broker's versions."""
        if not self.is_open:
            return
        self._move("connected")
        self.connected_at = now
        self.is_writable = True
        self._negotiate(now)

    def send(
        self,
        api: ApiKey,
        encode: Encode,
        asker: Asker,
        now: float,
        *,
        timeout: float | None = None,
        expects_response: bool = True,
        max_version: int | None = None,
    ) -> None:
        """Encodes a request in the negotiated version and emits it.

        Args:
            api: What is asked.
            encode: Makes the request's buffers; nothing has changed if it raises.
            asker: Hears of the answer, or of the loss of the connection.
            now: The current instant.
            timeout: Seconds after which the connection is aborted if there is no answer; where none is
                expected: if the bytes have not left. `request.timeout.ms` by default.
            expects_response: False for a Produce request with acks=0.
            max_version: Not to be exceeded, where what is known does not fill a later version.

        Raises:
            RuntimeError: `can_send` is false.
            UnsupportedVersionError: The broker and this client share no version of `api`.
        """
        if not self.can_send(now) or self.api_versions is None:
            raise RuntimeError(f"{self.peer} cannot take a request now: {self!r}")
        version = self.api_versions.version(api)
        if max_version is not None:
            version = min(version, max_version)
        if timeout is None:
            timeout = self._settings.request_timeout
        self._emit(api, version, encode, asker, now, timeout, expects_response)

    def receive_data(self, data: bytes, now: float) -> list[Completed]:
        """Takes bytes as they came.

        Answers that came before a fault in the same bytes count; the fault closes the connection.

        Returns:
            What was answered, in the order of the requests.
        """
        completed: list[Completed] = []
        if not self.is_open:
            return completed
        self.last_used_at = now
        answers = 0
        try:
            for frame in self._frames.feed(data):
                done = self._handle_frame(frame, now)
                answers += 1
                if done is not None:
                    completed.append(done)
            if self._frames.error is not None:  # behind the frames that it gave
                raise self._frames.error
        except ProtocolError as error:
            self.close(f"{self.peer}: {error}", LossCause.PROTOCOL_ERROR, error)
            return completed
        finally:
            self._traffic.received(len(data), answers, now)
        if not self.in_flight:
            self._refresh_deadline()
        return completed

    def writable(self, now: float) -> list[InFlightRequest]:
        """The transport holds none of our bytes any more.

        Returns:
            The request that expected no answer and is herewith done, if there is one.
        """
        if not self.is_open:
            return []
        self.is_writable = True
        self.last_used_at = now
        if self.state is ConnectionState.NEGOTIATING and self._negotiation_version is not None:
            self._negotiate(now)
        request, self.unacknowledged = self.unacknowledged, None
        if request is None:
            return []
        self._refresh_deadline()
        return [request]

    def close(self, reason: str, cause: LossCause, error: BaseException | None = None) -> None:
        """Emits `Close`, once. The requests in flight stay until `lost`."""
        if not self.is_open:
            return
        self._move("closed by us")
        self.reason, self.cause, self.error = reason, cause, error
        self._deadlines.cancel(self.connection_id)
        self._effects.append(Close(self.connection_id))

    def lost(self, error: BaseException | None) -> list[InFlightRequest]:
        """The transport is gone.

        Returns:
            Every request that had not ended, in the order in which they were sent.
        """
        if self.is_open:
            is_at_rest = (
                self.state is ConnectionState.READY and not self.in_flight and self.unacknowledged is None
            )
            is_ordinary = is_at_rest and error is None
            self.cause = LossCause.CLOSED_AT_REST if is_ordinary else LossCause.DISCONNECTED
            self.error = error
            self.reason = self._describe_loss(error)
            self._deadlines.cancel(self.connection_id)
        self._move("lost")
        requests = [request for request in self.in_flight if request.asker is not None]
        if self.unacknowledged is not None:
            requests.append(self.unacknowledged)  # the newest: invariant 5
        self.in_flight.clear()
        self.unacknowledged = None
        return requests

    def next_deadline(self) -> float | None:
        """When `handle_timer` would close it if nothing came until then; `None`: never."""
        if self.state in (ConnectionState.CONNECTING, ConnectionState.NEGOTIATING):
            return self._setup_deadline
        if self.state is not ConnectionState.READY:
            return None
        oldest = self._first_to_expire()
        if oldest is not None:
            return oldest.deadline
        if self._settings.connections_max_idle < 0:
            return None
        return self.last_used_at + self._settings.connections_max_idle

    def handle_timer(self, now: float) -> None:
        """Closes it where its deadline has come; else has itself woken then."""
        deadline = self.next_deadline()
        if deadline is None:
            return
        if deadline > now:
            self._deadlines.schedule(self.connection_id, deadline)
            return
        self.close(*self._describe_timeout())

    def __repr__(self) -> str:
        return (
            f"<BrokerConnection {self.connection_id} to {self.peer} {self.state.value}, "
            f"{self.pending_count} in flight{'' if self.is_writable else ', not writable'}>"
        )

    def _move(self, event: _Event) -> None:
        self.state = CONNECTION_STATES.after(self.state, event, self)

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
        buffers = encode(version, correlation_id)
        self._correlation_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        deadline = now + timeout
        request = InFlightRequest(api, version, correlation_id, asker, now, deadline, expects_response)
        if expects_response:
            self.in_flight.append(request)
        else:
            self.unacknowledged = request
        self.is_writable = False
        self._deadlines.schedule(self.connection_id, deadline)
        self._effects.append(Send(self.connection_id, buffers))
        self._traffic.sent(sum(map(len, buffers)), now)

    def _negotiate(self, now: float) -> None:
        version = self._negotiation_version
        if version is None:
            return
        self._setup_timeout = self._settings.request_timeout
        self._setup_deadline = now + self._setup_timeout
        if not self.is_writable:  # `writable` calls again
            return
        self._negotiation_version = None
        client_id = self._settings.client_id
        self._emit(
            ApiKey.API_VERSIONS,
            version,
            lambda version, correlation_id: [encode_api_versions(version, correlation_id, client_id)],
            None,
            now,
            self._setup_timeout,
            True,
        )

    def _handle_frame(self, frame: memoryview, now: float) -> Completed | None:
        correlation_id = correlation_id_of(frame)
        if not self.in_flight:
            raise ProtocolError(f"the broker sent a response ({correlation_id}) that nobody asked for")
        request = self.in_flight[0]
        if correlation_id != request.correlation_id:
            raise ProtocolError(
                f"the broker answered request {correlation_id} where {request.correlation_id} "
                f"({request.api.display_name}) is next"
            )
        try:
            response = decode_body(request.api, request.version, frame)
        except ProtocolError as error:
            raise ProtocolError(
                f"the answer to {request.api.display_name} v{request.version} cannot be read: {error}"
            ) from error
        self.in_flight.popleft()
        self._throttle(request, response.throttle, now)
        if request.api is ApiKey.PRODUCE:
            self._traffic.answered(now - request.sent_at, now)
        if request.asker is not None:
            return Completed(request, response)
        if not isinstance(response, ApiVersionsResponse):
            raise ProtocolError("the broker's answer is not that of ApiVersions")
        self._handle_versions(request, response, now)
        return None

    def _handle_versions(self, request: InFlightRequest, response: ApiVersionsResponse, now: float) -> None:
        if response.error_code == UNSUPPORTED_VERSION and request.version > 0:
            # Brokers from 2.4 on say which versions they have (KIP-511). Each try asks for an older one, so
            # a broker that refuses what it offers does not keep us here.
            _, newest = response.versions.get(ApiKey.API_VERSIONS, (0, 0))
            self._negotiation_version = newest if 0 < newest < request.version else 0
            self._negotiate(now)
            return
        api_versions = ApiVersions.from_response(response)
        for api in _REQUIRED_APIS:
            api_versions.version(api)  # raises, and so ends the connection, where there is none
        self.api_versions = api_versions
        self._move("negotiated")

    def _throttle(self, request: InFlightRequest, throttle: float, now: float) -> None:
        if throttle <= 0 or request.version < _CLIENT_THROTTLES_SINCE.get(request.api, 0):
            return
        self.throttled_until = max(self.throttled_until, now + throttle)
        for waiting in self.in_flight:
            waiting.deadline += throttle

    def _first_to_expire(self) -> InFlightRequest | None:
        # Not simply the oldest: time-outs may differ. At most max.in.flight of them, and only when a timer
        # has come or the connection fell idle.
        earliest = self.unacknowledged
        for request in self.in_flight:
            if earliest is None or request.deadline < earliest.deadline:
                earliest = request
        return earliest

    def _refresh_deadline(self) -> None:
        """The connection may have fallen idle, and that deadline may be the earlier one."""
        deadline = self.next_deadline()
        if deadline is not None:
            self._deadlines.schedule(self.connection_id, deadline)

    def _describe_timeout(self) -> tuple[str, LossCause]:
        if self.state is ConnectionState.CONNECTING:
            return (
                f"no connection to {self.peer} within {self._setup_timeout:g} s "
                f"(socket.connection.setup.timeout.ms)",
                LossCause.SETUP_TIMEOUT,
            )
        if self.state is ConnectionState.NEGOTIATING:
            return (
                f"{self.peer} did not answer ApiVersions within {self._setup_timeout:g} s "
                f"(request.timeout.ms); is it a Kafka listener, and without TLS?",
                LossCause.REQUEST_TIMEOUT,
            )
        request = self._first_to_expire()
        if request is None:
            return (
                f"no traffic with {self.peer} for {self._settings.connections_max_idle:g} s "
                f"(connections.max.idle.ms)",
                LossCause.IDLE,
            )
        took = request.deadline - request.sent_at
        done = "answer" if request.expects_response else "take"
        return (
            f"{self.peer} did not {done} request {request.correlation_id} ({request.api.display_name}) "
            f"within {took:g} s (request.timeout.ms)",
            LossCause.REQUEST_TIMEOUT,
        )

    def _describe_loss(self, error: BaseException | None) -> str:
        cause = (str(error) or type(error).__name__) if error is not None else "closed by the peer"
        if self.state is ConnectionState.CONNECTING:
            return f"cannot connect to {self.peer}: {cause}"
        if self.state is ConnectionState.NEGOTIATING:
            return (
                f"connection to {self.peer} lost before it told its versions: {cause}; "
                f"is it a Kafka listener, and without TLS?"
            )
        if self.cause is LossCause.CLOSED_AT_REST:
            return f"{self.peer} closed its connection, on which nothing was under way"
        return f"connection to {self.peer} lost: {cause}"
