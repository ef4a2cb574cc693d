"""One request within the model, and its outcome.

Created by `model`; passed to the handlers of every API, which answer it at once (by returning the body), later
(`Outcome.LATER`, then `Answer`), or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias, final

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.faults import Fault


class Outcome(Enum):
    """What a handler may return instead of an answer."""

    LATER = auto()
    """The handler keeps the exchange and answers it later."""
    NO_ANSWER = auto()
    """The request has no answer (Produce with acks=0)."""
    CLOSE = auto()
    """The broker closes the connection."""


@final
@dataclass(slots=True, eq=False)
class Exchange:
    """A decoded request, and its connection."""

    connection_id: int
    broker_id: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Mapping[str, Any]
    answer_fault: Fault | None = None
    throttle: float = 0.0


Body: TypeAlias = Mapping[str, Any]
"""An answer with kio's field names of all versions; `encoding` selects those of the version."""

Handler: TypeAlias = Callable[[Exchange, float], Body | Outcome]
"""(exchange, now) -> the answer, or an `Outcome`."""

Answer: TypeAlias = Callable[[Exchange, Body, float], None]
"""(exchange, answer, now), for handlers that returned LATER. An exchange without a connection is ignored."""
