"""`benchmarks.interpreters`: what it compares, and what it refuses to compare."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from benchmarks import interpreters
from benchmarks.cases import Case
from benchmarks.interpreters import Interpreter, figures_of, probe, ratios
from benchmarks.runner import BenchmarkError, Result, run_once
from benchmarks.targets import FakeTarget, fake_target

OLD = Interpreter(("old",), "3.11.7", "GCC 12", 100.0, "a")
NEW = Interpreter(("new",), "3.14.1", "GCC 16", 120.0, "a")


def test_an_interpreter_says_what_it_is() -> None:
    told = probe([sys.executable])
    assert told.version == sys.version.split()[0]
    assert told.reference > 0
    assert told.sources == probe([sys.executable]).sources


def test_one_that_does_not_start_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(BenchmarkError, match=r"python cannot be measured:\nno such module"):
        probe([str(broken)])


def test_one_that_runs_the_package_interpreted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(
        'echo \'{"version": "3.14.1", "compiler": "GCC", "gil": true, "compiled": false}\'\n'
    )
    with pytest.raises(BenchmarkError, match="interpreted: build its extensions first"):
        probe(["sh", str(tmp_path / "python")])


def test_the_variable_names_commands_one_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(interpreters.VARIABLE, "env -C /a python3.13\n\npython3.14\n")
    found = interpreters.found()
    assert found[:3] == [[sys.executable], shlex.split("env -C /a python3.13"), ["python3.14"]]


def test_a_case_runs_under_the_other_interpreter(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\ntouch {tmp_path}/was-here\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    case = Case("parking", "", "", "asyncio", 20, options={"tasks": 10})
    assert run_once(case, None, interpreter=[str(other)]).records == 20
    assert (tmp_path / "was-here").exists()


def test_more_records_and_less_time_are_both_above_one() -> None:
    figures = {"old": {"await-each, records/s": 100.0, "alone, CPU us": 50.0},
               "new": {"await-each, records/s": 150.0, "alone, CPU us": 40.0}}  # fmt: skip
    assert ratios(figures)["new"] == {"await-each, records/s": 1.5, "alone, CPU us": 1.25}


def test_each_interpreter_has_its_own_figures() -> None:
    def result(mode: str, rate: float) -> Result:
        return Result(
            Case("", "", mode), {"records_per_second": rate, "cpu_seconds_per_million": 1e6 / rate}, []
        )

    results = [result("dropped", 10.0), result("alone", 20.0), result("dropped", 30.0), result("alone", 40.0)]
    assert figures_of([OLD, NEW], results) == {
        "CPython 3.11.7, GCC 12": {
            "reference, turns/s": 100.0,
            "dropped, records/s": 10.0,
            "alone, CPU us": 50_000.0,
        },
        "CPython 3.14.1, GCC 16": {
            "reference, turns/s": 120.0,
            "dropped, records/s": 30.0,
            "alone, CPU us": 25_000.0,
        },
    }


def test_the_lone_records_are_sent_and_counted() -> None:
    case = interpreters.cases(50_000)[-1]
    with fake_target() as target:
        assert isinstance(target, FakeTarget)
        assert run_once(case, target).records == case.records == 500
