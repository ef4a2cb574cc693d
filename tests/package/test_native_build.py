"""The built hot path belongs to the sources next to it: an import would prefer an extension however old.

Whether it does is told by content, not by time: each extension carries a digest of what it was made from
(invariant 2 of `setup.py`), so that neither a checkout nor a copy can make it look newer or older than it is.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from aioproduce import build_info
from tests.native_builds import BUILDS, FOLDER, MODULES, is_compiled, native_module

SETUP = FOLDER.parents[1] / "setup.py"


SETUP_MODULE: dict[str, Any] = runpy.run_path(str(SETUP))
COMPILED: list[Path] = SETUP_MODULE["native_modules"]()
"""The sources of all that is compiled: the hot path, and the modules of other folders that have a .pxd."""


def source_digest(name: str, root: Path) -> str:
    """What setup.py would write into the module's extension now."""
    digest = SETUP_MODULE["source_digest"](root / "aioproduce" / "_native" / f"{name}.py", root)
    assert isinstance(digest, str)
    return digest


def digest_in(extension: Path) -> str | None:
    """The digest in an extension's build record; None where it has none."""
    found = re.search(
        rb"aioproduce build record: module=[\w.]*%s; sources=([0-9a-f]{64});"
        % extension.name.split(".")[0].encode(),
        extension.read_bytes(),
    )
    return found and found[1].decode()


def test_the_hot_path_is_where_it_is_looked_for() -> None:
    assert {"record_batch", "key_hash"} <= set(MODULES)


@pytest.mark.parametrize("module", COMPILED, ids=lambda path: str(path.stem))
def test_no_extension_is_older_than_its_sources(module: Path) -> None:
    built = [path for suffix in EXTENSION_SUFFIXES if (path := module.with_suffix(suffix)).exists()]
    if not built:
        pytest.skip(f"{module.stem} is not built for this interpreter: 'make native' does it")
    for extension in built:
        assert digest_in(extension) == SETUP_MODULE["source_digest"](module), (
            f"{extension.name} was built from other sources than {module.name} and the .pxd files: 'make native'"
        )


def test_all_modules_are_of_one_build() -> None:
    if os.environ.get("AIOPRODUCE_PURE") == "1":
        expected = {False}
    else:
        expected = {
            any(path.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES) for path in COMPILED
        }
    loaded = {
        is_compiled(importlib.import_module(f"aioproduce.{SETUP_MODULE['module_name'](path)}"))
        for path in COMPILED
    }
    assert loaded == expected
    assert len(loaded) == 1


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_compared_in_both_builds(name: str) -> None:
    """What they are compared on is the business of the tests that ask for it; here only that there are some."""
    asked = re.compile(rf'native_module\(\s*"{name}"|\.{name}\.\w')
    tests = [
        path.relative_to(FOLDER.parents[1]).as_posix()
        for path in FOLDER.parents[1].glob("tests/**/*.py")
        if "native_builds import" in (text := path.read_text()) and asked.search(text)
    ]

    assert tests, f"no test runs {name}.py in both builds: see tests/native_builds.py"


def test_the_second_build_is_whole_and_leaves_no_trace() -> None:
    before = {name: sys.modules.get(f"aioproduce._native.{name}") for name in MODULES}
    interpreted = {name: native_module(name, "interpreted") for name in MODULES}

    assert not any(map(is_compiled, interpreted.values()))
    assert {name: sys.modules.get(f"aioproduce._native.{name}") for name in MODULES} == before
    for module in interpreted.values():
        for value in vars(module).values():
            package, _, home = str(getattr(value, "__module__", "")).rpartition(".")
            if package == "aioproduce._native" and home in interpreted:
                assert value in vars(interpreted[home]).values(), (
                    f"{module.__name__} uses a compiled {value!r}"
                )
    assert native_module(MODULES[0], BUILDS[0]) is importlib.import_module(f"aioproduce._native.{MODULES[0]}")


def test_every_extension_is_the_optimised_build() -> None:
    """One that was made for a debugger (CFLAGS) would be measured and tested in place of what users get."""
    if sys.platform == "win32":
        pytest.skip("setup.py sets no options for MSVC")
    compiled = [module for module in build_info().modules if module.is_compiled]
    wanted = {True: "-O3 -g0", False: "-O1 -g0"}
    others = {
        module.name: module.options
        for module in compiled
        if module.options != wanted[module.name.startswith("_native.")]
    }
    assert others == {}, "run 'python setup.py build_ext --inplace' without CFLAGS"


def project(folder: Path) -> Path:
    """Make a folder with our setup.py and one of our modules, and return the module."""
    native = folder / "aioproduce" / "_native"
    native.mkdir(parents=True)
    for name in ("key_hash.py", "key_hash.pxd", "_memory.pxd"):
        shutil.copy(FOLDER / name, native)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(SETUP.with_name(name), folder)
    return native / "key_hash.py"


