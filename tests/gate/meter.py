"""Who pays for each stretch of time: a test, a fixture that several tests share, or pytest itself.

Used by the plugin (`plugin.py`). Time is divided at borders, which `enter`, `cut` and `leave` are, and every
stretch between two of them has one payer: the innermost that was entered. So nothing is counted twice, and
what a shared fixture costs is not the cost of the test that asked for it first.

1. A process that a shared fixture started (a broker, a JVM) is the fixture's: its work is paid for by the
   tests that use the fixture, while one runs, and by the fixture at all other times.
2. A process that a test left running belongs to the shared fixture whose processes the test used (a broker
   that was killed and restarted). If it used none, the process has no owner, and the test that runs at the
   same time pays.
3. A processor that is shared with other machines doubles and halves its speed within a run. So each stretch of
   time is also paid in reference loops, at the speed of the processor at that time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.gate.measure import Stretch

GUESSED_WRONG: Final = 0.5
"""By what share the estimate of the run queue is too small at most."""
_LOOP: Final = 30_000
"""Turns of the reference loop: one or two milliseconds."""


@dataclass(slots=True, eq=False)
class Unit:
    """A payer, and what it has paid, in seconds.

    Attributes:
        name: A test's node id; for a fixture that a module shares, the module's with the fixture's name.
        row: Where its costs are summed up: a directory, a named group, a session's fixture.
        is_limited: Whether one unit alone may cost too much.
        count: Tests; 0 for all else.
        surely: The part of `waiting` that is there however wrong the estimate of the run queue is.
        loops: How many reference loops the processor could have done in that processor time.
    """

    name: str
    row: str
    is_limited: bool = False
    count: int = 0
    cpu: float = 0.0
    waiting: float = 0.0
    surely: float = 0.0
    wall: float = 0.0
    loops: float = 0.0

    def pay(self, cpu: float, reference_s: float) -> None:
        """Pay processor time, in seconds, of which a reference loop took `reference_s` then."""
        self.cpu += cpu
        self.loops += cpu / reference_s


@final
class Speed:
    """How fast the processor is at the moment: what a fixed piece of work takes.

    Args:
        every_s: How old a measurement may be, in seconds.

    Attributes:
        reference_s: Processor time of the last measurement, in seconds: the middle one of three tries.
    """

    __slots__ = ("_at", "_every_s", "reference_s")

    def __init__(self, every_s: float = 2.0) -> None:
        """Measure for the first time."""
        self._every_s = every_s
        self._measure()

    def between(self) -> float:
        """Return what the loop takes since the last call: the mean of before and now."""
        before = self.reference_s
        if time.monotonic() - self._at >= self._every_s:
            self._measure()
        return (before + self.reference_s) / 2

    def _measure(self) -> None:
        tries = []
        for _ in range(3):
            began = time.thread_time()
            sum(number * number for number in range(_LOOP))
            tries.append(time.thread_time() - began)
        self.reference_s = sorted(tries)[1]
        self._at = time.monotonic()


class Readable(Protocol):
    """What a meter asks: `tests.gate.measure.Tree`."""

    def read(self) -> Stretch:
        """Return what happened since the last call."""

    def adopt(self, owner: object) -> bool:
        """Give new processes to an owner."""


class Speedometer(Protocol):
    """What a meter asks: `Speed`."""

    def between(self) -> float:
        """Return what a reference loop took since the last call."""


class Meter:
    """Divides what a tree of processes costs among units."""

    def __init__(self, tree: Readable, rest: Unit, speed: Speedometer) -> None:
        """Begin; `rest` pays while nobody else does, for the time before this as well."""
        self._tree = tree
        self._rest = rest
        self._speed = speed
        self._stack: list[Unit] = []
        self._used: list[Unit] = []
        rest.pay(time.process_time(), speed.between())
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
        reference_s = self._speed.between()
        payer = self._stack[-1] if self._stack else self._rest
        busy = stretch.cpu + stretch.queue + stretch.stolen
        payer.pay(stretch.cpu, reference_s)
        payer.wall += stretch.wall
        for owner, cpu, queue in stretch.living:
            if isinstance(owner, Unit) and owner is not payer and owner not in self._used:
                owner.pay(cpu, reference_s)
            else:
                payer.pay(cpu, reference_s)
                busy += cpu + queue
        payer.waiting += max(0.0, stretch.wall - busy)
        payer.surely += max(0.0, stretch.wall - busy - stretch.guessed * GUESSED_WRONG)
