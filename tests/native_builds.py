"""The modules of ``aioproduce._native`` in both builds at once, in one process.

Used by tests that compare the two, and by tests that hold for either. Whatever build is imported under the
module's own name, the source is loaded a second time under another name, interpreted.

1. The interpreted module is loaded with ``cython`` out of reach, as where only aioproduce's own requirements
   are installed: so the shadow is tested, too.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import aioproduce._native

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(aioproduce._native.__file__).parent

BUILDS = ("imported", "interpreted")
"""What ``native_module`` can be asked for; the first is the compiled one where it is built (and wanted)."""


def native_module(name: str, build: str) -> ModuleType:
    """A module of ``aioproduce._native`` in one of the ``BUILDS``."""
    return (
        interpreted(name) if build == "interpreted" else importlib.import_module(f"aioproduce._native.{name}")
    )


def is_compiled(module: ModuleType) -> bool:
    """Whether a module was loaded from an extension."""
    return (module.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))


@cache
def interpreted(name: str) -> ModuleType:
    """The module's ``.py`` under a name of its own."""
    alias = f"interpreted_{name}"
    spec = spec_from_loader(alias, SourceFileLoader(alias, str(FOLDER / f"{name}.py")))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"cython": None}):
        spec.loader.exec_module(module)
    return module
