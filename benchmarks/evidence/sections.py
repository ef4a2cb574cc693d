"""The JSON of `python -m benchmarks` as the objects that it came from. Used by `medians`, `tables`, `plots`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks import judge
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
    """Every target of today, judged by the figures, with the name of its section.

    What the run itself was judged by is in its JSON under `targets`; a target that was set later counts at once.
    """
    results = {section: results_of(figures, section) for section in figures["sections"]}
    judged = judge.judge(results, figures["others"])
    return [(section, each) for section, found in judged.items() for each in found]
