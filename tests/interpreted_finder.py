"""Finds the modules of a package by their source only, as if nothing had been compiled.

Used by `conftest` for a whole run (`AIOPRODUCE_PURE=1`) and by `native_builds` for the second build in one process.
Imports nothing of `aioproduce`: it must be there before.
"""

from __future__ import annotations

from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class InterpretedNative(MetaPathFinder):
    """The finder; for `sys.meta_path`, in front of all others.

    Args:
        package: The package.
    """

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the package's modules, and leave every other import to the finders behind this one."""
        if path is None or not fullname.startswith(self._prefix):
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if spec is not None:
                return spec
        return None
