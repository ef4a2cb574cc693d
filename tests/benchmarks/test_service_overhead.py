"""The measure of the FastAPI dependency, run small: it counts what it sends, and reckons as it says."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.service_overhead import ROUTES, STEPS, overheads, shuffled
from tests.benchmarks.test_benchmarks import broker_options

if TYPE_CHECKING:
    from pathlib import Path


def test_the_command_measures_every_route_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.service_overhead", "--requests", "5", "--json", str(file)]
    answer = subprocess.run(
        [*command, *broker_options()], capture_output=True, text=True, check=False, timeout=250
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "added, p50, microseconds" in answer.stdout
    assert "fastapi 0." in answer.stdout
    found = json.loads(file.read_text())
    assert set(found["requests"]) == set(found["added"]) == {"direct, wall", "direct, CPU", "uvicorn, wall"}
    for way, requests in found["requests"].items():
        assert set(requests) == set(ROUTES)
        assert {len(taken) for taken in requests.values()} == {5}
        bare, waited = (statistics.median(requests[route]) for route in ("bare", "send_and_wait"))
        told = found["added"][way]["ProducerDep and send_and_wait()"]["p50_difference"]
        assert told == pytest.approx(1e6 * (waited - bare))


def test_a_step_is_what_it_adds_in_its_own_round() -> None:
    """A machine that gets slower from round to round changes the medians of both, and not what one adds."""
    found = {route: [number * 1e-3 for number in (1, 2, 3)] for route in ROUTES}
    found["dependency"] = [taken + 20e-6 for taken in found["bare"]]
    found["nothing"] = [taken + 5e-6 for taken in found["bare"]]
    added = overheads(found)
    assert added["ProducerDep"]["paired_p50"] == pytest.approx(20)
    assert added["finding the producer"]["paired_p50"] == pytest.approx(15)
    assert {route for _, *pair in STEPS for route in pair} == set(ROUTES)


def test_every_round_has_every_route_and_another_order() -> None:
    orders = {tuple(shuffled(number)) for number in range(50)}
    assert len(orders) > 40
    assert all(sorted(order) == sorted(ROUTES) for order in orders)
