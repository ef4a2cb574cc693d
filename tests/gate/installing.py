"""`python -m tests.gate.installing [--missing]`: install what the tests want, or only say what is not installed.

For `make test-python`: a library may have no build for the newest Python. Then all others are installed, and the
tests that import it fail, so that nobody takes them for passed.

1. Where everything is to be had this is `pip install --editable '.[dev]'`, with pip's own choice of versions.
2. What is not there afterwards is named, whether pip failed or the project leaves it out on this interpreter.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
OURS: Final = "aioproduce"
_REQUIREMENT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?:\[(?P<extras>[^]]*)\])?")


def wanted(extra: str, pyproject: Path = REPOSITORY / "pyproject.toml") -> list[str]:
    """The requirements of the project and of an extra, in which the names of our own extras are resolved.

    Args:
        extra: Its name in `project.optional-dependencies`.
        pyproject: The file.
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    found = list(project["dependencies"])
    extras = [extra]
    for name in extras:
        for requirement in project["optional-dependencies"][name]:
            parts = _parts(requirement)
            if parts["name"] == OURS:
                extras += [other.strip() for other in parts["extras"].split(",")]
            else:
                found.append(requirement)
    return list(dict.fromkeys(found))


def missing(requirements: list[str]) -> list[str]:
    """Those whose distribution is not installed, of whatever version."""
    return [requirement for requirement in requirements if not _is_installed(_parts(requirement)["name"])]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _parts(requirement: str) -> dict[str, str]:
    found = _REQUIREMENT.match(requirement)
    assert found is not None, requirement
    return found.groupdict("")


def _install(*arguments: str) -> bool:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--no-build-isolation"]
    return subprocess.run([*pip, *arguments], cwd=REPOSITORY, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Install unless told not to, and tell; the exit status is that of our own installation."""
    requirements = wanted("dev")
    is_installed = arguments == ["--missing"] or _install("--editable", ".[dev]")
    if not is_installed:
        for requirement in requirements:
            _install(requirement)
        is_installed = _install("--no-deps", "--editable", ".")
    for requirement in missing(requirements):
        print(f"not installed on Python {sys.version.split()[0]}: {requirement}", file=sys.stderr)
    return 0 if is_installed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
