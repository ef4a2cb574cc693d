"""The budget of the gate: what tests cost, summed up by directory, and the run fails where that is too much.

A pytest plugin, loaded by `tests/conftest.py`. It does nothing without one of its options:

    --gate-budget    measure, and fail where a directory or a test costs too much (`make test`: a whole fast tier)
    --gate-record    measure, and make that the budget (`tests/gate/budget.json`)
    --gate-measure   measure, and judge nothing: any slice of the tests

How it is measured stands in `measure.py`, who pays in `meter.py`, what is too much in `ledger.py`.

1. Under pytest-xdist every worker measures its own tree of processes; the controller sums up and judges.
2. Only a whole run is judged or recorded: one that ended early, or lost a worker, has sums that mean nothing.
3. Where `/proc` does not tell what is needed (macOS), nothing is measured, and nothing fails.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from dataclasses import astuple
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.gate import ledger
from tests.gate.ledger import Budget, Limits, Verdict
from tests.gate.meter import Meter, Speed, Unit

if TYPE_CHECKING:
    from collections.abc import Generator

GROUPS: Final = ("spark", "kafka", "browser")
"""Markers of tests with costs of their own; the first that a test has is its row."""
BROWSER_FIXTURES: Final = frozenset({"chromium", "visit"})
HANDED_OVER: Final = "aioproduce_gate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("gate", "what tests cost, and the budget for it")
    group.addoption("--gate-budget", action="store_true", help="fail where tests cost more than recorded")
    group.addoption("--gate-record", action="store_true", help="record what tests cost as the budget")
    group.addoption("--gate-measure", action="store_true", help="say what tests cost; judge nothing")
    group.addoption("--gate-file", type=Path, default=ledger.FILE, help="the budget; default: %(default)s")
    group.addoption("--gate-json", type=Path, help="where the figures go; default: build/gate.json")
    limits = Limits()
    parser.addini("gate_cpu", "seconds of CPU that a test of the gate may take", default=str(limits.cpu))
    parser.addini("gate_waiting", "seconds that it may wait", default=str(limits.waiting))
    parser.addini("gate_factor", "how far above budget or limit is too far", default=str(limits.factor))
    parser.addini(
        "gate_floor", "seconds above its budget that a directory may take", default=str(limits.floor)
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure and judge if that was asked for and can be done."""
    is_asked = config.option.gate_budget or config.option.gate_record or config.option.gate_measure
    if not is_asked or config.option.collectonly or not _can_measure():
        return
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config), "aioproduce-gate-worker")
    else:
        config.pluginmanager.register(Judge(config), "aioproduce-gate-judge")


def _can_measure() -> bool:
    if sys.platform != "linux":
        return False
    from tests.gate.measure import Tree

    return Tree.is_possible()


def row_of(item: pytest.Item) -> str:
    """The row of a test: a named group, or its directory."""
    if item.get_closest_marker("native") is not None:
        return ledger.NATIVE
    row = group_of(item)
    if row is None:
        parts = PurePosixPath(item.nodeid.split("::", 1)[0]).parent.parts[:2]
        row = "/".join(parts) or "."
    return ledger.EXTENDED + row if item.get_closest_marker("extended") is not None else row


def group_of(item: pytest.Item) -> str | None:
    """The named group of a test."""
    for name in GROUPS:
        if item.get_closest_marker(name) is not None:
            return name
    return "browser" if BROWSER_FIXTURES.intersection(getattr(item, "fixturenames", ())) else None


