"""The settings of the site let nothing dead through: `make docs` is in the gate, and fails as these builds do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

pytest.importorskip("sphinx", reason="needs the extra docs")
pytestmark = pytest.mark.extended(
    "runs Sphinx for 2 s in each case; `make docs` builds the whole site in the gate"
)

BAD = {
    "a dead link": ("# A\n\n[x](nowhere.md)\n", "nowhere"),
    "a dead anchor": ("# A\n\n[x](index.md#nowhere)\n", "nowhere"),
    "a dead anchor of its own": ("# A\n\n[x](#nowhere)\n", "nowhere"),
    "a file that is not there": ("# A\n\n[x](../nowhere.py)\n", "nowhere"),
    "a name that is not there": ("# A\n\n```{eval-rst}\n:py:class:`aioproduce.Prodcuer`\n```\n", "Prodcuer"),
}


def build(folder: Path, page: str, contents: str = "a") -> subprocess.CompletedProcess[str]:
    docs = folder / "docs"
    shutil.copytree(ROOT / "docs" / "_extensions", docs / "_extensions")
    (docs / "_static").mkdir()
    for name in ("docs/conf.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "aioproduce").symlink_to(ROOT / "aioproduce")
    (docs / "index.md").write_text(f"# Index\n\n```{{toctree}}\n{contents}\n```\n")
    (docs / "a.md").write_text(page)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "dummy", "docs", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_good_page_is_built(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    done = build(
        tmp_path, "# A\n\n[x](index.md#index), [a file](../pyproject.toml), [a folder](../examples)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_page_fails(name: str, tmp_path: Path) -> None:
    page, words = BAD[name]
    done = build(tmp_path, page)
    assert done.returncode == 1
    assert words in done.stderr


def test_a_page_that_no_contents_list_names_fails(tmp_path: Path) -> None:
    done = build(tmp_path, "# A\n", contents="")
    assert done.returncode == 1
    assert "a.md" in done.stderr
