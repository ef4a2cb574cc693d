"""The setting of a result: commit, machine, load, versions. Called by `running` and `pages`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from aioproduce import build_info
from benchmarks.clients import client
from benchmarks.machine import processor
from tests.kafka_install import KafkaUnavailableError, find_or_install

REPOSITORY: Final = Path(__file__).parents[2]
REFERENCE_PYTHON: Final = (3, 11)
"""The interpreter whose results have no version in their names."""

RESULTS: Final = "benchmarks/results"
MACHINERY: Final = "benchmarks/evidence"
PLOTS: Final = "docs/images/evidence"
_PRODUCT: Final = ("aioproduce", "pyspark_aioproduce", "setup.py")
_DISTRIBUTIONS: Final = (
    *(
        "aiokafka",
        "atheris",
        "confluent-kafka",
        "fastapi",
        "fastavro",
        "kafka-python",
        "kio",
        "protobuf",
        "pyarrow",
    ),
    *("persist-queue", "pyspark", "starlette", "trio", "uvicorn", "uvloop"),
)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)


def commit() -> str:
    """Return the commit that is checked out.

    Raises:
        RuntimeError: if this is not a checkout of git: a result needs a commit.
    """
    answer = _git("rev-parse", "HEAD")
    if answer.returncode:
        raise RuntimeError(f"evidence needs a git checkout: {answer.stderr.strip()}")
    return answer.stdout.strip()


def changed() -> list[str]:
    """Return the files that differ from the commit or are not in it, without results, plots and pages."""
    excepted = [f":(exclude){path}" for path in (RESULTS, PLOTS, "*.md")]
    answer = _git("status", "--porcelain", "--", ".", *excepted)
    return [line[3:] for line in answer.stdout.splitlines()]


def is_unchanged_since(commit: str, command: Sequence[str]) -> bool:
    """Return whether the product and a command's program are those of a commit, in the working tree, too.

    Text for people does not count: the tables that a result brings stand in some of it.
    """
    paths = [*_PRODUCT, program_of(command)]
    excepted = [f":(exclude){path}" for path in (RESULTS, MACHINERY, "*.md")]
    return _git("diff", "--quiet", commit, "--", *paths, *excepted).returncode == 0


def program_of(command: Sequence[str]) -> str:
    """Return the folder or file of the program that a command runs.

    Examples:
        >>> program_of(("-m", "tests.chaos", "--json"))
        'tests/chaos'
        >>> program_of(("-m", "pytest", "-q", "tests/integration/test_million_lines.py"))
        'tests/integration/test_million_lines.py'
    """
    module = command[1]
    if module == "pytest":
        return next(word for word in command if word.endswith(".py"))
    room, _, rest = module.partition(".")
    if room == "benchmarks":
        return room
    return f"{room}/{rest.partition('.')[0]}"


def commits_since(commit: str) -> int | None:
    """Return how many later commits changed `aioproduce/`; None if the commit is not in the history."""
    if _git("merge-base", "--is-ancestor", commit, "HEAD").returncode:
        return None
    answer = _git("rev-list", "--count", f"{commit}..HEAD", "--", "aioproduce")
    return int(answer.stdout)


def load() -> list[float]:
    """Return the load of the last one, five and fifteen minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def machine() -> dict[str, Any]:
    """Return processors, kernel, memory."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor(),
        "processors": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "memory_mib": pages * size >> 20,
    }


def versions() -> dict[str, str]:
    """Return the versions of interpreter, extensions' compiler, peers, Kafka and Java; '' if absent."""
    module = build_info().modules[0]
    found = {
        "CPython": platform.python_version(),
        "aioproduce": version("aioproduce"),
        "extensions": f"Cython {module.cython}, {module.compiler}",
    }
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    try:
        install = find_or_install()
    except KafkaUnavailableError:
        found["Kafka"] = found["Java"] = ""
    else:
        answer = subprocess.run([install.java, "-version"], capture_output=True, text=True, check=True)
        found["Kafka"], found["Java"] = install.version, answer.stderr.split('"')[1]
    franz_go = client("franz-go")
    found["franz-go"] = "" if franz_go.unavailable() else franz_go.version()
    return found


def python_suffix() -> str:
    """Return the suffix of a result's name on this interpreter.

    Examples:
        `""` on CPython 3.11, `"@3.13"` on CPython 3.13.
    """
    running = sys.version_info[:2]
    return "" if running == REFERENCE_PYTHON else "@{}.{}".format(*running)
