"""Seeds of transactions: two transactional ids and their rivals for an hour, judged by `transaction_ledger`."""

from __future__ import annotations

import pytest

from aioproduce.testing.simulation import TRANSACTION_KINDS
from tests.gate.marks import others_extended
from tests.simulation.case_transactional import ENDINGS, TransactionalCase, make_transactional
from tests.simulation.mutants_transactions import TRANSACTIONAL_MUTANTS
from tests.simulation.run_transactional import run_transactional
from tests.simulation.shrink import describe

SEEDS = 200
"""What the tests run of them; `python -m tests.simulation --transactional --seeds 2000` runs more."""

IN_THE_GATE = range(0, SEEDS, 5)
HUNTING = 12


@pytest.mark.parametrize(
    "seed", others_extended(range(SEEDS), keep=IN_THE_GATE, reason="more cases of the same kind")
)
def test_seed(seed: int) -> None:
    outcome = run_transactional(make_transactional(seed))
    assert not outcome.violations, f"{outcome.case}\n{describe(outcome.violations)}"


@pytest.mark.patches_core
@pytest.mark.parametrize("name", TRANSACTIONAL_MUTANTS)
def test_a_bug_on_purpose_is_noticed(name: str) -> None:
    mutant = TRANSACTIONAL_MUTANTS[name]
    with mutant.bug():
        for seed in sorted(range(HUNTING), key=lambda seed: seed != mutant.seed):
            violations = run_transactional(make_transactional(seed, **mutant.where)).violations
            assert not any("TypeError" in violation for violation in violations), "it fits the code no more"
            if violations:
                return
    pytest.fail(f"no seed below {HUNTING} notices {name}")


def test_every_kind_of_fault_and_every_ending_is_drawn() -> None:
    cases = [make_transactional(seed) for seed in range(SEEDS)]
    assert set(TRANSACTION_KINDS) <= {fault.kind for case in cases for fault in case.faults}
    assert {plan.ending for case in cases for plan in case.bursts} == set(ENDINGS)
    assert {case.version for case in cases} == {1, 2}


def test_a_case_survives_its_file_and_is_the_same_run() -> None:
    case = make_transactional(4)
    assert TransactionalCase.from_json(case.to_json()) == case
    assert run_transactional(case).trace_hash == run_transactional(case).trace_hash