def build_in_place(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run our setup.py in such a folder."""
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def only_extension(folder: Path) -> Path:
    """The one that was built, where there is a compiler."""
    found = [path for suffix in EXTENSION_SUFFIXES for path in folder.rglob(f"aioproduce/**/*{suffix}")]
    in_place = {path for path in found if "build" not in path.relative_to(folder).parts}
    if not in_place:
        pytest.skip("no C compiler, or no Cython, here")
    (extension,) = in_place
    return extension


@pytest.mark.parametrize("missing", ["compiler", "working compiler", "Cython"])
@pytest.mark.native
def test_what_cannot_be_compiled_is_left_out_and_the_build_goes_on(tmp_path: Path, missing: str) -> None:
    environments = {
        "compiler": {"CC": str(tmp_path / "no-such-compiler")},
        "working compiler": {"CC": "false"},
        "Cython": {"PYTHONPATH": str(tmp_path / "hidden")},
    }
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "Cython.py").write_text("raise ImportError('hidden by the test')\n")
    project(tmp_path / "project")
    built = build_in_place(tmp_path / "project", environments[missing])
    assert built.returncode == 0, built.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert not list(tmp_path.rglob("*.pyd"))


@pytest.mark.native
@pytest.mark.skipif(sys.platform == "win32", reason="the compiler is a shell script")
def test_one_that_cannot_be_compiled_leaves_none(tmp_path: Path) -> None:
    """They contain each other's structures: some compiled and some not could not be imported."""
    module = project(tmp_path / "project")
    for suffix in (".py", ".pxd"):
        shutil.copy(module.with_suffix(suffix), module.with_name(f"second{suffix}"))
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *second*) exit 1 ;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    built = build_in_place(tmp_path / "project", {"CC": str(compiler)})
    assert built.returncode == 0, built.stderr
    assert not list((tmp_path / "project" / "aioproduce").rglob("*.so"))
    assert "no module is compiled" in built.stdout + built.stderr


@pytest.mark.native
def test_a_build_for_a_first_look_leaves_no_other_extension(tmp_path: Path) -> None:
    """An extension that stays from an earlier build may have other structures than those that are built now."""
    module = project(tmp_path)
    other = tmp_path / "aioproduce" / "core" / "other.py"
    other.parent.mkdir()
    other.write_text("class Other:\n    pass\n")
    other.with_suffix(".pxd").write_text("cdef class Other:\n    pass\n")
    first = build_in_place(tmp_path, {})
    assert first.returncode == 0, first.stderr
    if not list(module.parent.glob("*.so")):
        pytest.skip("no C compiler, or no Cython, here")
    assert list(other.parent.glob("*.so"))
    second = build_in_place(tmp_path, {"AIOPRODUCE_BUILD": "records"})
    assert second.returncode == 0, second.stderr
    assert list(module.parent.glob("*.so"))
    assert not list(other.parent.glob("*.so"))


@pytest.mark.native
def test_what_is_built_follows_the_sources_content_whatever_their_times(tmp_path: Path) -> None:
    module = project(tmp_path)
    built = build_in_place(tmp_path, {})
    assert built.returncode == 0, built.stderr
    beside = {path.name.partition(".")[2] for path in module.parent.iterdir()}
    # A C file would be packed into wheels.
    assert beside <= {"py", "pxd", *(suffix.removeprefix(".") for suffix in EXTENSION_SUFFIXES)}

    first = digest_in(only_extension(tmp_path))
    assert first == source_digest("key_hash", tmp_path)
    module.write_text(
        module.read_text() + "\n# as an older commit, checked out with the times of its files\n"
    )
    os.utime(module, (0, 0))
    assert digest_in(only_extension(tmp_path)) != source_digest("key_hash", tmp_path)

    rebuilt = build_in_place(tmp_path, {})
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert digest_in(only_extension(tmp_path)) == source_digest("key_hash", tmp_path) != first


@pytest.mark.native
def test_what_is_current_is_not_compiled_again(tmp_path: Path) -> None:
    module = project(tmp_path)
    built = build_in_place(tmp_path, {})
    assert built.returncode == 0, built.stderr
    before = only_extension(tmp_path).read_bytes()
    # As after a checkout to and fro: all is newer than the extension. And as in a build folder of another command.
    for source in module.parent.iterdir():
        os.utime(source, (2_000_000_000, 2_000_000_000))
    shutil.rmtree(tmp_path / "build")

    # A compiler that fails leaves the extension out: it would be missed below.
    again = build_in_place(tmp_path, {"CC": "false"})
    assert again.returncode == 0, again.stderr
    assert not (tmp_path / "build" / "cython").exists()
    (copied,) = tmp_path.glob("build/lib*/aioproduce/_native/*")
    assert copied.read_bytes() == only_extension(tmp_path).read_bytes() == before


@pytest.mark.native
def test_other_options_of_the_compiler_make_another_extension(tmp_path: Path) -> None:
    project(tmp_path)
    first = build_in_place(tmp_path, {"CFLAGS": "-O0"})
    assert first.returncode == 0, first.stderr
    assert b"options=-O3 -g0 -O0; compiler=" in only_extension(tmp_path).read_bytes()

    second = build_in_place(tmp_path, {"CFLAGS": ""})
    assert second.returncode == 0, second.stderr
    assert b"options=-O3 -g0; compiler=" in only_extension(tmp_path).read_bytes()


@pytest.mark.native
def test_a_declaration_of_the_folder_is_a_source_of_every_module(tmp_path: Path) -> None:
    module = project(tmp_path)
    before = source_digest("key_hash", tmp_path)
    (module.parent / "other.pxd").write_text("cdef int answer()\n")
    assert source_digest("key_hash", tmp_path) != before