class Costs:
    """Measures the tests that this process runs."""

    def __init__(self) -> None:
        from tests.gate.measure import Tree

        self._rest = Unit(ledger.PYTEST, ledger.PYTEST)
        self._units = [self._rest]
        self._tree = Tree()
        self._meter = Meter(self._tree, self._rest, Speed())
        self._fixtures: dict[str, Unit] = {}
        # Shared fixtures that live and have processes, by name.
        self._with_processes: dict[str, Unit] = {}
        self._test = self._rest

    def end(self) -> list[Unit]:
        """Measure no longer; return what was measured."""
        self._meter.cut()
        self._tree.close()
        # It is the other workers that pytest waits for.
        self._rest.waiting = self._rest.surely = 0.0
        return self._units

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a test from the first of its fixtures to the last of its reports."""
        row = row_of(item)
        self._test = Unit(item.nodeid, row, ledger.is_judged(row) and group_of(item) is None, count=1)
        self._units.append(self._test)
        names = getattr(item, "fixturenames", ())
        uses = [unit for name, unit in self._with_processes.items() if name in names]
        self._meter.enter_test(self._test, uses)
        try:
            return (yield)
        finally:
            self._meter.leave_test()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """Let the waiting of one phase not vanish behind two processors' work in another."""
        self._meter.cut()
        try:
            return (yield)
        finally:
            self._meter.cut()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Let a fixture that several tests share pay for itself, to the end of its teardown."""
        if fixturedef.scope == "function":
            return (yield)
        unit = self._unit_of(fixturedef, request)
        # Finalizers run backwards: this one after the fixture's own, the other one before.
        fixturedef.addfinalizer(functools.partial(self._fixture_ended, fixturedef.argname))
        self._meter.enter(unit)
        try:
            return (yield)
        finally:
            if self._meter.leave_fixture(unit):
                self._with_processes[fixturedef.argname] = unit
            fixturedef.addfinalizer(functools.partial(self._meter.enter, unit))

    def _fixture_ended(self, name: str) -> None:
        self._meter.leave()
        self._with_processes.pop(name, None)

    def _unit_of(self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Unit:
        name = f"{ledger.FIXTURE}{fixturedef.argname}"
        if fixturedef.scope in ("session", "package"):
            unit = Unit(name, name)
        else:
            # What a module's tests share is limited as one of them is.
            name = f"{request.node.nodeid}::{name}"
            unit = Unit(name, self._test.row, self._test.is_limited)
        if name not in self._fixtures:
            self._fixtures[name] = unit
            self._units.append(unit)
        return self._fixtures[name]


class Worker:
    """Hands what a worker of pytest-xdist measured to the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._costs = Costs()
        config.pluginmanager.register(self._costs, "aioproduce-gate-costs")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Put the figures where pytest-xdist takes them from."""
        told = json.dumps([astuple(unit) for unit in self._costs.end()])
        self._config.workeroutput[HANDED_OVER] = told  # type: ignore[attr-defined]


class Judge:
    """Sums up, writes, prints and judges, in the process that a person started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._costs: Costs | None = None
        self._units: list[Unit] = []
        self._without_figures: set[str] = set()
        self._not_whole = ""
        self._verdict = Verdict()
        self._lines: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Measure here unless workers do."""
        if not self._config.pluginmanager.has_plugin("dsession"):
            self._costs = Costs()
            self._config.pluginmanager.register(self._costs, "aioproduce-gate-costs")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Expect the figures of a worker."""
        self._without_figures.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the figures of a worker."""
        told = getattr(node, "workeroutput", {}).get(HANDED_OVER)
        if told is not None:
            self._units += [Unit(*figures) for figures in json.loads(told)]
            self._without_figures.discard(node.gateway.id)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Sum up, write and judge; trylast: a session that fails by other means has said so."""
        if self._costs is not None:
            self._units = self._costs.end()
        else:
            own = Unit(ledger.PYTEST, ledger.PYTEST)
            own.pay(time.process_time(), Speed().reference_s)
            self._units.append(own)
        if not any(unit.count for unit in self._units):
            return
        self._not_whole = self._why_not_whole(session)
        option = self._config.option
        rows = ledger.rows_of(self._units)
        total = ledger.total_of(rows.values())
        told = ledger.environment(total)
        report = option.gate_json or self._config.rootpath / "build" / "gate.json"
        ledger.write_report(report, self._units, told, is_whole=not self._not_whole)
        budget = Budget.read(option.gate_file)
        slowness, in_common = budget.slowness(total), budget.in_common(rows, self._limits())
        self._lines = ledger.table(rows, budget)
        if slowness > 1:
            self._lines.append(
                f"this machine is {slowness:.2f} x slower than the one that recorded, in the mean"
            )
        if in_common > 1:
            self._lines.append(f"the middle row takes {in_common:.2f} x its budget: so may every row")
        if self._not_whole:
            return
        if option.gate_record:
            if session.exitstatus == pytest.ExitCode.OK:
                ledger.write_budget(option.gate_file, self._units, told)
                self._lines.append(f"recorded: {option.gate_file}")
            else:
                self._lines.append("not recorded: tests failed")
        elif option.gate_budget:
            self._verdict = ledger.judge(self._units, budget, self._limits())
            if self._verdict.findings and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _why_not_whole(self, session: pytest.Session) -> str:
        if self._without_figures:
            return f"no figures from {', '.join(sorted(self._without_figures))}"
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return f"exit status {session.exitstatus}"
        return str(session.shouldfail or session.shouldstop or "")

    def _limits(self) -> Limits:
        names = ("cpu", "waiting", "factor", "floor")
        return Limits(**{name: float(self._config.getini(f"gate_{name}")) for name in names})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, the warnings and the findings."""
        if not self._lines:
            return
        terminalreporter.section("what the tests cost")
        for line in self._lines:
            terminalreporter.write_line(line)
        if self._not_whole:
            terminalreporter.write_line(
                f"the run was not whole ({self._not_whole}): nothing is judged or recorded"
            )
        for warning in self._verdict.warnings:
            terminalreporter.write_line(f"close to too much: {warning}", yellow=True)
        for finding in self._verdict.findings:
            terminalreporter.write_line(f"TOO MUCH: {finding}", red=True)
        if self._verdict.findings:
            terminalreporter.write_line(ledger.REMEDY)

    @pytest.hookimpl(wrapper=True)
    def pytest_unconfigure(self) -> Generator[None, None, None]:
        """Say it once more below the closing line, which counts tests alone."""
        if self._verdict.findings:
            print(f"the gate fails: {len(self._verdict.findings)} x TOO MUCH, named above")
        return (yield)
