"""What the tests want on another interpreter: every requirement of an extra, and which of them is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.gate.installing import missing, wanted

if TYPE_CHECKING:
    from pathlib import Path

PYPROJECT = """
[project]
dependencies = ["pytest>=9"]
[project.optional-dependencies]
dev = ["aioproduce[fast,wire]", "no-such-library>=1; python_version < '4'", "pytest-xdist[psutil]>=3"]
fast = ["uvloop>=0.21; sys_platform != 'win32'"]
wire = ["aioproduce[fast]", "no-such-wire[all]>=2"]
"""


def test_the_projects_own_extras_are_resolved(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(PYPROJECT)
    assert wanted("dev", pyproject) == [
        "pytest>=9",
        "no-such-library>=1; python_version < '4'",
        "pytest-xdist[psutil]>=3",
        "uvloop>=0.21; sys_platform != 'win32'",
        "no-such-wire[all]>=2",
    ]


def test_what_is_not_installed_is_named_as_it_was_wanted() -> None:
    assert missing(["pytest>=9", "no-such-library>=1; python_version < '4'", "pytest-xdist[psutil]>=3"]) == [
        "no-such-library>=1; python_version < '4'"
    ]


def test_the_real_file_can_be_read() -> None:
    found = wanted("dev")
    assert any(requirement.startswith("kio") for requirement in found)
    assert not any(requirement.startswith("aioproduce") for requirement in found)
