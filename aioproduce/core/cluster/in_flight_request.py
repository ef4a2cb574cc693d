"""A request on its way: what was asked, of whose making, and until when an answer is waited for.

Made by `core.cluster.broker_connection`; the Sender gets it back with the answer (`Completed`), or when the
connection is lost, and tells the asker. Until then it owns the memory of its buffers (invariant 3 of
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
"""KIP-219: from these versions on the broker answers at once and mutes the connection afterwards. Before, it
held the answer back for the throttle time itself: waiting again would double it."""


class Asker(Protocol):
    """Who made a request, and hears of its one end."""

    def answered(self, response: Any, now: float) -> bool:
        """The broker answered, or took a request that it does not answer (`None`).

        Args:
            response: The message that answers what was asked: the asker knows which kind that is.
            now: The current instant.

        Returns:
            Whether that was routine: it leaves nothing to look at but room on the connection.
        """

    def lost(self, loss: Lost, now: float) -> None:
        """The connection was lost before an answer came."""


@final
@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request between `send` and its end (invariant 3).

    Attributes:
        api: What was asked.
        version: In which version.
        correlation_id: Its number on its connection.
        asker: Who asked; `None` for a connection's own.
        sent_at: When it was queued for writing.
        deadline: When it has taken too long. A throttled answer moves it on: the broker works on nothing of
            this connection during the throttle time (KIP-219).
        expects_response: False for a Produce request with acks=0.
    """

    api: ApiKey
    version: int
    correlation_id: int
    asker: Asker | None
    sent_at: float
    deadline: float
    expects_response: bool

    @property
    def is_throttled_here(self) -> bool:
        """Whether a throttled answer asks the client to wait, and not the broker has waited."""
        return self.version >= _CLIENT_THROTTLES_SINCE.get(self.api, 0)


@final
@dataclass(frozen=True, slots=True)
class OwnRequest:
    """What a connection asks for its own ends: versions, a login.

    Attributes:
        api: What is asked.
        encode: Makes the request's buffers.
        answered: Is told the answer and the current instant; nobody is told of a loss.
        version: In which version; `None`: in the negotiated one.
    """

    api: ApiKey
    encode: Encode
    answered: Callable[[Any, float], None]
    version: int | None = None


@final
@dataclass(frozen=True, slots=True)
class Completed:
    """A request and its answer."""

    request: InFlightRequest
    response: Message
