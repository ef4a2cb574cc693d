"""What `make release` and `make lock` write, as far as it can be tried offline: the audit itself asks a database.

1. The lock file fits pyproject.toml: whoever changes a requirement runs `make lock`.
2. It says nothing of where it was made.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.release import LOCK, SUMS, locked, write_sums

CHECKOUT = Path(__file__).parents[2]
LINE = re.compile(r"([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")
CI = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11", "extra": ""}


def report(**archive: object) -> dict[str, Any]:
    """A report in the form that pip's documentation has."""
    url = "https://registry.test/a/Typed_Thing-1.2-py3-none-any.whl"
    return {
        "version": "1",
        "environment": {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11"},
        "install": [
            {
                "download_info": {"url": "file:///somewhere", "dir_info": {}},
                "metadata": {"name": "aioproduce", "version": "0.1.0"},
            },
            {
                "download_info": {"url": url, "archive_info": archive},
                "metadata": {"name": "Typed_Thing", "version": "1.2"},
            },
        ],
    }


def test_a_line_of_the_lock_file() -> None:
    head, line = locked(report(hashes={"sha256": "ab" * 32})).splitlines()
    assert head.startswith("# What pip chooses for aioproduce[dev] on linux x86_64, Python 3.11.")
    assert line == f"typed-thing==1.2 --hash=sha256:{'ab' * 32}"


def test_a_package_without_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Typed_Thing 1\.2 has no SHA-256"):
        locked(report())


def read_lock() -> dict[str, str]:
    _, *lines = LOCK.read_text().splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found)  # nothing else is in it, no address either
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def required(extra: str = "dev") -> list[Requirement]:
    """What an extra asks for, with the extras that it names itself."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(text) for text in project["optional-dependencies"][extra]]
    own = [name for each in asked if each.name == "aioproduce" for name in each.extras]
    others = [each for each in asked if each.name != "aioproduce"]
    return others + [each for name in own for each in required(name)]


def test_the_lock_file_fits_what_is_required() -> None:
    lock = read_lock()
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted = required() + [Requirement(text) for text in project["dependencies"]]
    wrong = [
        str(each)
        for each in wanted
        if each.marker is None or each.marker.evaluate(CI)
        if not each.specifier.contains(lock.get(canonicalize_name(each.name), "0"))
    ]
    assert wrong == [], "run `make lock`"
    assert len(wanted) > 60


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum on this system")
def test_sums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "b.tar.gz").write_bytes(b"b")
    write_sums(tmp_path)

    def check() -> int:
        command = ["sha256sum", "--check", "--strict", SUMS]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert check() == 0
    assert len((tmp_path / SUMS).read_text().splitlines()) == 2
    (tmp_path / "a.whl").write_bytes(b"another")
    assert check() == 1
    write_sums(tmp_path)  # again: its own file is not counted
    assert check() == 0


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    done = subprocess.run(
        [sys.executable, "-m", "tests.release", "sums", str(tmp_path)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    # Of the one letter, as sha256sum has it.
    assert done.stdout == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a.whl\n"
