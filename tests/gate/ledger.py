"""What a run cost by directory, what was recorded of it, and whether the one is too far above the other.

Used by the plugin (`plugin.py`) at the end of a run, and by `python -m tests.gate`.

A row is a directory of tests, a named group (`kafka`, `spark`, `browser`: tests with real brokers, a JVM of
Spark, a Chromium), a fixture of the session, or pytest itself. No cost is in two rows.

1. A row fails if its processor time or its waiting is more than `factor` times what `budget.json` says, and
   more than `floor` seconds above it. A row that is not recorded has a budget of zero. Of waiting only that is
   judged which is sure (`measure.py`, invariant 1); it is recorded and printed as it is estimated.
2. A test fails alone if it takes more than `test_factor` times a limit, and is named from the limit on: processor
   time of the same work differs by a third on a machine whose other hyperthread is busy.
3. Tests that are marked `extended` or `native` are measured and not judged: they are no part of the fast
   gate.
4. Recorded processor time is that of one machine at one time. Where a row or a test ran slower, its budget or
   limit of processor time grows in proportion to a reference loop that was measured while it ran (`meter.py`,
   invariant 3); where it ran faster, none shrinks. Waiting is the same everywhere.
5. The reference loop fits the processor's first cache, and tests do not. Where memory or system calls are slow,
   every row is above what the loop foretells. So the middle row's ratio is the machine's (`Budget.in_common`), and
   every budget and limit of processor time grows by it, at most by `factor`. One directory cannot move the
   middle of all.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.gate.meter import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE: Final = Path(__file__).with_name("budget.json")

EXTENDED: Final = "extended "
"""How the rows of extended tests begin."""
NATIVE: Final = "native"
FIXTURE: Final = "fixture "
"""How the rows of a session's fixtures begin."""
SMALL_FIXTURES: Final = "fixtures below 0.5 s"
SMALL_S: Final = 0.5
PYTEST: Final = "pytest itself"

SLOWEST: Final = 50
COSTLIEST: Final = 10
ROWS_OF_A_MACHINE: Final = 9
"""From how many rows on their middle one tells something of the machine, and not of a row."""

REMEDY: Final = (
    "What to do: make it cheaper, or mark what has to stay dear with @pytest.mark.extended(reason), which leaves "
    "it to `make test-full`; if the increase is meant, record it with --gate-record and say why in the commit."
)


@dataclass(slots=True, frozen=True)
class Limits:
    """What one test may cost, and how far a row may be above its budget."""

    cpu: float = 2.0
    waiting: float = 3.0
    factor: float = 1.5
    test_factor: float = 2.0
    floor: float = 3.0


@dataclass(slots=True)
class Row:
    """The sum of some units, in seconds; `loops` as of a unit."""

    tests: int = 0
    cpu_s: float = 0.0
    waiting_s: float = 0.0
    surely_s: float = 0.0
    wall_s: float = 0.0
    loops: float = 0.0

    def add(self, other: Row) -> None:
        """Add another sum to this one."""
        self.tests += other.tests
        self.cpu_s += other.cpu_s
        self.waiting_s += other.waiting_s
        self.surely_s += other.surely_s
        self.wall_s += other.wall_s
        self.loops += other.loops

    def add_unit(self, unit: Unit) -> None:
        """Add what a unit paid."""
        self.add(Row.of(unit))

    @classmethod
    def of(cls, unit: Unit) -> Row:
        """The row of one unit."""
        return cls(unit.count, unit.cpu, unit.waiting, unit.surely, unit.wall, unit.loops)

    def rounded(self, digits: int) -> Row:
        """For a file that people read."""
        figures = (self.cpu_s, self.waiting_s, self.surely_s, self.wall_s, self.loops)
        return Row(self.tests, *(round(value, digits) for value in figures))


