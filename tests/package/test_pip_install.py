"""`pip install .`: compiled where there is a compiler, and a working package all the same where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native_builds import FOLDER

CHECKOUT = FOLDER.parents[1]
SMOKE = Path(__file__).with_name("smoke.py")
NEEDED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
BUILT = ("*.so", "*.pyd", "__pycache__")

has_compiler = any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))) or sys.platform == "win32"


def copy_of_the_sources(folder: Path) -> Path:
    """What is needed to build, without extensions; pip would leave its traces in the checkout."""
    shutil.copytree(CHECKOUT / "aioproduce", folder / "aioproduce", ignore=shutil.ignore_patterns(*BUILT))
    if (CHECKOUT / "build" / "cython").is_dir():
        # Half of the time is Cython's, which translates again what is not up to date.
        shutil.copytree(CHECKOUT / "build" / "cython", folder / "build" / "cython")
    for name in NEEDED:
        shutil.copy(CHECKOUT / name, folder)
    return folder


def run(*command: str, **environment: str) -> str:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIOPRODUCE_", "PIP_"))
    }
    done = subprocess.run(
        command, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("build", "environment"),
    [
        pytest.param(
            "compiled", {}, marks=pytest.mark.skipif(not has_compiler, reason="there is no C compiler here")
        ),
        pytest.param("interpreted", {"CC": "false"}),
    ],
    ids=["with a compiler", "without one"],
)
@pytest.mark.native
def test_what_pip_installs_works(tmp_path: Path, build: str, environment: dict[str, str]) -> None:
    sources = copy_of_the_sources(tmp_path / "sources")
    target = tmp_path / "installed"
    pip = (sys.executable, "-m", "pip", "--isolated", "--quiet", "--disable-pip-version-check", "install")
    # Cython and setuptools are here already, and so is what aioproduce needs: nothing is fetched.
    run(
        *pip,
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
        f"--target={target}",
        str(sources),
        **environment,
    )

    extensions = {path.name.partition(".")[0] for path in target.glob("aioproduce/**/*.so")}
    modules = {path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_")}
    modules |= {path.stem for path in FOLDER.parent.rglob("*.pxd") if path.parent != FOLDER}
    assert extensions == (modules if build == "compiled" and sys.platform != "win32" else set())
    assert not list(target.rglob("*.c"))
    told = run(sys.executable, str(SMOKE), build, PYTHONPATH=str(target))
    assert f"{build} (" in told
    assert ("the hot path runs interpreted" in told) is (build == "interpreted")
