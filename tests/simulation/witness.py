"""What notices a bug on purpose where chance does not: a kept case, or the test that is named with the bug.

For `test_seeds` and `python -m tests.simulation --mutants`. A test is called as a function, with the arguments that
stand there and in this process: so it must need no fixture. It must pass without the bug, and fail with it.
"""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.simulation.case import Case
from tests.simulation.mutants import MUTANTS, WITNESSES
from tests.simulation.run import run_case

if TYPE_CHECKING:
    from collections.abc import Iterator

REGRESSIONS = Path(__file__).parent / "regressions"
"""Bugs that were there once, each in the smallest case that shows it; a mutant's is called like the mutant."""


class StandIn(NamedTuple):
    """What stands in for chance, and whether it does its work."""

    name: str
    passes_without: bool
    fails_with: bool

    @property
    def notices(self) -> bool:
        return self.passes_without and self.fails_with

    def __str__(self) -> str:
        return self.name if self.notices else f"NOT {self.name}"


def has_stand_in(name: str) -> bool:
    """Say whether something else than chance is to notice this bug."""
    return name in WITNESSES or _kept_case(name).exists()


def _kept_case(name: str) -> Path:
    return REGRESSIONS / f"{name.replace(' ', '-')}.json"


def stand_in_for(name: str) -> StandIn | None:
    """Run what notices this bug, without it and with it; `None` where seeds do."""
    path = _kept_case(name)
    if path.exists():
        case = Case.from_json(path.read_text())
        passes = not run_case(case).violations
        with MUTANTS[name]():
            return StandIn(f"regressions/{path.name}", passes, bool(run_case(case).violations))
    if name not in WITNESSES:
        return None
    test, arguments = WITNESSES[name]
    passes = _passes(test, arguments)
    with MUTANTS[name]():
        return StandIn(test, passes, not _passes(test, arguments))


def _passes(test: str, arguments: dict[str, Any]) -> bool:
    file, function = test.split("::")
    module = import_module("tests." + file.removesuffix(".py").replace("/", "."))
    with _unheard():
        try:
            getattr(module, function)(**arguments)
        except (Exception, pytest.fail.Exception):
            return False
        return True


@contextmanager
def _unheard() -> Iterator[None]:
    """What a test that fails half-way leaves is nobody's trouble, and gone when this ends."""
    former, sys.unraisablehook = sys.unraisablehook, lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            gc.collect()
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = former
