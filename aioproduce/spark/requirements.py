"""Checks the requirements of the pipeline on Spark: the extra `spark`, and a Java version that Spark supports.

Called before anything of either is used, so that a missing part is reported with its remedy and not by an import
that fails somewhere. It imports none of it itself, except for packages on the path that were not installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from aioproduce.errors import MissingExtraError
from aioproduce.spark.errors import JavaError

JAVA_NEEDED: Final = 17
"""The minimum Java version for Spark 4."""

_NEEDED: Final[Mapping[str, tuple[int, ...]]] = {"pyspark": (4, 1), "pyarrow": (18,), "pandas": (2, 2)}
_SPARK_ALONE: Final = ("pyspark-client", "pyspark-connect")  # the other distributions that contain `pyspark`
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT: Final = 30.0  # seconds; a JVM prints its version in a fraction of one


def check_extra(what: str) -> None:
    """Check that the extra `spark` is installed and new enough.

    Args:
        what: The feature that needs it, for the start of the message.

    Raises:
        MissingExtraError: If one of its libraries is missing or too old.
    """
    for name, least in _NEEDED.items():
        found = _installed(name)
        if found is None:
            raise MissingExtraError(what, extra="spark", name=name)
        if found < least:
            needed = f"{name}>={'.'.join(map(str, least))}"
            raise MissingExtraError(
                f"{what} found {name} {'.'.join(map(str, found))} and", extra="spark", name=needed
            )


def _installed(name: str) -> tuple[int, ...] | None:
    if find_spec(name) is None:
        return None
    for distribution in (name, *(_SPARK_ALONE if name == "pyspark" else ())):
        try:
            text = version(distribution)
        except PackageNotFoundError:
            continue
        return _numbers(text)
    # On the path without being installed, like `pyspark` in SPARK_HOME: `spark-submit`, Spark's own images.
    return _numbers(str(getattr(import_module(name), "__version__", ""))) or None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text)[:2])


def check_java(environment: Mapping[str, str] | None = None) -> int:
    """Check that Spark will find a suitable Java where Spark itself looks: `JAVA_HOME`, then the path.

    Args:
        environment: By default that of this process.

    Returns:
        Its version, e.g. 17.

    Raises:
        JavaError: If there is none, if it cannot be run, or if it is too old.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    where = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", ""))
    remedy = f"install Java {JAVA_NEEDED} or later, e.g. a JRE of Temurin or of the system, and set JAVA_HOME to it"
    if where is None or shutil.which(where) is None:
        missing = f"JAVA_HOME is {home!r}, which lacks bin/java" if home else "there is no java on the PATH"
        raise JavaError(f"Spark needs Java, but {missing}: {remedy}", needed=JAVA_NEEDED)
    try:
        said = subprocess.run(  # its version goes to stderr
            [where, "-version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{where} cannot be run ({error}): {remedy}", needed=JAVA_NEEDED) from error
    match = _JAVA_VERSION.search(said)
    if match is None:
        raise JavaError(f"{where} does not print its version: {remedy}", needed=JAVA_NEEDED)
    found = int(match[1])
    if found < JAVA_NEEDED:
        raise JavaError(
            f"{where} is Java {found}, but Spark needs {JAVA_NEEDED}: {remedy}",
            found=found,
            needed=JAVA_NEEDED,
        )
    return found