@dataclass(slots=True)
class Budget:
    """What was recorded, and by what machine."""

    rows: dict[str, Row] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Budget:
        """Read the file; nothing is recorded if there is none."""
        if not file.exists():
            return cls()
        told = json.loads(file.read_text())
        return cls({name: Row(**figures) for name, figures in told["rows"].items()}, told["environment"])

    def slowness(self, row: Row) -> float:
        """How many times slower than on the recording machine the processor was while a row ran; at least 1."""
        at_its_speed = row.loops * self.environment.get("reference_s", 0.0)
        return max(1.0, row.cpu_s / at_its_speed) if at_its_speed else 1.0

    def in_common(self, rows: Mapping[str, Row], limits: Limits) -> float:
        """How many times its budget the middle row took, which is the machine's doing: 1 to `limits.factor`.

        Small rows, whose ratio is chance, have no vote.
        """
        ratios = [
            row.cpu_s / (recorded.cpu_s * self.slowness(row))
            for name, row in rows.items()
            if (recorded := self.rows.get(name)) is not None and recorded.cpu_s > limits.floor
        ]
        middle = statistics.median(ratios) if len(ratios) >= ROWS_OF_A_MACHINE else 1.0
        return min(limits.factor, max(1.0, middle))


@dataclass(slots=True)
class Verdict:
    """Findings fail the run; warnings are only printed."""

    findings: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def environment(total: Row) -> dict[str, Any]:
    """Name the machine and the Python that a run was measured with.

    Args:
        total: The sum of the run: it tells what the reference loop took on average while the tests ran.
    """
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "reference_s": round(total.cpu_s / total.loops, 6),
    }


def total_of(rows: Iterable[Row]) -> Row:
    """The sum of rows."""
    total = Row()
    for row in rows:
        total.add(row)
    return total


def rows_of(units: Iterable[Unit]) -> dict[str, Row]:
    """Sum up; fixtures that cost little share a row."""
    rows: dict[str, Row] = defaultdict(Row)
    units = list(units)
    for unit in units:
        rows[unit.row].add_unit(unit)
    small = {
        name
        for name, row in rows.items()
        if name.startswith(FIXTURE) and row.cpu_s < SMALL_S and row.waiting_s < SMALL_S
    }
    merged: dict[str, Row] = defaultdict(Row)
    for unit in units:
        merged[SMALL_FIXTURES if unit.row in small else unit.row].add_unit(unit)
    return dict(sorted(merged.items()))


def is_judged(row: str) -> bool:
    """Whether the row is part of the fast gate."""
    return row != NATIVE and not row.startswith(EXTENDED)


def judge(units: list[Unit], budget: Budget, limits: Limits) -> Verdict:
    """Compare a whole run with what was recorded."""
    verdict = Verdict()
    rows = {name: row for name, row in rows_of(units).items() if is_judged(name)}
    in_common = budget.in_common(rows, limits)
    for name, row in rows.items():
        recorded = budget.rows.get(name, Row())
        for kind, measured, allowed in (
            ("CPU", row.cpu_s, recorded.cpu_s * budget.slowness(row) * in_common),
            ("waiting", row.surely_s, recorded.waiting_s),
        ):
            if measured > allowed * limits.factor and measured - allowed > limits.floor:
                verdict.findings.append(_row_finding(name, kind, measured, allowed, units, limits))
    for unit in units:
        _judge_unit(unit, limits, budget.slowness(Row.of(unit)) * in_common, verdict)
    return verdict


def _row_finding(
    name: str, kind: str, measured: float, allowed: float, units: list[Unit], limits: Limits
) -> str:
    def figure(unit: Unit) -> float:
        return unit.cpu if kind == "CPU" else unit.surely

    costliest = sorted((unit for unit in units if unit.row == name), key=figure, reverse=True)[:COSTLIEST]
    lines = [
        f"{name}: {measured:.1f} s of {kind}, {allowed:.1f} s are recorded, and more than {limits.factor:g} x "
        f"that fails. Its costliest:",
        *(f"    {figure(unit):7.2f} s  {unit.name}" for unit in costliest),
    ]
    return "\n".join(lines)


