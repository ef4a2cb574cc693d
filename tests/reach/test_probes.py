"""Probes change nothing but the bytes that they set, and they say which block was reached, in children too."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.reach.__main__ import make_map
from tests.reach.probes import FOLDER, HITS, NAME, ProbedFinder, insert, prepare

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''\
"""A module."""
LIMIT = 3


def choose(value):
    """Choose."""
    if value > LIMIT:
        return "more"
    elif value == LIMIT:
        return "as much"
    for _ in range(value):
        value -= 1
    try:
        return [1 / value]
    except ZeroDivisionError as error:
        return repr(error)
    finally:
        value = None


class Box:
    def outer(self):
        def inner():
            nonlocal seen
            seen = True

        seen = False
        match seen:
            case False:
                inner()
            case _:
                raise AssertionError
        return seen
'''


def reached(call: str) -> tuple[object, list[tuple[str, int]]]:
    """What a call gives, and the blocks that it reached, by function and line."""
    code, places = insert(SOURCE, "example.py", 5)
    hits = bytearray(5 + len(places))
    scope: dict[str, Any] = {NAME: hits, "__name__": "example"}
    exec(code, scope)
    assert not any(hits), "only functions have probes"
    value = eval(call, scope)
    return value, sorted(place for place, hit in zip(places, hits[5:], strict=True) if hit)


@pytest.mark.parametrize(
    ("call", "value", "lines"),
    [
        ("choose(4)", "more", [7, 8]),
        ("choose(3)", "as much", [7, 9, 10]),
        ("choose(0)", "ZeroDivisionError('division by zero')", [7, 9, 11, 13, 14, 16, 18]),
        ("choose(2)", "ZeroDivisionError('division by zero')", [7, 9, 11, 12, 13, 14, 16, 18]),
        ("choose.__doc__", "Choose.", []),
        ("choose.__code__.co_firstlineno", 5, []),
    ],
)
def test_blocks_of_a_function(call: str, value: object, lines: list[int]) -> None:
    assert reached(call) == (value, [("choose", line) for line in lines])


def test_blocks_of_functions_within_functions() -> None:
    value, places = reached("Box().outer()")
    assert value is True
    assert places == [
        ("Box.outer", 23),
        ("Box.outer", 27),
        ("Box.outer", 30),
        ("Box.outer", 33),
        ("Box.outer.inner", 25),
    ]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "probed_example"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "box.py").write_text(SOURCE, encoding="utf-8")
    return package


def test_a_child_that_is_killed_has_left_what_it_reached(package: Path, tmp_path: Path) -> None:
    probes = prepare(tmp_path / "reach", package)
    finder = ProbedFinder(probes, tmp_path / "hits")
    environment = {
        **os.environ,
        FOLDER: str(tmp_path / "reach"),
        HITS: str(tmp_path / "hits"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.path.join(os.path.dirname(__file__), "site")]),
    }
    program = "import os, probed_example.box as box; box.choose(4); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], env=environment, check=False, timeout=60)
    places = probes.places["probed_example.box"]
    assert [places[number] for number in finder.reached()] == [("choose", 7), ("choose", 8)]
    finder.clear()
    assert finder.reached() == []
    assert not list(package.rglob("*.pyc")) or not any(
        b"__reached__" in path.read_bytes() for path in package.rglob("*.pyc")
    )


def test_sources_that_changed_are_loaded_without_probes(package: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "reach", package)
    (package / "box.py").write_text(SOURCE + "\nCHANGED = True\n", encoding="utf-8")
    environment = {
        **os.environ,
        FOLDER: str(tmp_path / "reach"),
        HITS: str(tmp_path / "hits"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.path.join(os.path.dirname(__file__), "site")]),
    }
    program = "import probed_example.box as box; print(box.choose(4), box.CHANGED)"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, timeout=60, capture_output=True
    )
    assert ended.stdout == b"more True\n"
    assert not any((tmp_path / "hits").read_bytes())


def test_a_file_without_functions_is_reached_where_its_importers_are() -> None:
    made = make_map(
        {"tests/test_a.py": {"aioproduce.core.retry"}}, ["aioproduce.core.retry", "aioproduce.core.effects"]
    )
    assert made["aioproduce/core/retry.py"] == {"tests/test_a.py"}
    assert made["aioproduce/core/effects.py"] == set()
    made = make_map(
        {"tests/test_a.py": {"aioproduce.drivers.asyncio"}},
        ["aioproduce.drivers.asyncio", "aioproduce.core.effects"],
    )
    assert made["aioproduce/core/effects.py"] == {"tests/test_a.py"}
