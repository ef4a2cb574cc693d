"""What a broker knows of a connection, and what the cluster remembers of requests.

Made by `model`; users see both through `FakeCluster.connections` and `FakeCluster.requests`.
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
        at: When, in the clock of the model's caller (the event loop's, under `FakeCluster`).
        is_throttled: Whether it arrived while its connection was throttled, where a client should be silent.
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
    """What the brokers were asked: counts of everything, details of the last 10,000 requests."""

    __slots__ = ("_counts", "_entries")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._entries: deque[ReceivedRequest] = deque(maxlen=_REMEMBERED_REQUESTS)

    def count(self, api: int | None = None) -> int:
        """How many requests of `api` arrived; of all APIs without it."""
        return self._counts.total() if api is None else self._counts[api]

    def entries(self, api: int | None = None) -> list[ReceivedRequest]:
        """The last requests, oldest first."""
        return [entry for entry in self._entries if api in (None, entry.api_key)]

    def times(self, api: int | None = None) -> list[float]:
        """When the last requests arrived."""
        return [entry.at for entry in self.entries(api)]

    def clear(self) -> None:
        """Forget everything so far."""
        self._counts.clear()
        self._entries.clear()

    def add(self, entry: ReceivedRequest) -> None:
        """Called by the model."""
        self._counts[entry.api_key] += 1
        self._entries.append(entry)


@final
@dataclass(slots=True, eq=False)
class BrokerSideConnection:
    """One connection as its broker sees it.

    Attributes:
        client_id: As the last request had it.
        requests: How many arrived.
        login: Who has logged in, and how far a login is; `None` where none is asked for.
        channel: The broker's end of TLS; `None` without.
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