def _judge_unit(unit: Unit, limits: Limits, slowness: float, verdict: Verdict) -> None:
    if not unit.is_limited:
        return
    for kind, measured, limit in (
        ("CPU", unit.cpu, limits.cpu * slowness),
        ("waiting", unit.surely, limits.waiting),
    ):
        if measured > limit * limits.test_factor:
            verdict.findings.append(
                f"{unit.name}: {measured:.2f} s of {kind}; a test of the gate may take {limit:.3g} s, and more "
                f"than {limits.test_factor:g} x that fails"
            )
        elif measured > limit:
            verdict.warnings.append(
                f"{unit.name}: {measured:.2f} s of {kind}; a test of the gate may take {limit:.3g} s"
            )


def write_budget(file: Path, units: list[Unit], told: Mapping[str, Any]) -> None:
    """Make this run the budget: a line for each row, so that a change is one line of a commit.

    A row's processor time is recorded as if all of it had run at the run's mean speed.
    """
    rows = (
        f"  {json.dumps(name)}: "
        + json.dumps(
            {
                "tests": row.tests,
                "cpu_s": round(row.loops * told["reference_s"], 1),
                "waiting_s": round(row.waiting_s, 1),
            }
        )
        for name, row in rows_of(units).items()
        if is_judged(name)
    )
    lines = ("{", f' "environment": {json.dumps(dict(told))},', ' "rows": {', ",\n".join(rows), " }", "}")
    file.write_text("\n".join(lines) + "\n")


def write_report(file: Path, units: list[Unit], told: Mapping[str, Any], *, is_whole: bool) -> None:
    """Write what was measured: by row, by function of tests, and the tests that cost the most."""
    functions: dict[str, Row] = defaultdict(Row)
    for unit in units:
        if unit.count:
            functions[unit.name.split("[", 1)[0]].add_unit(unit)
    slowest = sorted((unit for unit in units if unit.count), key=lambda unit: -unit.cpu - unit.waiting)
    report = {
        "environment": dict(told),
        "is_whole": is_whole,
        "rows": {name: asdict(row.rounded(2)) for name, row in rows_of(units).items()},
        "slowest": [
            {
                "test": unit.name,
                "row": unit.row,
                "cpu_s": round(unit.cpu, 3),
                "waiting_s": round(unit.waiting, 3),
                "surely_s": round(unit.surely, 3),
                "wall_s": round(unit.wall, 3),
                "loops": round(unit.loops, 3),
            }
            for unit in slowest[:SLOWEST]
        ],
        "functions": {name: asdict(row.rounded(4)) for name, row in sorted(functions.items())},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n")


def table(rows: Mapping[str, Row], budget: Budget) -> list[str]:
    """Return lines for people: each row's cost next to the recorded cost."""
    columns = f"{'CPU':>9}{'budget':>9}{'ratio':>7}{'waiting':>10}{'budget':>9}{'ratio':>7}"
    lines = [f"{'seconds':<34}{'tests':>6}{columns}"]
    for name, row in sorted(rows.items(), key=lambda each: -each[1].cpu_s - each[1].waiting_s):
        recorded = budget.rows.get(name) if is_judged(name) else None
        lines.append(f"{name:<34}{row.tests:>6}{beside(row, recorded, budget.slowness(row))}")
    total = total_of(rows.values())
    lines.append(f"{'total':<34}{total.tests:>6}{total.cpu_s:>9.1f}{'':>16}{total.waiting_s:>10.1f}")
    return lines


def beside(row: Row, recorded: Row | None, slowness: float) -> str:
    """The columns of processor time and waiting, with the budget of each."""
    if recorded is None:
        return f"{row.cpu_s:>9.1f}{'-':>9}{'-':>7}{row.waiting_s:>10.1f}{'-':>9}{'-':>7}"
    cpu, waiting = recorded.cpu_s * slowness, recorded.waiting_s
    return (
        f"{row.cpu_s:>9.1f}{cpu:>9.1f}{ratio(row.cpu_s, cpu):>7}"
        f"{row.waiting_s:>10.1f}{waiting:>9.1f}{ratio(row.waiting_s, waiting):>7}"
    )


def ratio(measured: float, allowed: float) -> str:
    """How many times the budget; empty for what is too little to divide by."""
    return f"{measured / allowed:.2f}" if allowed >= 0.1 else "-"
