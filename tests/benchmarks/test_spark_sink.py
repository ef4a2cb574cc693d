"""The figures of `benchmarks.spark_sink`: medians, percentiles, and what is asked."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from benchmarks.spark_sink import CONTENDERS, DEFAULT, OWN_WORK, STAMPED, TUNED_NONE, Run, figures, targets


def runs() -> list[Run]:
    seconds = {DEFAULT: 2.0, TUNED_NONE: 1.0, OWN_WORK: 0.8, STAMPED: 1.0}
    found = []
    for contender in CONTENDERS:
        took = seconds.get(contender.name, 0.5)
        found += [
            Run(contender.name, 1_000_000, took * factor, took, 106, is_small=False)
            for factor in (1.0, 0.5, 4.0)
        ]
        found += [Run(contender.name, 1000, number / 100, 0.1, 1, is_small=True) for number in range(1, 101)]
    return found


def test_medians_and_percentiles() -> None:
    found = figures(runs())[OWN_WORK]
    expected = {
        "rows_per_s": 1_250_000,
        "rows_per_s_min": 312_500,
        "rows_per_s_max": 2_500_000,
        "cpu_s_per_million": 0.8,
        "requests_per_million": 106,
        "batch_p50_s": 0.505,
        "batch_p99_s": 0.99,
    }
    assert found == pytest.approx(expected)


def test_what_is_asked_is_told_as_met_or_missed() -> None:
    told = targets(runs())
    values = {what: value for what, value, _, _ in told}
    assert values["rows/s of the tuned sink at its own work"] == pytest.approx(1.25)
    assert values["goal: rows/s of the default sink"] == pytest.approx(2.5)
    assert values["stamping: fewer rows/s"] == pytest.approx(0.2)
    assert values["stamping: more CPU"] == pytest.approx(0.25)
    missed = [what for what, _, _, is_met in told if not is_met]
    assert missed == ["stamping: fewer rows/s", "stamping: more CPU"]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """The machine is half as fast in the second round, and the third one is of no use."""
    rounds = {TUNED_NONE: (3.0, 6.0, 3.0), OWN_WORK: (1.0, 2.0, 9.0)}
    found = [
        Run(name, 1_000_000, seconds, 1.0, 1, is_small=False)
        for name, taken in rounds.items()
        for seconds in taken
    ]
    assert targets(found) == [("rows/s of the tuned sink at its own work", 3.0, "at least 1.0", True)]
