"""Runs pytest in pytest, with aioproduce's plugin found as an installed package's is: by its entry point.

The distribution is made here, of what `pyproject.toml` says: so the tests see the plugin as users do, whether this
checkout is installed or not, and pytest treats its files as those of a plugin (it rewrites their assertions).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioproduce

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(aioproduce.__file__).parents[1]

CONFIGURATION = """
    [pytest]
    addopts = --strict-markers --strict-config -p no:cacheprovider
    filterwarnings = error
"""


def make_distribution(folder: Path) -> None:
    """Files that say to pytest what an installed aioproduce would."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    info = folder / f"aioproduce-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: aioproduce\nVersion: {project['version']}\n"
    )
    entries = "".join(f"{name} = {where}\n" for name, where in project["entry-points"]["pytest11"].items())
    (info / "entry_points.txt").write_text(f"[pytest11]\n{entries}")
    files = sorted(REPOSITORY.glob("aioproduce/**/*.py"))
    (info / "RECORD").write_text("".join(f"{file.relative_to(REPOSITORY)},,\n" for file in files))


@pytest.fixture(scope="session")
def inner_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an inner pytest that finds the distribution, and aioproduce's modules compiled.

    pytest rewrites the assertions of all modules of a plugin's distribution, and keeps what it compiled: that takes
    seconds of processor time, once.
    """
    folder = tmp_path_factory.mktemp("distribution")
    make_distribution(folder)
    paths = [str(folder), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    # What is in the environment of this run is not meant for that one.
    without = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    first = folder / "test_first.py"
    first.write_text("from aioproduce import Producer\n\ndef test_it(kafka_cluster): Producer\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(first)], env=environment, cwd=folder, check=True
    )
    return environment


@pytest.fixture
def run_pytest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, inner_environment: dict[str, str]
) -> Callable[..., pytest.RunResult]:
    """Run the inner tests in a process of their own, with warnings as errors."""
    for name in os.environ.keys() - inner_environment.keys():
        monkeypatch.delenv(name)
    for name, value in inner_environment.items():
        monkeypatch.setenv(name, value)
    pytester.makeini(CONFIGURATION)

    def run(*arguments: str) -> pytest.RunResult:
        # pytest-asyncio warns where this is not said, and pytest where it is said without pytest-asyncio.
        said = () if "no:asyncio" in arguments else ("-o", "asyncio_default_fixture_loop_scope=function")
        return pytester.runpytest_subprocess(*said, *arguments)

    return run
