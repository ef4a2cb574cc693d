"""What is too much: rows against their budget, tests against their limits; and what people are told of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gate import ledger
from tests.gate.__main__ import main
from tests.gate.ledger import Budget, Limits, Row
from tests.gate.meter import Unit

LIMITS = Limits()
ENVIRONMENT = {"python": "CPython 3.11.7", "machine": "Linux x86_64, 2 processors", "reference_s": 0.005}


def units_of(row: str, *costs: tuple[float, float]) -> list[Unit]:
    return [
        Unit(f"{row}/test_it.py::test_{number}", row, True, 1, cpu=cpu, waiting=waiting, surely=waiting)
        for number, (cpu, waiting) in enumerate(costs)
    ]


def judged(units: list[Unit], cpu: float, waiting: float) -> list[str]:
    budget = Budget({units[0].row: Row(cpu_s=cpu, waiting_s=waiting)})
    return ledger.judge(units, budget, LIMITS).findings


@pytest.mark.parametrize(
    ("cpu", "waiting", "words"),
    [
        (15.0, 15.0, []),
        (15.5, 15.0, ["15.5 s of CPU, 10.0 s are recorded"]),
        (15.0, 15.5, ["15.5 s of waiting, 10.0 s are recorded"]),
        (99.0, 99.0, ["99.0 s of CPU", "99.0 s of waiting"]),
    ],
)
def test_a_row_may_cost_half_as_much_again(cpu: float, waiting: float, words: list[str]) -> None:
    units = [Unit("tests/unit/test_it.py::test", "tests/unit", cpu=cpu, waiting=waiting, surely=waiting)]

    found = judged(units, 10.0, 10.0)

    assert len(found) == len(words)
    for finding, said in zip(found, words, strict=True):
        assert finding.startswith("tests/unit: ")
        assert said in finding


@pytest.mark.parametrize(("recorded", "measured", "is_found"), [(0.1, 3.0, False), (0.1, 3.2, True)])
def test_a_small_row_does_not_fail_by_noise(recorded: float, measured: float, is_found: bool) -> None:
    units = [Unit("a test", "tests/unit", cpu=measured)]

    assert bool(judged(units, recorded, 0.0)) is is_found


def test_a_row_that_is_not_recorded_has_a_budget_of_nothing() -> None:
    (found,) = ledger.judge([Unit("a test", "tests/new", cpu=3.1)], Budget(), LIMITS).findings

    assert found.startswith("tests/new: 3.1 s of CPU, 0.0 s are recorded")


def test_the_message_names_the_ten_costliest() -> None:
    units = units_of("tests/cli", *((0.1 * number, 0.0) for number in range(20)))

    (found,) = judged(units, 1.0, 0.0)

    lines = found.splitlines()
    assert lines[0] == (
        "tests/cli: 19.0 s of CPU, 1.0 s are recorded, and more than 1.5 x that fails. Its costliest:"
    )
    assert [line.split("::")[1] for line in lines[1:11]] == [f"test_{number}" for number in range(19, 9, -1)]
    assert len(lines) == 11


@pytest.mark.parametrize(
    ("cpu", "waiting", "findings", "warnings"),
    [(2.0, 3.0, 0, 0), (2.1, 3.1, 0, 2), (4.0, 6.0, 0, 2), (4.1, 3.0, 1, 0), (2.0, 6.1, 1, 0)],
)
def test_one_test_alone(cpu: float, waiting: float, findings: int, warnings: int) -> None:
    units = units_of("tests/cli", (cpu, waiting))

    verdict = ledger.judge(units, Budget({"tests/cli": Row(cpu_s=100, waiting_s=100)}), LIMITS)

    assert (len(verdict.findings), len(verdict.warnings)) == (findings, warnings)
    for said in (*verdict.findings, *verdict.warnings):
        assert said.startswith("tests/cli/test_it.py::test_0: ")


def test_extended_and_native_are_not_judged() -> None:
    units = [Unit("a", "extended tests/cli", cpu=99), Unit("b", "extended kafka", waiting=99, surely=99)]
    units += [Unit("c", "native", cpu=99)]

    assert ledger.judge(units, Budget(), LIMITS) == ledger.Verdict()


@pytest.mark.parametrize(("reference_s", "slowness"), [(0.010, 2.0), (0.005, 1.0), (0.001, 1.0)])
def test_how_much_slower_the_processor_was(reference_s: float, slowness: float) -> None:
    row = Row(cpu_s=3.0, loops=3.0 / reference_s)

    assert Budget({}, ENVIRONMENT).slowness(row) == pytest.approx(slowness)
    assert Budget().slowness(row) == 1
    assert Budget({}, ENVIRONMENT).slowness(Row()) == 1


def test_what_ran_on_a_slow_processor_may_take_longer_and_waits_no_longer() -> None:
    slow = Unit("slow", "tests/cli", True, 1, cpu=7.9, waiting=7.0, surely=7.0, loops=7.9 / 0.010)
    budget = Budget({"tests/cli": Row(cpu_s=2.7, waiting_s=1), "tests/unit": Row(cpu_s=2.7)}, ENVIRONMENT)

    found = ledger.judge([slow], budget, LIMITS).findings
    assert ["of waiting" in finding for finding in found] == [True, True]

    # At the same time another row ran at full speed: it has the recorded budget.
    fast = Unit("fast", "tests/unit", True, 1, cpu=7.9, loops=7.9 / 0.005)
    found = ledger.judge([fast], budget, LIMITS).findings
    assert ["of CPU, 2.7 s are recorded" in found[0], "2 s, and more than 2 x" in found[1]] == [True, True]


def run_of(*ratios: float) -> tuple[list[Unit], Budget]:
    """A run of directories that took so many times their budget, while the reference loop was as recorded."""
    units = [
        Unit(f"test {number}", f"tests/{number}", cpu=10 * ratio, loops=10 * ratio / 0.005)
        for number, ratio in enumerate(ratios)
    ]
    return units, Budget({unit.row: Row(cpu_s=10) for unit in units}, ENVIRONMENT)


def test_a_machine_that_is_slow_at_what_the_reference_loop_lacks_fails_no_row() -> None:
    units, budget = run_of(*(1.2, 1.3, 1.4) * 3, 1.9)

    assert ledger.judge(units, budget, LIMITS).findings == []

    units, budget = run_of(*(1.2, 1.3, 1.4) * 3, 2.0)
    (found,) = ledger.judge(units, budget, LIMITS).findings
    assert found.startswith("tests/9: 20.0 s of CPU, 13.0 s are recorded")


def test_the_middle_row_excuses_half_as_much_again_and_no_more() -> None:
    units, budget = run_of(*(2.3,) * 10)
    assert len(ledger.judge(units, budget, LIMITS).findings) == 10

    units, budget = run_of(*(2.2,) * 10)
    assert ledger.judge(units, budget, LIMITS).findings == []


def test_a_fast_machine_and_a_few_rows_change_no_budget() -> None:
    units, budget = run_of(*(0.5,) * 9, 1.6)
    assert len(ledger.judge(units, budget, LIMITS).findings) == 1

    units, budget = run_of(*(1.6,) * 8)
    assert len(ledger.judge(units, budget, LIMITS).findings) == 8


def test_small_fixtures_share_a_row() -> None:
    units = [
        Unit("x", "fixture kafka", cpu=1),
        Unit("x", "fixture kafka", cpu=1),
        Unit("y", "fixture a", cpu=0.4),
        Unit("z", "fixture b", waiting=0.4, surely=0.4),
    ]

    assert ledger.rows_of(units) == {
        "fixture kafka": Row(cpu_s=2),
        "fixtures below 0.5 s": Row(cpu_s=0.4, waiting_s=0.4, surely_s=0.4),
    }


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    units = [*units_of("tests/cli", (3.0, 0.26)), Unit("x", "extended kafka", cpu=9)]
    units[0].loops = 1.04 / 0.005  # it ran while the processor was slower than in the mean

    ledger.write_budget(tmp_path / "budget.json", units, ENVIRONMENT)

    budget = Budget.read(tmp_path / "budget.json")
    assert budget.rows == {"tests/cli": Row(1, 1.0, 0.3)}
    assert budget.environment == ENVIRONMENT
    assert Budget.read(tmp_path / "none.json") == Budget()


def test_the_table_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    units = [
        Unit("tests/cli/test_a.py::test_one[1]", "tests/cli", True, 1, cpu=1, waiting=2, wall=3),
        Unit("tests/cli/test_a.py::test_one[2]", "tests/cli", True, 1, cpu=1, waiting=2, wall=3),
        Unit("tests/unit/test_b.py::test_two", "tests/unit", True, 1, cpu=5, wall=5),
        Unit("pytest itself", "pytest itself", cpu=7),
    ]
    run, budget = tmp_path / "gate.json", tmp_path / "budget.json"
    for unit in units:
        unit.loops = unit.cpu / 0.005
    ledger.write_report(run, units, ENVIRONMENT, is_whole=False)
    ledger.write_budget(budget, units[1:], ENVIRONMENT)

    def words(*arguments: str) -> list[list[str]]:
        assert main([str(run), "--budget", str(budget), *arguments]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    by_row = words()
    assert ["tests/cli", "2", "2.00", "1.00", "2.00", "4.00", "2.00", "2.00"] in by_row
    assert ["all", "3", "14.00", "4.00"] in by_row
    assert by_row[-1][-4:] == ["not", "a", "whole", "run"]
    assert ["tests/cli/test_a.py", "2", "2.00", "4.00", "6.00"] in words("--by", "file")
    assert ["tests/cli", "2", "2.00", "4.00", "6.00"] in words("--by", "directory")
    assert ["tests/cli/test_a.py::test_one", "2", "2.00", "4.00", "6.00"] in words("--only", "tests/cli")
    assert not any("test_two" in line[0] for line in words("--only", "tests/cli") if line)
    assert ["tests/cli/test_a.py::test_one[1]", "1", "1.00", "2.00", "3.00"] in words("--by", "test")
    assert ["all", "3,", "2", "not", "shown", "3", "7.00", "4.00", "11.00"] in words(
        "--by", "test", "--top", "1"
    )
    assert [each["test"] for each in json.loads(run.read_text())["slowest"]] == [
        "tests/unit/test_b.py::test_two",
        "tests/cli/test_a.py::test_one[1]",
        "tests/cli/test_a.py::test_one[2]",
    ]


def test_a_run_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "gate.json")]) == 2
    assert "--gate-measure writes it" in capsys.readouterr().err


def test_the_budget_names_its_machine_and_is_sorted() -> None:
    told = json.loads(ledger.FILE.read_text())

    assert set(told["environment"]) == {"python", "machine", "reference_s"}
    assert list(told["rows"]) == sorted(told["rows"])
    assert len(ledger.FILE.read_text().splitlines()) == len(told["rows"]) + 5
    assert all(ledger.is_judged(name) for name in told["rows"])
