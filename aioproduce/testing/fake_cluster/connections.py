"""The broker's view of a connection, and the cluster's log of requests.

Created by `model`; users see both through `FakeCluster.connections` and `FakeCluster.requests`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from aioproduce.wire.framing import FrameReader

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.effects import Close, Send
    from aioproduce.testing.fake_cluster.exchange import Exchange
    from aioproduce.testing.fake_cluster.sasl_server import SaslSession
    from aioproduce.testing.fake_cluster.secured import ServerChannel
    from aioproduce.wire.reader import RequestHeader

# socket.request.max.bytes
_MAX_REQUEST_BYTES: Final = 104_857_600
_REMEMBERED_REQUESTS: Final = 10_000


class ReceivedRequest(NamedTuple):
    """One request as it arrived.

    Attributes:
        at: The time, on the clock of the model's caller (the event loop's, under `FakeCluster`).
        is_throttled: Whether it arrived while its connection was throttled, when a client should send nothing.
    """

    api_key: int
    api_version: int
    broker_id: int
    connection_id: int
    correlation_id: int
    client_id: str | None
    size: int
    at: float
    is_throttled: bool


@final
class RequestLog:
    """The received requests: counts of everything, details of the last 10,000."""

    __slots__ = ("_counts", "_entries")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._entries: deque[ReceivedRequest] = deque(maxlen=_REMEMBERED_REQUESTS)

    def count(self, api: int | None = None) -> int:
        """Return how many requests of `api` arrived; by default of all APIs."""
        return self._counts.total() if api is None else self._counts[api]

    def entries(self, api: int | None = None) -> list[ReceivedRequest]:
        """Return the last requests, oldest first."""
        return [entry for entry in self._entries if api in (None, entry.api_key)]

    def times(self, api: int | None = None) -> list[float]:
        """Return when the last requests arrived."""
        return [entry.at for entry in self.entries(api)]

    def clear(self) -> None:
        """Clear the log."""
        self._counts.clear()
        self._entries.clear()

    def add(self, entry: ReceivedRequest) -> None:
        """Add a request; called by the model."""
        self._counts[entry.api_key] += 1
        self._entries.append(entry)


@final
@dataclass(slots=True, eq=False)
class BrokerSideConnection:
    """One connection on the broker's side.

    Attributes:
        client_id: The client id of the last request.
        requests: The number of requests.
        login: The state of the login; `None` if none is required.
        channel: The broker's end of TLS; `None` without TLS.
    """

    connection_id: int
    broker_id: int
    opened_at: float
    client_id: str | None = None
    requests: int = 0
    framer: FrameReader = field(default_factory=lambda: FrameReader(_MAX_REQUEST_BYTES))
    frames: deque[tuple[RequestHeader, memoryview]] = field(default_factory=deque)
    in_progress: Exchange | None = None
    is_serving: bool = False
    unread: list[bytes] = field(default_factory=list)
    is_reading: bool = True
    throttled_until: float = 0.0
    quota_paid_until: float = float("-inf")
    outbox: deque[tuple[float, Send | Close]] = field(default_factory=deque)
    login: SaslSession | None = None
    channel: ServerChannel | None = field(default=None, repr=False)
    handshake_left: int | None = None
