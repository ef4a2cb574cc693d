"""The mutants of the product itself: their names, their code, and the file of survivors that speaks of them."""

from __future__ import annotations

import ast

import pytest

from tests.mutation.mutants import Mutant, mutants_of, mutated_code
from tests.mutation.survivors import objections, read
from tests.mutation.targets import targets


@pytest.fixture(scope="module")
def of_targets() -> list[Mutant]:
    """All of them. It takes seconds, so the tests that need it are in one module."""
    return [mutant for name, path in targets().items() for mutant in mutants_of(name, path)]


def test_names_of_the_real_mutants_are_unique(of_targets: list[Mutant]) -> None:
    assert len({mutant.name for mutant in of_targets}) == len(of_targets) > 3000


def test_real_mutants_compile_to_other_code(of_targets: list[Mutant]) -> None:
    for mutant in of_targets[::150]:
        original = compile(ast.parse(mutant.path.read_text(encoding="utf-8")), str(mutant.path), "exec")
        assert mutated_code(mutant) != original


def test_the_file_of_survivors_is_about_mutants_that_are_there(of_targets: list[Mutant]) -> None:
    assert objections(read(), of_targets, set(), set()) == []
