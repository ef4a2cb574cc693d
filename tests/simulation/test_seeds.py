"""Seeds: each is a producer's life with everything that can go wrong, judged by the oracle (`ledger`)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioproduce.testing.simulation import KINDS
from tests.gate.marks import others_extended
from tests.simulation.case import FAIR, MODES, Case, make_case
from tests.simulation.mutants import MUTANTS, WHERE
from tests.simulation.run import run_case
from tests.simulation.shrink import describe, kinds_of, shrink
from tests.simulation.witness import REGRESSIONS, has_stand_in, stand_in_for

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = 200
"""What the tests run of them, the gate every fourth; `make soak` runs 10,000."""

IN_THE_GATE = [seed if seed != 100 else 101 for seed in range(0, SEEDS, 4)]
"""Seed 100 takes more processor time than a test of the gate may."""

HUNTING = 60
"""In how many seeds a bug has to show once; `python -m tests.simulation --mutants` tells in how many it does."""

HASHES = """
from tests.simulation.case import make_case
from tests.simulation.run import run_case
for seed in (1, 2):
    for is_bare in (False, True):
        for mode in ("idempotent", "acks=1"):
            print(run_case(make_case(seed, is_bare=is_bare, mode=mode, weather="storm")).trace_hash)
"""


@pytest.mark.parametrize(
    "seed", others_extended(range(SEEDS), keep=IN_THE_GATE, reason="more cases of the same kind")
)
def test_seed(seed: int) -> None:
    outcome = run_case(make_case(seed))
    assert not outcome.violations, f"{outcome.case}\n{describe(outcome.violations)}"


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_went_wrong(path: Path) -> None:
    outcome = run_case(Case.from_json(path.read_text()))
    assert not outcome.violations, f"{outcome.case}\n{describe(outcome.violations)}"


@pytest.mark.extended("starts two interpreters for eight runs")
def test_the_same_seed_is_the_same_run_in_another_process_with_another_hash_seed() -> None:
    hashes = []
    for hash_seed in ("1", "77"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        finished = subprocess.run(
            [sys.executable, "-c", HASHES], env=environment, capture_output=True, text=True, check=True
        )
        hashes.append(finished.stdout.split())
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == len(hashes[0]) == 8


@pytest.mark.patches_core
@pytest.mark.parametrize(
    "name",
    others_extended(
        MUTANTS,
        keep=[name for name in MUTANTS if has_stand_in(name)],
        reason="searches many seeds",
    ),
)
def test_a_bug_on_purpose_is_noticed(name: str) -> None:
    stand_in = stand_in_for(name)
    if stand_in is not None:
        assert stand_in.notices, stand_in
        return
    with MUTANTS[name]():
        for seed in range(HUNTING):
            violations = run_case(make_case(seed, **WHERE.get(name, {}))).violations
            assert not any("TypeError" in violation for violation in violations), "it fits the code no more"
            if violations:
                return
    pytest.fail(f"no seed below {HUNTING} notices that {name}")


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = {fault.kind for seed in range(SEEDS) for fault in make_case(seed).faults}
    assert drawn == set(KINDS)
    assert set(FAIR) <= set(KINDS)


def test_every_mode_is_drawn_on_either_side() -> None:
    modes = {make_case(seed).mode for seed in range(SEEDS)}
    assert len(modes) == 2 * len(MODES)


def test_a_case_survives_its_file() -> None:
    case = make_case(4)
    assert Case.from_json(case.to_json()) == case


@pytest.mark.extended("runs one case many times")
@pytest.mark.patches_core
def test_shrinking_finds_what_it_takes() -> None:
    case = make_case(3, mode="idempotent", weather="squall", is_bare=True)
    with MUTANTS["idempotence off"]():
        small = shrink(case, run_case)
        outcome = run_case(small)
    assert "D" in kinds_of(outcome)
    assert len(small.faults) == 1
    assert len(small.bursts) <= 2
    assert not run_case(small).violations
