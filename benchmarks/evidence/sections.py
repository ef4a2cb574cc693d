"""The JSON of `python -m benchmarks` as the objects that it came from. Used by `medians`, `tables`, `plots`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.cases import Case
from benchmarks.judge import Judgement
from benchmarks.runner import Result


def results_of(figures: Mapping[str, Any], section: str) -> list[Result]:
    """A section's cases, with their medians and rounds."""
    return [
        Result(Case.from_json(json.dumps(each["case"])), each["median"], each["rounds"])
        for each in figures["sections"][section]
    ]


def judgements_of(figures: Mapping[str, Any]) -> list[tuple[str, Judgement]]:
    """Every target, with the name of its section."""
    return [
        (section, Judgement(**{name: value for name, value in each.items() if name != "is_met"}))
        for section, judged in figures["targets"].items()
        for each in judged
    ]
