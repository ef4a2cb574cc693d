"""The page of tiers: each test that is not in the gate is on it with its reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.gate.quick import REPOSITORY
from tests.gate.table import CANNOT_TELL, Collected, make_page

FILE = """
    import pytest

    def test_in_the_gate(): ...

    @pytest.mark.parametrize("n", [1, 2, pytest.param(3, marks=pytest.mark.extended("more of | the same"))])
    def test_some(n): ...

    @pytest.mark.native
    def test_built(): ...
"""


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    """A pytest that knows the marks and nothing else of this repository."""
    pytester.makeini("[pytest]\nmarkers =\n  extended(reason)\n  native\n")
    return pytester


def collect(inner: pytest.Pytester, source: str) -> list[pytest.Item]:
    """What a pytest collects from a file."""
    collected = Collected()
    inner.makepyfile(**{"unit/test_it": source})
    inner.inline_run("--collect-only", "-q", "-p", "no:asyncio", plugins=[collected])
    return collected.items


def test_a_page_counts_tiers_and_gives_reasons(inner: pytest.Pytester) -> None:
    page = make_page(collect(inner, FILE))

    assert "| `unit` | 3 | 1 | 1 |" in page
    assert "| `all` | 3 | 1 | 1 |" in page
    assert "| `unit/test_it.py::test_some` | extended | 1 | more of \\| the same | 2 |" in page
    assert "| `unit/test_it.py::test_built` | native | 1 |" in page
    assert "test_in_the_gate" not in page


def test_a_mark_without_a_reason_is_refused(inner: pytest.Pytester) -> None:
    items = collect(inner, "import pytest\n@pytest.mark.extended\ndef test_it(): ...")

    with pytest.raises(ValueError, match="give `extended` its reason"):
        make_page(items)


def test_a_file_that_is_left_out_is_told(inner: pytest.Pytester) -> None:
    collected = Collected()
    inner.makepyfile(
        **{"unit/test_it": "import pytest\npytest.importorskip('no_such_library')\ndef test_it(): ..."}
    )
    inner.inline_run("--collect-only", "-q", "-p", "no:asyncio", plugins=[collected])

    (told,) = collected.left_out
    assert told.startswith("unit/test_it.py: ")
    assert "no_such_library" in told


@pytest.mark.extended("collects all tests again")
def test_the_page_is_up_to_date() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.gate.table", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode == CANNOT_TELL:
        pytest.skip(told.stderr)
    assert told.returncode == 0, told.stderr
