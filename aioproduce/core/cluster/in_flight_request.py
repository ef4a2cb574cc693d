"""A request on its way: what was asked, of whose making, and until when an answer is waited for.

Made by `core.cluster.broker_connection`; the sender gets it back with the answer (`Completed`), or when the
connection is lost. Until then it owns the memory of its buffers (invariant 3 of `core.cluster.broker_connection`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from aioproduce.core.effects import Buffer
from aioproduce.wire.api import ApiKey
from aioproduce.wire.messages import Message

Encode: TypeAlias = Callable[[int, int], Sequence[Buffer]]
"""`(version, correlation_id)` -> the buffers of one whole request, size prefix and header included."""


@final
@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request between `send` and its end (invariant 3).

    Attributes:
        api: What was asked.
        version: In which version.
        correlation_id: Its number on its connection.
        context: The sender's own; passed through.
        sent_at: When it was queued for writing.
        deadline: When it has taken too long. A throttled answer moves it on: the broker works on nothing of
            this connection during the throttle time (KIP-219).
        expects_response: False for a Produce request with acks=0.
    """

    api: ApiKey
    version: int
    correlation_id: int
    context: object
    sent_at: float
    deadline: float
    expects_response: bool


@final
@dataclass(frozen=True, slots=True)
class Completed:
    """A request and its answer."""

    request: InFlightRequest
    response: Message
