"""The states of a producer and the transitions between them; `life` uses the table."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from aioproduce.core.state_table import StateTable


class ProducerState(Enum):
    """The state of a producer."""

    NEW = auto()
    RUNNING = auto()
    CLOSING = auto()
    CLOSED = auto()
    DIED = auto()


ProducerEvent: TypeAlias = Literal["started", "closing", "closed", "sender died"]

PRODUCER_STATES: Final[StateTable[ProducerState, ProducerEvent]] = StateTable(
    "the producer",
    {
        ProducerState.NEW: {"started": ProducerState.RUNNING, "closed": ProducerState.CLOSED},
        ProducerState.RUNNING: {"closing": ProducerState.CLOSING, "sender died": ProducerState.DIED},
        ProducerState.CLOSING: {
            "closing": ProducerState.CLOSING,  # another task calls close() and waits for the same end
            "closed": ProducerState.CLOSED,
            "sender died": ProducerState.DIED,
        },
        ProducerState.CLOSED: {},
        ProducerState.DIED: {},
    },
)
