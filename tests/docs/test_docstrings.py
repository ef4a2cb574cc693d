"""The examples of docstrings run, or are listed as shown, with the reason."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.docs.docstrings import SHOWN, VARIES, Example, examples, run

ALL = examples()
RUN = [example for example in ALL if example.name not in SHOWN]


@pytest.mark.parametrize("example", RUN, ids=lambda example: example.name)
async def test_it_runs(example: Example, tmp_path: Path) -> None:
    await run(example, tmp_path)


def test_there_are_many() -> None:
    """Or they are no longer found."""
    assert len(ALL) > 150


def test_what_is_listed_is_there() -> None:
    assert {*SHOWN, *VARIES} - {example.name for example in ALL} == set()


def test_none_is_skipped_that_runs() -> None:
    """For a plain `doctest`, which knows no `await` and no cluster, only those that run nowhere say so."""
    skipped = [each.name for each in RUN if any(doctest.SKIP in step.options for step in each.steps)]
    assert skipped == [], "these run: take away their # doctest: +SKIP"
