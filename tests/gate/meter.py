"""Who pays for each stretch of time: a test, a fixture that several tests share, or pytest itself.

Used by the plugin (`plugin.py`). Time is divided at borders, which `enter`, `cut` and `leave` are, and every
stretch between two of them has one payer: the innermost that was entered. So nothing is counted twice, and
what a shared fixture costs is not the cost of the test that asked for it first.

1. A process that a shared fixture started (a broker, a JVM) is the fixture's: its work is paid for by the
   tests that use the fixture, while one runs, and by the fixture at all other times.
2. A process that a test left running belongs to the shared fixture whose processes the test used (a broker
   that was killed and restarted). If it used none, the process has no owner, and the test that runs at the
   same time pays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.gate.measure import Stretch

GUESSED_WRONG: Final = 0.5
"""By what share the estimate of the run queue is too small at most."""


@dataclass(slots=True, eq=False)
class Unit:
    """A payer, and what it has paid, in seconds.

    Attributes:
        name: A test's node id; for a fixture that a module shares, the module's with the fixture's name.
        row: Where its costs are summed up: a directory, a named group, a session's fixture.
        is_limited: Whether one unit alone may cost too much.
        count: Tests; 0 for all else.
        surely: The part of `waiting` that is there however wrong the estimate of the run queue is.
    """

    name: str
    row: str
    is_limited: bool = False
    count: int = 0
    cpu: float = 0.0
    waiting: float = 0.0
    surely: float = 0.0
    wall: float = 0.0


class Readable(Protocol):
    """What a meter asks: `tests.gate.measure.Tree`."""

    def read(self) -> Stretch:
        """Return what happened since the last call."""

    def adopt(self, owner: object) -> bool:
        """Give new processes to an owner."""


class Meter:
    """Divides what a tree of processes costs among units."""

    def __init__(self, tree: Readable, rest: Unit) -> None:
        """Begin; `rest` pays while nobody else does, for the time before this as well."""
        self._tree = tree
        self._rest = rest
        self._stack: list[Unit] = []
        self._used: list[Unit] = []
        rest.cpu += time.process_time()
        tree.read()

    def enter(self, unit: Unit) -> None:
        """From now on this unit pays, until it is left."""
        self.cut()
        self._stack.append(unit)

    def leave(self) -> None:
        """The unit that was entered last pays no longer."""
        self.cut()
        self._stack.pop()

    def enter_test(self, unit: Unit, uses: Iterable[Unit]) -> None:
        """Enter a test, whose fixtures' processes work for it."""
        self.enter(unit)
        self._used = list(uses)

    def leave_test(self) -> None:
        """Leave the test; what it left running goes to the first of the fixtures that it used."""
        self.leave()
        self._tree.adopt(self._used[0] if self._used else None)
        self._used = []

    def leave_fixture(self, unit: Unit) -> bool:
        """Leave a shared fixture that has been set up; say whether it has processes of its own."""
        self.leave()
        has_processes = self._tree.adopt(unit)
        if has_processes:
            self._used.append(unit)
        return has_processes

    def cut(self) -> None:
        """End a stretch: the payer pays for it."""
        stretch = self._tree.read()
        payer = self._stack[-1] if self._stack else self._rest
        busy = stretch.cpu + stretch.queue + stretch.stolen
        payer.cpu += stretch.cpu
        payer.wall += stretch.wall
        for owner, cpu, queue in stretch.living:
            if isinstance(owner, Unit) and owner is not payer and owner not in self._used:
                owner.cpu += cpu
            else:
                payer.cpu += cpu
                busy += cpu + queue
        payer.waiting += max(0.0, stretch.wall - busy)
        payer.surely += max(0.0, stretch.wall - busy - stretch.guessed * GUESSED_WRONG)
