"""The built hot path belongs to the source beside it: an import would prefer an extension however old."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

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


def build_in_place(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run our setup.py on one of our modules in a folder of its own."""
    native = folder / "aioproduce" / "_native"
    native.mkdir(parents=True)
    shutil.copy(FOLDER / "murmur2.py", native)
    shutil.copy(FOLDER.parents[1] / "setup.py", folder)
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("missing", ["compiler", "working compiler", "Cython"])
def test_what_cannot_be_compiled_is_left_out_and_the_build_goes_on(tmp_path: Path, missing: str) -> None:
    environments = {
        "compiler": {"CC": str(tmp_path / "no-such-compiler")},
        "working compiler": {"CC": "false"},
        "Cython": {"PYTHONPATH": str(tmp_path / "hidden")},
    }
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "Cython.py").write_text("raise ImportError('hidden by the test')\n")
    built = build_in_place(tmp_path / "project", environments[missing])
    assert built.returncode == 0, built.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert not list(tmp_path.rglob("*.pyd"))


def test_nothing_but_the_extension_is_left_beside_the_source(tmp_path: Path) -> None:
    built = build_in_place(tmp_path / "project", {})
    assert built.returncode == 0, built.stderr
    beside = {path.name.partition(".")[2] for path in (tmp_path / "project/aioproduce/_native").iterdir()}
    # Without a compiler here there is no extension; a C file would be packed into wheels in any case.
    assert beside <= {"py", *(suffix.removeprefix(".") for suffix in EXTENSION_SUFFIXES)}
