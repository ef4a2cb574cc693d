"""The modules of ``aioproduce._native`` in both builds at once, in one process.

Used by tests that compare the two, and by tests that hold for either. Whatever build is imported under the
modules' own names, the sources are loaded a second time, interpreted.

1. The second build is whole: its modules import each other, never a compiled one. What is compared is compiled
   against interpreted, not against a mixture.
2. It is loaded with ``cython`` out of reach, as where only aioproduce's own requirements are installed: so the
   shadow is tested, too.
3. Nothing of it stays in ``sys.modules``, nor in the package: a later import finds the modules from before.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import aioproduce._native
from tests.interpreted_finder import InterpretedNative

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(aioproduce._native.__file__).parent

MODULES = tuple(sorted(path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_")))
"""The hot path: whatever is compiled."""

BUILDS = ("imported", "interpreted")
"""What ``native_module`` can be asked for; the first is the compiled one where it is built (and wanted)."""

_PACKAGE = "aioproduce._native"


def native_module(name: str, build: str) -> ModuleType:
    """A module of ``aioproduce._native`` in one of the ``BUILDS``."""
    return _interpreted()[name] if build == "interpreted" else importlib.import_module(f"{_PACKAGE}.{name}")


def native_build(build: str) -> SimpleNamespace:
    """All modules of one of the ``BUILDS``, by name: objects of different builds do not work together."""
    return SimpleNamespace(**{name: native_module(name, build) for name in MODULES})


def is_compiled(module: ModuleType) -> bool:
    """Whether a module was loaded from an extension."""
    return (module.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))


def core_is_compiled() -> bool:
    """Whether the core's classes are compiled, so that no test can replace their methods."""
    from aioproduce.core.sender import Sender

    return not isinstance(Sender.receive_data, FunctionType)


@cache
def _interpreted() -> dict[str, ModuleType]:
    """The whole of the second build, by the modules' names."""
    others = {name: module for name, module in sys.modules.items() if not name.startswith(_PACKAGE)}
    with (
        mock.patch.object(aioproduce, "_native", aioproduce._native),
        mock.patch.dict(sys.modules, {**others, "cython": None}, clear=True),
        mock.patch.object(sys, "meta_path", [InterpretedNative(_PACKAGE), *sys.meta_path]),
    ):
        modules = {name: importlib.import_module(f"{_PACKAGE}.{name}") for name in MODULES}
    assert not any(map(is_compiled, modules.values()))
    return modules
