"""State machines as tables of states and events.

Used by everything that has a state: a connection, a batch, the producer, telemetry. A caller reports an event, and
the table gives the next state. `docs/reference/states.md` shows the tables.

Invariants:

1. An event that a state does not expect changes nothing and raises: the caller has a bug, and must not go on.
2. Every machine begins in the first state of its table. A state without events is final.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

StateT = TypeVar("StateT", bound="Enum")
EventT = TypeVar("EventT", bound=str)


@final
class StateTable(Generic[StateT, EventT]):
    """The states of one kind of machine, and the events that lead from one to another.

    Args:
        subject: The thing that has these states, for errors.
        moves: By state, by event: the next state.

    Attributes:
        subject: As above.
        moves: As above.

    Example:
        >>> from enum import Enum
        >>> Door = Enum("Door", "OPEN SHUT")
        >>> doors = StateTable("a door", {Door.OPEN: {"push": Door.SHUT}, Door.SHUT: {"pull": Door.OPEN}})
        >>> doors.after(Door.OPEN, "push").name
        'SHUT'
    """

    __slots__ = ("moves", "subject")

    def __init__(self, subject: str, moves: Mapping[StateT, Mapping[EventT, StateT]]) -> None:
        self.subject: str = subject
        self.moves: Mapping[StateT, Mapping[EventT, StateT]] = MappingProxyType(
            {state: dict(events) for state, events in moves.items()}
        )

    @property
    def start(self) -> StateT:
        """The first state of every machine."""
        return next(iter(self.moves))

    def after(self, state: StateT, event: EventT, who: object = None) -> StateT:
        """Return the next state.

        Args:
            state: The machine's present state.
            event: The event.
            who: The machine, for the error.

        Raises:
            RuntimeError: if the state does not expect the event. It is a bug of the caller.
        """
        try:
            return self.moves[state][event]
        except KeyError:
            self.refuse(state, event, who)

    def refuse(self, state: StateT, event: EventT, who: object = None) -> NoReturn:
        """Raise the error of an event that the state does not expect."""
        subject = self.subject if who is None else f"{self.subject} ({who})"
        raise RuntimeError(f"{subject} is {name_of(state)}: {event!r} cannot happen to it now") from None


def name_of(state: Enum) -> str:
    """Return a state in words: `TERMINATING_PUSH_NEEDED` is "terminating push needed"."""
    return state.name.lower().replace("_", " ")
