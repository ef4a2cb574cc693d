"""Which tests are run against a mutant: those that reach its block, the nearest and quickest first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.mutation.choose import SLOWEST, Choice
from tests.mutation.mutants import Mutant
from tests.mutation.session import Recorded

PROBES: Any = SimpleNamespace(
    modules={"aioproduce.core.retry": ("", 100)},
    places={
        "aioproduce.core.retry": [("Wait.next", 10), ("Wait.next", 12), ("Wait.next", 15), ("Wait.reset", 20)]
    },
)


def recorded(test: str, *probes: int, cost: float = 0.1, outcome: str = "passed") -> Recorded:
    return Recorded(test, outcome, cost, cost, list(probes))


def mutant(line: int, function: str = "Wait.next") -> Mutant:
    return Mutant("name", "core.retry", Path("retry.py"), function, function, line, "hash", 0, "number", 0)


def choice(*tests: Recorded, budget: float = 100.0) -> Choice:
    return Choice(PROBES, {test.test: test for test in tests}, budget)


def test_a_line_belongs_to_the_last_probe_before_it_in_its_function() -> None:
    chosen = choice()
    assert [chosen.block(mutant(line)) for line in (10, 11, 12, 14, 15, 19)] == [100, 100, 101, 101, 102, 102]
    assert chosen.block(mutant(21, "Wait.reset")) == 103
    assert chosen.block(mutant(9)) is None


def test_only_tests_that_reach_the_block_and_pass_and_are_not_slow() -> None:
    chosen = choice(
        recorded("tests/unit/test_a.py::test_it", 100, 101),
        recorded("tests/unit/test_a.py::test_elsewhere", 100, 102),
        recorded("tests/unit/test_a.py::test_skipped", 101, outcome="skipped"),
        recorded("tests/unit/test_a.py::test_slow", 101, cost=SLOWEST + 0.1),
    )
    assert chosen.tests(mutant(12)) == ["tests/unit/test_a.py::test_it"]
    assert chosen.tests(mutant(21, "Wait.reset")) == []


def test_the_nearest_and_quickest_come_first_and_killers_before_them() -> None:
    chosen = choice(
        recorded("tests/simulation/test_s.py::test_it", 100, cost=0.01),
        recorded("tests/drivers/test_d.py::test_it", 100, cost=0.02),
        recorded("tests/unit/test_other.py::test_it", 100, cost=0.01),
        recorded("tests/unit/test_retry.py::test_two[b]", 100, cost=0.03),
        recorded("tests/unit/test_retry.py::test_two[a]", 100, cost=0.02),
        recorded("tests/unit/test_retry.py::test_one", 100, cost=0.5),
    )
    in_order = [
        "tests/unit/test_retry.py::test_two[a]",
        "tests/unit/test_retry.py::test_one",
        "tests/unit/test_retry.py::test_two[b]",
        "tests/unit/test_other.py::test_it",
        "tests/drivers/test_d.py::test_it",
        "tests/simulation/test_s.py::test_it",
    ]
    assert chosen.tests(mutant(10)) == in_order
    chosen.killed(mutant(10), in_order[3])
    chosen.killed(mutant(10), in_order[5])
    assert chosen.tests(mutant(10)) == [in_order[3], *in_order[:3], *in_order[4:]]


def test_a_budget_takes_as_many_as_fit_and_one_at_least() -> None:
    tests = [
        recorded(f"tests/unit/test_a.py::test_{number}", 100, cost=1.0 + number / 10) for number in range(5)
    ]
    assert len(choice(*tests, budget=3.5).tests(mutant(10))) == 3
    assert len(choice(*tests, budget=0.5).tests(mutant(10))) == 1
