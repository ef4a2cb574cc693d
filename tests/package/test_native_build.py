"""The built hot path belongs to the source beside it: an import would prefer an extension however old."""

from __future__ import annotations

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from tests.native_builds import FOLDER, is_compiled

MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_"))


def test_the_hot_path_is_where_it_is_looked_for() -> None:
    assert {"record_batch", "murmur2"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_no_extension_is_older_than_its_source(name: str) -> None:
    source = FOLDER / f"{name}.py"
    built = [path for suffix in EXTENSION_SUFFIXES if (path := FOLDER / f"{name}{suffix}").exists()]
    if not built:
        pytest.skip(f"{name} is not built for this interpreter: 'make native' does it")
    for extension in built:
        assert extension.stat().st_mtime >= source.stat().st_mtime, (
            f"{extension.name} was built before {source.name} changed: run 'make native'"
        )


def test_all_modules_are_of_one_build() -> None:
    if os.environ.get("AIOPRODUCE_PURE") == "1":
        expected = {False}
    else:
        expected = {
            any((FOLDER / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES) for name in MODULES
        }
    loaded = {is_compiled(importlib.import_module(f"aioproduce._native.{name}")) for name in MODULES}
    assert loaded == expected
    assert len(loaded) == 1
