"""The states of a connection, the causes of its end, and the settings that a producer's connections share.

Used by `core.cluster.broker_connection`. `docs/reference/states.md` has the table drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias, final

from aioproduce.core.cluster.finalized_features import FinalizedFeatures
from aioproduce.core.state_table import StateTable


class ConnectionState(Enum):
    """The state of a connection."""

    CONNECTING = "connecting"
    ENCRYPTING = "encrypting"
    """The TLS handshake is under way."""
    NEGOTIATING = "negotiating"
    """The client asks which versions of each API the broker supports."""
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    """It accepts no request, and is READY again after the login (KIP-368)."""
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
"""The states of a usable connection. A tuple: `in` compares by identity and runs no Python code."""


class LossCause(Enum):
    """The cause of a connection's end."""

    DISCONNECTED = "disconnected"
    """The peer or the network ended it, or it could not be opened."""
    CLOSED_AT_REST = "closed at rest"
    """The peer closed it cleanly with no request in flight, as a broker's `connections.max.idle.ms` does."""
    SETUP_TIMEOUT = "setup timeout"
    REQUEST_TIMEOUT = "request timeout"
    PROTOCOL_ERROR = "protocol error"
    SECURITY = "security"
    """TLS failed, or the login failed."""
    IDLE = "idle"
    ADDRESS_CHANGED = "address changed"
    REQUESTED = "requested"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings that all connections of a producer share.

    Attributes:
        client_id: Kafka's `client.id`.
        max_in_flight: Limit of requests sent and not answered.
        request_timeout: Seconds for a request, also for those of the negotiation.
        connections_max_idle: Seconds without traffic after which a connection is closed; negative: never.
        max_response_size: A larger frame is a protocol error.
        features: The cluster's finalized features, as the brokers reported them.
    """

    client_id: str
    max_in_flight: int
    request_timeout: float
    connections_max_idle: float
    # Kafka's default for socket.request.max.bytes. Metadata of 100,000 partitions takes 7 MB.
    max_response_size: int = 100 * 1024 * 1024
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
