"""One request on its way through the model, and what becomes of it.

Made by `model`; given to the handlers of every API, which answer it at once (they return the body), later
(`Outcome.LATER`, then `Answer`), or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias, final

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.faults import Fault


class Outcome(Enum):
    """What a handler does instead of returning an answer."""

    LATER = auto()
    """The handler keeps the exchange and answers it in its own time."""
    NO_ANSWER = auto()
    """The request has no answer (Produce with acks=0)."""
    CLOSE = auto()
    """The broker closes the connection."""


@final
@dataclass(slots=True, eq=False)
class Exchange:
    """A decoded request, and whom to answer."""

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
"""An answer under kio's field names, of all versions; `encoding` picks what the version has."""

Handler: TypeAlias = Callable[[Exchange, float], Body | Outcome]
"""(exchange, now) -> the answer, or what happens instead."""

Answer: TypeAlias = Callable[[Exchange, Body, float], None]
"""(exchange, answer, now): for handlers that said LATER. An exchange whose connection is gone is ignored."""
