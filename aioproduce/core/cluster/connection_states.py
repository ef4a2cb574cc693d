"""The states of one connection, why one ends, and what is equal for all of a producer.

Used by `core.cluster.broker_connection`. `docs/reference/states.md` has the table drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias, final

from aioproduce.core.cluster.finalized_features import FinalizedFeatures
from aioproduce.core.state_table import StateTable


class ConnectionState(Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    ENCRYPTING = "encrypting"
    """The handshake of its channel is under way."""
    NEGOTIATING = "negotiating"
    """Which versions of each API the broker speaks."""
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    """It takes no request, and is READY again when the login has ended (KIP-368)."""
    CLOSING = "closing"
    """`Close` was emitted; the requests in flight wait for the driver's `connection_lost`."""
    CLOSED = "closed"


ConnectionEvent: TypeAlias = Literal[
    "connected",
    "connected for TLS",
    "encrypted",
    "negotiated",
    "negotiated for a login",
    "logging in again",
    "authenticated",
    "closed by us",
    "lost",
]

CONNECTION_STATES: Final[StateTable[ConnectionState, ConnectionEvent]] = StateTable(
    "the connection",
    {
        ConnectionState.CONNECTING: {
            "connected": ConnectionState.NEGOTIATING,
            "connected for TLS": ConnectionState.ENCRYPTING,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.ENCRYPTING: {
            "encrypted": ConnectionState.NEGOTIATING,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.NEGOTIATING: {
            "negotiated": ConnectionState.READY,
            "negotiated for a login": ConnectionState.AUTHENTICATING,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.AUTHENTICATING: {
            "authenticated": ConnectionState.READY,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.READY: {
            "logging in again": ConnectionState.REAUTHENTICATING,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.REAUTHENTICATING: {
            "authenticated": ConnectionState.READY,
            "closed by us": ConnectionState.CLOSING,
            "lost": ConnectionState.CLOSED,
        },
        ConnectionState.CLOSING: {"lost": ConnectionState.CLOSED},
        ConnectionState.CLOSED: {},
    },
)


SET_UP: Final = (ConnectionState.READY, ConnectionState.REAUTHENTICATING)
"""The states of a connection that is of use. A tuple: `in` compares by identity, and runs no code of Python."""


class LossCause(Enum):
    """Why a connection ended."""

    DISCONNECTED = "disconnected"
    """By the peer or the network, or it could not be opened."""
    CLOSED_AT_REST = "closed at rest"
    """By the peer, in order and with nothing under way: as a broker does by its own `connections.max.idle.ms`."""
    SETUP_TIMEOUT = "setup timeout"
    REQUEST_TIMEOUT = "request timeout"
    PROTOCOL_ERROR = "protocol error"
    SECURITY = "security"
    """The channel could not be made or broke, or the login failed."""
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
        features: What the whole cluster has agreed on, as far as any of them was told.
    """

    client_id: str
    max_in_flight: int
    request_timeout: float
    connections_max_idle: float
    # Kafka's own default for socket.request.max.bytes, and ample: metadata of 100,000 partitions takes 7 MB.
    max_response_size: int = 100 * 1024 * 1024
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
