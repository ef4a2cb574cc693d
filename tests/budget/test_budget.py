"""No record costs more work than was recorded, nor less without a note of it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from aioproduce import build_info
from tests.budget import ledger, measure
from tests.budget.measure import CannotMeasureError, Figures
from tests.budget.program import TRANSACTIONS

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("AIOPRODUCE_PURE") == "1" or not build_info().compiled,
        reason="the budget is that of the compiled hot path: 'make native' builds it",
    ),
]


def measured(kind: Callable[[], Figures]) -> Figures:
    try:
        return kind()
    except CannotMeasureError as error:
        pytest.skip(str(error))


def test_frames_and_calls_per_record() -> None:
    assert ledger.findings("frames", measured(measure.frames)) == []


def test_what_a_kept_delivery_keeps() -> None:
    assert ledger.findings("live", measured(measure.live)) == []


def test_a_record_in_a_transaction_enters_no_frame_more() -> None:
    figures = measured(measure.frames_in_transaction)
    for figure, without in figures["dropped"].items():
        # The share of what is asked once a batch and once a step: some 45 frames in 600 records.
        assert figures["in_transaction"][figure] <= without + 0.1


@pytest.mark.extended("takes 20 s under valgrind; frames and calls stay in the gate")
def test_a_record_in_a_transaction_takes_one_percent_more_instructions_at_most() -> None:
    figures = measured(lambda: measure.instructions(None, TRANSACTIONS))
    without, within = (figures[mode]["instructions"] for mode in ("dropped", "in_transaction"))
    assert within <= without * 1.01


@pytest.mark.extended("takes 25 s under valgrind; frames, calls and objects stay in the gate")
def test_instructions_per_record() -> None:
    assert ledger.findings("instructions", measured(measure.instructions)) == []


BUDGET: Figures = {"reference": {"instructions": 1000.0}, "dropped": {"instructions": 2000.0}}


@pytest.mark.parametrize(
    ("instructions", "word"), [(2061.0, "dearer"), (1939.0, "cheaper"), (2059.0, None), (1941.0, None)]
)
def test_a_difference_in_either_direction_is_a_finding(instructions: float, word: str | None) -> None:
    found = ledger.compare(
        {"reference": {"instructions": 1000.0}, "dropped": {"instructions": instructions}},
        BUDGET,
        tolerance=0.03,
    )

    assert len(found) == (word is not None)
    if word is not None:
        assert found[0].startswith(f"dropped became {word}:")
        assert "python -m tests.budget --record" in found[0]


def test_a_mode_without_a_budget_and_a_budget_without_a_mode_are_findings() -> None:
    assert len(ledger.compare({"new": {"frames": 1.0}}, BUDGET, tolerance=0.01)) == 3


@pytest.mark.parametrize(("instructions", "is_found"), [(4000.0, False), (5500.0, True), (1000.0, False)])
def test_elsewhere_the_reference_work_is_the_measure(
    monkeypatch: pytest.MonkeyPatch, instructions: float, is_found: bool
) -> None:
    kept = {"instructions": {"3.0": {"environment": {"python": "another"}, "per record": BUDGET}}}
    monkeypatch.setattr(ledger, "recorded", lambda: kept)
    # This Python takes twice as many for the same work, so ours may, too.
    figures: Figures = {"reference": {"instructions": 2000.0}, "dropped": {"instructions": instructions}}

    assert bool(ledger.findings("instructions", figures)) is is_found


@pytest.mark.parametrize(("frames", "is_found"), [(2.6, False), (2.9, True), (1.0, False)])
def test_with_a_python_that_nothing_is_recorded_of_the_newest_is_the_measure(
    monkeypatch: pytest.MonkeyPatch, frames: float, is_found: bool
) -> None:
    kept = {"frames": {"3.9": {"dropped": {"frames": 9.0}}, "3.10": {"dropped": {"frames": 2.0}}}}
    monkeypatch.setattr(ledger, "recorded", lambda: kept)

    assert bool(ledger.findings("frames", {"dropped": {"frames": frames}})) is is_found
