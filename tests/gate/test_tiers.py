"""Which tests a run takes: the parts are the whole, and what is native is tested where its sources changed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from _pytest.mark.expression import Expression

from tests.gate import tiers
from tests.gate.marks import others_extended

if TYPE_CHECKING:
    from pathlib import Path

PYPROJECT = """
[build-system]
requires = ["setuptools>=77", "Cython>=3.1"]

[project]
name = "aioproduce"

[tool.setuptools.packages.find]
include = ["aioproduce*"]

[tool.importlinter]
root_packages = ["aioproduce"]
"""
MARKERS = ("extended", "native", "kafka", "spark", "browser")


def taken(expression: str, markers: frozenset[str]) -> bool:
    """What pytest's own `-m` says of a test with these markers."""

    def has(name: str, /, **_: str | int | bool | None) -> bool:
        return name in markers

    return Expression.compile(expression).evaluate(has)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A repository with the native sources."""
    (tmp_path / "aioproduce" / "_native").mkdir(parents=True)
    for name in (
        "setup.py",
        "aioproduce/_native/delivery.py",
        "aioproduce/_native/delivery.pxd",
    ):
        (tmp_path / name).write_text(name)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    return tmp_path


@pytest.mark.parametrize(
    "markers",
    [frozenset(some) for size in range(6) for some in itertools.combinations(MARKERS, size)],
    ids=lambda markers: "-".join(sorted(markers)) or "none",
)
def test_every_test_is_in_one_part_of_the_full_run(markers: frozenset[str]) -> None:
    assert sum(taken(expression, markers) for expression in tiers.PARTS.values()) == 1


def test_only_extended_and_native_tests_are_left_out_of_the_gate() -> None:
    for size in range(6):
        for some in itertools.combinations(MARKERS, size):
            markers = frozenset(some)
            assert taken(tiers.GATE, markers) == (not markers & {"extended", "native"})
            assert taken(tiers.GATE_AND_NATIVE, markers) == ("extended" not in markers)


@pytest.mark.parametrize(
    "name",
    ["setup.py", "aioproduce/_native/delivery.py", "aioproduce/_native/delivery.pxd"],
)
def test_a_change_of_a_native_source_asks_for_the_native_tests(sources: Path, name: str) -> None:
    record = sources / "native.json"
    tiers.record_native(sources, record)
    assert not tiers.native_changed(sources, record)

    (sources / name).write_text("changed")

    assert tiers.native_changed(sources, record)


@pytest.mark.parametrize(
    ("before", "after", "asks"),
    [
        ("Cython>=3.1", "Cython>=3.2", True),
        ('name = "aioproduce"', 'name = "aioproduce"\ndependencies = ["kio"]', True),
        ('include = ["aioproduce*"]', 'include = ["aioproduce"]', True),
        ('root_packages = ["aioproduce"]', 'root_packages = ["aioproduce", "tests"]', False),
        ("[project]", "# A comment.\n[project]", False),
    ],
    ids=["a build's requirement", "a dependency", "the package's files", "a tool's setting", "a comment"],
)
def test_of_pyproject_what_a_build_reads_counts(sources: Path, before: str, after: str, asks: bool) -> None:
    record = sources / "native.json"
    tiers.record_native(sources, record)

    (sources / "pyproject.toml").write_text(PYPROJECT.replace(before, after))

    assert tiers.native_changed(sources, record) is asks


def test_a_new_native_source_asks_for_the_native_tests(sources: Path) -> None:
    record = sources / "native.json"
    tiers.record_native(sources, record)

    (sources / "aioproduce" / "_native" / "another.py").write_text("")

    assert tiers.native_changed(sources, record)


def test_other_files_and_other_line_ends_do_not(sources: Path) -> None:
    record = sources / "native.json"
    (sources / "setup.py").write_bytes(b"one\ntwo\n")
    tiers.record_native(sources, record)

    (sources / "setup.py").write_bytes(b"one\r\ntwo\r\n")
    (sources / "aioproduce" / "producer.py").write_text("changed")

    assert not tiers.native_changed(sources, record)


def test_without_a_record_the_native_tests_run(sources: Path) -> None:
    assert tiers.native_changed(sources, sources / "native.json")


def test_the_command_prints_what_pytest_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert tiers.main(["spark"]) == 0
    assert capsys.readouterr().out.strip() == tiers.PARTS["spark"]
    assert tiers.main(["nonsense"]) == 2
    assert "usage" in capsys.readouterr().err


def test_others_are_extended_with_the_reason() -> None:
    parameters = others_extended(["one", "two"], keep=["two"], reason="one stays")

    assert parameters[1] == "two"
    assert parameters[0].values == ("one",)
    assert [(mark.name, mark.args) for mark in parameters[0].marks] == [("extended", ("one stays",))]


def test_what_is_to_stay_must_be_there() -> None:
    with pytest.raises(ValueError, match="three"):
        others_extended(["one", "two"], keep=["three"], reason="one stays")
