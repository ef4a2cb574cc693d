"""What a `FaultProxy` does wrong: faults of one request or answer, and the shape of a line.

`server` scripts them by name, `link` asks for them. Nothing in here touches a socket.

Invariants:
1. A request meets at most one fault. Of those that match, the one scripted first goes first, and it is decided
   when the request has been read from the client: which occurrence it hits does not depend on answers.
2. Every random choice comes from the `Random` of one link, seeded by the proxy's seed, the broker and the
   connection's place in the order of opening: the same requests on the same connections meet the same faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.faults.proxy.link import Link

# Correlation ids count up from zero: this one is of no request.
WRONG_ID_OFFSET: Final = 1_000_003


class Direction(Enum):
    """One of the two ways of a link."""

    TO_BROKER = auto()
    TO_CLIENT = auto()


BOTH: Final = (Direction.TO_BROKER, Direction.TO_CLIENT)


class Act(Enum):
    """What becomes of a request or of its answer."""

    RESET_BEFORE = auto()
    """The connection is reset; the broker never sees the request."""
    HOLD = auto()
    """The connection is reset, and the request is kept: `FaultProxy.deliver()` brings it to the broker late."""
    RESET_AFTER = auto()
    """The broker has done its work and answered; the connection is reset instead of the answer."""
    CUT = auto()
    """The first `length` bytes of the answer, its size included, then the connection is closed."""
    SWALLOW = auto()
    """The answer is lost and the connection lives: later answers do come."""
    DELAY = auto()
    """The answer comes `seconds` later, and those behind it after it."""
    WRONG_ID = auto()
    """The right answer, under the correlation id of no request."""
    LENGTH = auto()
    """Four bytes announce `length` bytes; nothing follows."""
    GARBAGE = auto()
    """`payload` instead of the answer, as it is: not even a frame unless it looks like one."""
    CLOSE_AFTER = auto()
    """The right answer, and then the broker's side closes."""


@dataclass(slots=True)
class WireFault:
    """One scripted fault, to be looked at and cancelled.

    Attributes:
        api: Only requests of this API; `None` any.
        broker: Only on the way to this broker; `None` any.
        skip: So many matching requests pass unharmed first.
        remaining: How often it still applies; `None` without end.
        hits: How often it has applied.
        links: The connections on which it has.
        held: The requests that `HOLD` has kept, each with the broker that it was for.
    """

    act: Act
    api: int | None = None
    broker: int | None = None
    skip: int = 0
    remaining: int | None = 1
    hits: int = 0
    length: int = 0
    seconds: float = 0.0
    payload: bytes = b""
    is_reset: bool = False
    links: list[Link] = field(default_factory=list)
    held: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def is_spent(self) -> bool:
        """Whether it never applies again."""
        return self.remaining == 0

    def cancel(self) -> None:
        """Never apply again."""
        self.remaining = 0

    def take(self, api: int, broker: int) -> bool:
        """Whether it applies to this request, which is then counted."""
        if self.is_spent or self.api not in (None, api) or self.broker not in (None, broker):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits += 1
        if self.remaining is not None:
            self.remaining -= 1
        return True


@dataclass(slots=True)
class Chance:
    """Each matching request meets one of some faults with a probability, drawn from its link's random source.

    Attributes:
        probability: Of any fault at all.
        faults: Templates; each is taken with the same probability, and never spent.
        api: Only requests of this API; `None` any.
        hits: How often each act was drawn.
    """

    probability: float
    faults: Sequence[WireFault]
    api: int | None = None
    hits: dict[Act, int] = field(default_factory=dict)

    def draw(self, api: int, rng: Random) -> WireFault | None:
        """The fault of this request; both numbers are drawn from the same source always."""
        is_hit, chosen = rng.random() < self.probability, rng.choice(self.faults)
        if not is_hit or self.api not in (None, api):
            return None
        self.hits[chosen.act] = self.hits.get(chosen.act, 0) + 1
        return chosen


@dataclass(slots=True)
class Shape:
    """How a line carries bytes, one way, until it is changed.

    Attributes:
        slice_bytes: Write so many bytes at a time, with a turn of the loop between; 0 for all at once.
        bytes_per_second: The line's rate; 0 for no limit.
        latency: Seconds from one end to the other.
        jitter: Seconds by which the latency is longer at most; bytes stay in order.
        coalesce: Answers that are written at once, as long as so many are still to come on the connection.
            To the client only, and not with acks=0, where an answer never comes.
    """

    slice_bytes: int = 0
    bytes_per_second: float = 0.0
    latency: float = 0.0
    jitter: float = 0.0
    coalesce: int = 1


class FaultScript:
    """All that is scripted, in its order."""

    __slots__ = ("chances", "faults")

    def __init__(self) -> None:
        self.faults: list[WireFault] = []
        self.chances: list[Chance] = []

    def take(self, api: int, broker: int, rng: Random) -> WireFault | None:
        """Use up the fault of one request: a scripted one, else one by chance."""
        for fault in self.faults:
            if fault.take(api, broker):
                return fault
        for chance in self.chances:
            drawn = chance.draw(api, rng)
            if drawn is not None:
                return drawn
        return None

    def clear(self) -> None:
        """Forget all."""
        for fault in self.faults:
            fault.cancel()
        self.faults.clear()
        self.chances.clear()
