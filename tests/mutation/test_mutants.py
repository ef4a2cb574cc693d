"""Which mutants a module has, what they are called, and which are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.mutation.mutants import mutants_of, mutated_code, sample

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '''
"""Text: 1 + 1."""
LIMIT = 5 + 1

def free(a: int = 3) -> bool:
    """Text: 1 < 2."""
    return a < 7

class Box:
    size: int = 4 + 1

    def grow(self, by):
        def inner():
            self.size += by
        if by > 0:
            inner()
        if by > 0:
            inner()

    def __repr__(self):
        return 1 + 1
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "box.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def names(path: Path) -> list[str]:
    return [mutant.name for mutant in mutants_of("box", path)]


def test_only_statements_of_functions_are_changed(module: Path) -> None:
    assert sorted(names(module)) == [
        "box:Box.grow comparison: by > 0 -> by >= 0 in if by > 0",
        "box:Box.grow comparison: by > 0 -> by >= 0 in if by > 0 (2)",
        "box:Box.grow condition: if by > 0 -> if not by > 0",
        "box:Box.grow condition: if by > 0 -> if not by > 0 (2)",
        "box:Box.grow dropped-call: no inner()",
        "box:Box.grow dropped-call: no inner() (2)",
        "box:Box.grow number: 0 -> -1 in if by > 0",
        "box:Box.grow number: 0 -> -1 in if by > 0 (2)",
        "box:Box.grow number: 0 -> 1 in if by > 0",
        "box:Box.grow number: 0 -> 1 in if by > 0 (2)",
        "box:Box.grow.inner arithmetic: self.size += by -> self.size -= by",
        "box:Box.grow.inner dropped-assignment: no self.size += by",
        "box:free comparison: a < 7 -> a <= 7 in return a < 7",
        "box:free number: 7 -> 6 in return a < 7",
        "box:free number: 7 -> 8 in return a < 7",
        "box:free returned: return a < 7 -> return not a < 7",
    ]


def test_names_and_hashes_do_not_depend_on_lines_comments_or_other_functions(module: Path) -> None:
    before = {mutant.name: mutant.function_hash for mutant in mutants_of("box", module)}
    text = SOURCE.replace("LIMIT", "\n\n# a comment\nLIMIT").replace(
        "    if by > 0:\n        inner()\n\n", "\n"
    )
    module.write_text(text.replace("self.size += by", "self.size += by  # why"), encoding="utf-8")
    after = {mutant.name: mutant.function_hash for mutant in mutants_of("box", module)}
    assert after == before


def test_a_hash_changes_with_its_function_alone(module: Path) -> None:
    before = {mutant.name: mutant.function_hash for mutant in mutants_of("box", module)}
    module.write_text(SOURCE.replace("return a < 7", "return a < 7 or a > 70"), encoding="utf-8")
    after = {mutant.name: mutant.function_hash for mutant in mutants_of("box", module)}
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed == {name for name in before if name.startswith("box:free")}


def test_the_code_of_a_mutant_has_that_change_and_the_same_lines(module: Path) -> None:
    (mutant,) = (each for each in mutants_of("box", module) if "return not a < 7" in each.name)
    scope: dict[str, Any] = {}
    exec(mutated_code(mutant), scope)
    free = scope["free"]
    assert [free(6), free(7)] == [False, True]
    assert free.__code__.co_firstlineno == SOURCE.splitlines().index("def free(a: int = 3) -> bool:") + 1


def test_a_sample_is_in_proportion_and_stays_when_others_change(module: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.py"
    small.write_text("def one():\n    a.b = c\n", encoding="utf-8")
    both = {"box": mutants_of("box", module), "small": mutants_of("small", small)}
    drawn = sample(both, 8, seed=3)
    assert [mutant.module for mutant in drawn].count("small") == 1
    assert len(drawn) in (8, 9)
    assert sample(both, 8, seed=3) == drawn
    assert {mutant.name for mutant in sample(both, 8, seed=4)} != {mutant.name for mutant in drawn}
    small.write_text("def one():\n    a.c = c\n", encoding="utf-8")
    again = sample({"box": both["box"], "small": mutants_of("small", small)}, 8, seed=3)
    assert again[:-1] == drawn[:-1]
    assert len(sample(both, 10_000, seed=3)) == len(both["box"]) + 1
