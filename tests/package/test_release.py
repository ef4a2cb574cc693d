"""What `make release` and `make lock` write and check, as far as it can be tried offline.

1. The lock file fits pyproject.toml: after a change of a requirement run `make lock`.
2. It says nothing of where it was made.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.release import LOCK, SUMS, WHEEL_LIMIT, locked, problems, write_sums

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


METADATA = """\
Metadata-Version: 2.4
Name: aioproduce
Version: 0.1.0
Author: Somebody
License-Expression: MIT
License-File: LICENSE
Keywords: kafka
Requires-Python: >=3.11
Classifier: Typing :: Typed
Project-URL: Homepage, https://a.test
Project-URL: Documentation, https://a.test
Project-URL: Source, https://a.test
Project-URL: Issues, https://a.test
Project-URL: Changelog, https://a.test

A text with [a link](https://a.test).
"""
WHEEL = "aioproduce-0.1.0-cp311-cp311-linux_x86_64.whl"
EXTENSION = "aioproduce/_native/delivery.cpython-311-x86_64-linux-gnu.so"


def packages(folder: Path, files: dict[str, bytes] | None = None, *, metadata: str = METADATA) -> Path:
    """A wheel and a source distribution that are as they should be, but for the files and the metadata given."""
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, content in {
            EXTENSION: b"\0.text\0.data\0",
            "aioproduce/__init__.py": b"",
            **(files or {}),
        }.items():
            wheel.writestr(name, content)
        wheel.writestr("aioproduce-0.1.0.dist-info/METADATA", metadata)
    with tarfile.open(folder / "aioproduce-0.1.0.tar.gz", "w:gz") as sdist:
        member = tarfile.TarInfo("aioproduce-0.1.0/PKG-INFO")
        member.size = len(METADATA)
        sdist.addfile(member, io.BytesIO(METADATA.encode()))
    return folder


def test_nothing_is_wrong_with_what_is_right(tmp_path: Path) -> None:
    assert problems(packages(tmp_path), {"Typing :: Typed"}) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({EXTENSION: b"\0.text\0.symtab\0"}, f"{EXTENSION} is not stripped"),
        ({EXTENSION: b"\0.text\0.debug_info\0"}, f"{EXTENSION} is not stripped"),
        ({"tests/a.py": b""}, "tests/a.py would be installed outside of the packages"),
        ({"aioproduce/a.c": b""}, "aioproduce/a.c was made by Cython, and is not to be packed"),
    ],
)
def test_what_must_not_be_packed_is_found(tmp_path: Path, files: dict[str, bytes], problem: str) -> None:
    assert problems(packages(tmp_path, files), {"Typing :: Typed"}) == [f"{WHEEL}: {problem}"]


def test_a_wheel_that_is_too_large_is_found(tmp_path: Path) -> None:
    # Stored, not compressed: the whole of it counts.
    packages(tmp_path, {"aioproduce/a.bin": os.urandom(WHEEL_LIMIT)})
    (problem,) = problems(tmp_path, {"Typing :: Typed"})
    assert problem.endswith("bytes are more than 4,000,000")


@pytest.mark.parametrize(
    ("line", "changed", "problem"),
    [
        ("Author: Somebody\n", "", "the field Author is missing"),
        ("Keywords: kafka\n", "", "the field Keywords is missing"),
        ("Project-URL: Issues, https://a.test\n", "", "the link Issues is missing"),
        ("Typing :: Typed", "Typing :: Untyped", "Typing :: Untyped is not a known classifier"),
        ("(https://a.test)", "(docs/a.md)", "the link docs/a.md leads nowhere on an index"),
        ("(https://a.test)", "(#a)", "the link #a leads nowhere on an index"),
        ("A text with [a link](https://a.test).\n", "", "the text for the index is missing"),
    ],
)
def test_metadata_that_an_index_would_show_wrongly_is_found(
    tmp_path: Path, line: str, changed: str, problem: str
) -> None:
    assert line in METADATA
    packages(tmp_path, metadata=METADATA.replace(line, changed))
    assert problems(tmp_path, {"Typing :: Typed"}) == [f"{WHEEL}: {problem}"]


def test_packages_of_two_versions_are_found(tmp_path: Path) -> None:
    packages(tmp_path, metadata=METADATA.replace("Version: 0.1.0", "Version: 0.2.0"))
    assert problems(tmp_path, {"Typing :: Typed"}) == ["there are several versions: 0.1.0, 0.2.0"]


def test_a_folder_without_packages_is_not_right(tmp_path: Path) -> None:
    assert problems(tmp_path, {"Typing :: Typed"}) == [
        "there is no wheel",
        "there are 0 source distributions, not one",
    ]


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
