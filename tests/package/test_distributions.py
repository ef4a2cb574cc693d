"""What is packed, and for whom: the source distribution, and the Pythons that wheels are built for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.native_builds import FOLDER

CHECKOUT = FOLDER.parents[1]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def test_wheels_are_built_for_the_pythons_that_are_promised() -> None:
    settings = pyproject()
    promised = {
        found.groups()
        for classifier in settings["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", classifier))
    }
    built = {re.fullmatch(r"cp(\d)(\d+)-\*", name) for name in settings["tool"]["cibuildwheel"]["build"]}

    assert {found.groups() for found in built if found} == promised
    assert settings["project"]["requires-python"] == ">=3.11"
    assert min(promised) == ("3", "11")


def test_every_wheel_is_tried() -> None:
    command = pyproject()["tool"]["cibuildwheel"]["test-command"]
    program = command.removeprefix("python {project}/").removesuffix(" compiled")

    assert (CHECKOUT / program).is_file()
    assert "tests/package" in program


@pytest.mark.native
def test_the_source_distribution_has_what_builds_it_and_nothing_built(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(CHECKOUT / "aioproduce", sources / "aioproduce")
    for name in ("tests/package", "docs"):
        shutil.copytree(CHECKOUT / name, sources / name)
    for name in (
        "pyproject.toml",
        "setup.py",
        "MANIFEST.in",
        "Makefile",
        "README.md",
        "DESIGN.md",
        "LICENSE",
    ):
        shutil.copy(CHECKOUT / name, sources)
    # As after a build in place, and what Cython's own command leaves next to its source.
    (sources / "aioproduce" / "_native" / "key_hash.c").write_text("#error not to be packed\n")
    (sources / "aioproduce" / "_native" / "key_hash.so").write_text("not to be packed\n")
    (sources / "aioproduce" / "_native" / "packed.pxd").write_text("# declarations are sources\n")
    # Without Cython nothing is translated first, which is all the same to what is packed.
    hidden = tmp_path / "hidden" / "Cython.py"
    hidden.parent.mkdir()
    hidden.write_text("raise ImportError('hidden by the test')\n")
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--formats=gztar"],
        cwd=sources,
        env={"PYTHONPATH": str(hidden.parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    (packed,) = (sources / "dist").iterdir()
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    modules = {f"aioproduce/{path.relative_to(FOLDER.parent)}" for path in FOLDER.parent.rglob("*.py")}
    assert modules <= names
    assert {"aioproduce/_native/packed.pxd", "aioproduce/py.typed", "setup.py", "pyproject.toml"} <= names
    assert {"tests/package/smoke.py", "README.md", "LICENSE", "docs/reference/configuration.md"} <= names
    assert {
        "aioproduce/dashboard/static/index.html",
        "aioproduce/dashboard/static/vendor/uplot/LICENSE",
    } <= names
    unwanted = {name for name in names if name.startswith("build/") or name.endswith((".so", ".pyd", ".pyc"))}
    assert unwanted | {name for name in names if re.match(r"aioproduce/.*\.c$", name)} == set()
