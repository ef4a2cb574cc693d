"""What an installation says of itself: `build_info()`, and the one warning where the hot path is interpreted.

The processes without extensions run a copy of the sources alone, as an installation without a compiler is.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import aioproduce
from aioproduce import installation
from tests.native_builds import FOLDER

HOT_PATH = sorted(
    [f"_native.{path.stem}" for path in FOLDER.glob("*.py") if not path.name.startswith("_")]
    + [
        ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
        for path in FOLDER.parent.rglob("*.pxd")
        if path.parent != FOLDER
    ]
)

# Two producers, one after the other, and what each logs; no broker is asked.
START_TWICE = """
import asyncio, logging
import aioproduce

async def main():
    for _ in range(2):
        producer = aioproduce.Producer("127.0.0.1:9")
        await producer.start()
        await producer.close(0)

logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
asyncio.run(main())
print(aioproduce.build_info().compiled)
"""


@pytest.fixture(scope="module")
def without_extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it is installed where there is no compiler."""
    folder = tmp_path_factory.mktemp("interpreted")
    shutil.copytree(
        FOLDER.parent,
        folder / "aioproduce",
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"),
    )
    return folder


def run_there(folder: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCE_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_names_every_module_of_the_hot_path() -> None:
    assert [module.name for module in aioproduce.build_info().modules] == HOT_PATH


def test_versions_are_those_installed() -> None:
    info = aioproduce.build_info()

    assert info.version == aioproduce.__version__
    assert info.python == f"{platform.python_implementation()} {platform.python_version()}"
    installed = dict(info.libraries)
    assert installed["cramjam"] == version("cramjam")
    assert installed["uvloop"] == version("uvloop")


def test_what_is_compiled_tells_its_makers() -> None:
    info = aioproduce.build_info()
    if not info.compiled:
        pytest.skip("the hot path is not built for this interpreter: 'make native' does it")
    for module in info.modules:
        assert module.cython is not None
        assert module.compiler is not None
        assert f"Cython {module.cython}, {module.compiler}" in str(info)
    assert info.interpreted_modules == ()


def test_it_can_be_asked_again_and_again() -> None:
    # The function must not be hidden by a module of its name once that is loaded.
    assert aioproduce.build_info() == aioproduce.build_info()


def test_it_is_a_value_that_json_takes() -> None:
    info = aioproduce.build_info()

    assert json.loads(json.dumps(info.as_dict())) == info.as_dict() | {
        "modules": [dict(module) for module in info.as_dict()["modules"]]
    }
    with pytest.raises(AttributeError):
        info.version = "2"  # type: ignore[misc]
    assert eval(repr(info), vars(installation)) == info


def test_interpreted_it_says_so_once_with_the_remedy(without_extensions: Path) -> None:
    done = run_there(without_extensions, START_TWICE)

    assert (done.returncode, done.stdout) == (0, "False\n")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("WARNING aioproduce the hot path runs interpreted")
    assert "Install a C compiler" in lines[0]
    for name in HOT_PATH:
        assert f"aioproduce.{name}" in lines[0]


def test_interpreted_on_purpose_it_is_silent(without_extensions: Path) -> None:
    done = run_there(without_extensions, START_TWICE, AIOPRODUCE_PURE="1")

    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_an_import_says_nothing(without_extensions: Path) -> None:
    done = run_there(without_extensions, "from aioproduce import Producer; Producer('127.0.0.1:9')")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
