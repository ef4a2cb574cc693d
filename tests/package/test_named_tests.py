"""The tests that pages name exist: a renamed test or file must be renamed on its page, too."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "tests/**/*.md")
    for page in ROOT.glob(pattern)
    if "`tests/" in page.read_text() or ".py::" in page.read_text()
)
NAMED = re.compile(r"`(?:tests/)?([\w/.-]+\.py)::([\w:]+)`")
FILE = re.compile(r"`(tests/[\w/.-]+\.\w+)`")
BARE = re.compile(r"`([\w/.-]+\.py)`")


@functools.cache
def source(path: str) -> str:
    file = TESTS / path
    return file.read_text() if file.is_file() else ""


def has(path: str, name: str) -> bool:
    """Whether the file has such a test, class, or test case that Hypothesis makes of a class."""
    made = rf"^\s*(?:async def|def|class) {name}\b|^{name}\b.* = "
    return re.search(made, source(path), re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    named = set(NAMED.findall(page.read_text()))
    wrong = {
        f"{path}::{name}" for path, name in named if not all(has(path, each) for each in name.split("::"))
    }
    missing = {path for path in FILE.findall(page.read_text()) if not (ROOT / path).is_file()}
    assert wrong | missing == set()


def test_every_file_that_the_tests_page_names_is_there() -> None:
    """With its folder or, in the table of a part, without."""
    there = {file.as_posix() for file in ROOT.glob("[!.]*/**/*.py")} | {
        file.as_posix() for file in ROOT.glob("*.py")
    }
    page = TESTS / "README.md"
    named = set(BARE.findall(page.read_text()))
    assert len(named) > 80
    assert {name for name in named if not any(file.endswith(f"/{name}") for file in there)} == set()


def test_the_pages_name_many() -> None:
    """Or the pattern has ceased to find them."""
    assert len(NAMED.findall((TESTS / "README.md").read_text())) > 400
