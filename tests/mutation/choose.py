"""Which tests are run against a mutant, and in which order.

1. Only tests that reach the block of statements that is changed; others cannot fail by it.
2. The folders in the order of `TESTS`. Within each come first the tests that killed another mutant of the function,
   then files that are named after the module, then one case of each test before a second, then the quickest.
3. As many as fit into a budget of seconds. What survives them can be run against all (`--thorough`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from tests.mutation.session import by_probe
from tests.mutation.targets import TESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.mutation.mutants import Mutant
    from tests.mutation.session import Recorded
    from tests.reach.probes import Probes

SLOWEST: Final = 4.0
"""A test that costs more seconds is not used."""


class Choice:
    """Chooses tests, and remembers which ones killed."""

    def __init__(self, probes: Probes, recorded: Mapping[str, Recorded], budget: float) -> None:
        self._probes = probes
        self._recorded = recorded
        self._budget = budget
        self._killers: defaultdict[str, set[str]] = defaultdict(set)
        self._by_probe: dict[str, dict[int, list[str]]] = {}
        self._case: dict[str, int] = {}
        count: Counter[str] = Counter()
        for name in sorted(recorded, key=lambda each: recorded[each].cost):
            self._case[name] = count[name.partition("[")[0]]
            count[name.partition("[")[0]] += 1

    def block(self, mutant: Mutant) -> int | None:
        """The probe of the block that the mutant changes."""
        module = f"aioproduce.{mutant.module}"
        _, first = self._probes.modules[module]
        before = [
            (line, first + offset)
            for offset, (function, line) in enumerate(self._probes.places[module])
            if function == mutant.function and line <= mutant.line
        ]
        return max(before)[1] if before else None

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests for a mutant, in the order to run them."""
        module = f"aioproduce.{mutant.module}"
        if module not in self._by_probe:
            _, first = self._probes.modules[module]
            end = first + len(self._probes.places[module])
            self._by_probe[module] = by_probe(self._recorded, first, end)
        block = self.block(mutant)
        reaching = self._by_probe[module].get(block, []) if block is not None else []
        stem = mutant.module.rpartition(".")[2]
        usable = [name for name in reaching if self._recorded[name].cost <= SLOWEST]
        killers = self._killers[mutant.unit]
        usable.sort(key=lambda name: self._rank(name, stem, has_killed=name in killers))
        return self._within_budget(usable)

    def killed(self, mutant: Mutant, test: str) -> None:
        """A test failed by a mutant."""
        self._killers[mutant.unit].add(test)

    def _rank(self, name: str, stem: str, *, has_killed: bool) -> tuple[int, bool, bool, int, float]:
        tier = next(place for place, folder in enumerate(TESTS) if name.startswith(folder))
        is_elsewhere = f"test_{stem}" not in name
        return tier, not has_killed, is_elsewhere, self._case[name], self._recorded[name].cost

    def _within_budget(self, names: list[str]) -> list[str]:
        chosen: list[str] = []
        spent = 0.0
        for name in names:
            spent += self._recorded[name].cost
            if spent > self._budget and chosen:
                break
            chosen.append(name)
        return chosen

    def limits(self, name: str) -> tuple[float, float]:
        """How long a test may take against a mutant: of processor time, and by the clock."""
        line = self._recorded[name]
        return 5 + 10 * line.cpu, 10 + 10 * line.wall
