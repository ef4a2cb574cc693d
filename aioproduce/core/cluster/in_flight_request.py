"""A request in flight: its API, its asker and its deadline.

Made by `core.cluster.broker_connection`. The Sender receives it with the response (`Completed`) or with the loss of
the connection, and reports that to the asker. Until then it owns the memory of its buffers (invariant 3 of
`core.cluster.broker_connection`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from aioproduce.core.effects import Buffer
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import Message

if TYPE_CHECKING:
    from aioproduce.core.cluster.broker_connections import Lost

Encode: TypeAlias = Callable[[int, int], Sequence[Buffer]]
"""`(version, correlation_id)` -> the buffers of one whole request, size prefix and header included."""


_CLIENT_THROTTLES_SINCE: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {ApiKey.PRODUCE: 6, ApiKey.METADATA: 6, ApiKey.API_VERSIONS: 2, ApiKey.INIT_PRODUCER_ID: 1}
)
"""KIP-219: from these versions on the broker answers at once and mutes the connection afterwards. In earlier
versions it delays the response by the throttle time, so waiting again would double it."""


class Asker(Protocol):
    """The maker of a request, which receives its one outcome."""

    def answered(self, response: Any, now: float) -> bool:
        """Handle the response; `None` if the request expects none and was written.

        Args:
            response: The response message; the asker knows its type.
            now: The current instant.

        Returns:
            Whether that was routine: the only change is room on the connection.
        """

    def lost(self, loss: Lost, now: float) -> None:
        """Handle the loss of the connection before a response."""


class InFlightRequest:
    """A request between `send` and its outcome (invariant 3).

    Attributes:
        api: Its API.
        version: Its version.
        correlation_id: Its correlation id on the connection.
        asker: Its maker; `None` for a connection's own request.
        sent_at: When it was queued for writing.
        deadline: When it times out. A throttled response defers it: the broker processes no request of this
            connection during the throttle time (KIP-219).
        expects_response: False for a Produce request with acks=0.
    """

    __slots__ = ("api", "asker", "correlation_id", "deadline", "expects_response", "sent_at", "version")

    def __init__(
        self,
        api: ApiKey,
        version: int,
        correlation_id: int,
        asker: Asker | None,
        sent_at: float,
        deadline: float,
        expects_response: bool,
    ) -> None:
        self.api: ApiKey = api
        self.version: int = version
        self.correlation_id: int = correlation_id
        self.asker: Asker | None = asker
        self.sent_at: float = sent_at
        self.deadline: float = deadline
        self.expects_response: bool = expects_response

    @property
    def is_throttled_here(self) -> bool:
        """Whether a throttled response asks the client to wait, because the broker did not."""
        return self.version >= _CLIENT_THROTTLES_SINCE.get(self.api, 0)


@final
@dataclass(frozen=True, slots=True)
class OwnRequest:
    """A request of the connection itself: versions or a login.

    Attributes:
        api: Its API.
        encode: Encodes the request's buffers.
        answered: Called with the response and the current instant; not called at a loss.
        version: Its version; `None`: the negotiated one.
    """

    api: ApiKey
    encode: Encode
    answered: Callable[[Any, float], None]
    version: int | None = None


class Completed:
    """A request and its response."""

    __slots__ = ("request", "response")

    def __init__(self, request: InFlightRequest, response: Message) -> None:
        self.request: InFlightRequest = request
        self.response: Message = response
