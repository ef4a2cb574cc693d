"""Seeds over TLS and with logins: those of `test_seeds`, with the stand-in, tokens, sessions, and their faults."""

from __future__ import annotations

import pytest

from aioproduce.testing.simulation import SECURITY_KINDS
from tests.gate.marks import others_extended
from tests.simulation.case import SECURITIES, SECURITIES_OF_A_DAY, Case, make_case, secured
from tests.simulation.mutants_security import SECURITY_MUTANTS
from tests.simulation.run import run_case
from tests.simulation.shrink import describe, kinds_of

SEEDS = 120
IN_THE_GATE = (0, 12, 24, 36, 40, 44, 48, 56, 64, 68, 72, 84, 88)
"""Of each security one at least, and none of the costly weathers."""

HUNTING = 40


@pytest.mark.parametrize(
    "seed", others_extended(range(SEEDS), keep=IN_THE_GATE, reason="more cases of the same kind")
)
def test_seed(seed: int) -> None:
    outcome = run_case(secured(make_case(seed)))
    assert not outcome.violations, f"{outcome.case}\n{describe(outcome.violations)}"


@pytest.mark.patches_core
@pytest.mark.parametrize("name", SECURITY_MUTANTS)
def test_a_bug_on_purpose_is_noticed(name: str) -> None:
    mutant = SECURITY_MUTANTS[name]
    with mutant.bug():
        for seed in sorted(range(HUNTING), key=lambda seed: seed != mutant.seed):
            case = secured(make_case(seed, weather=mutant.weather), mutant.security)
            if mutant.letter in kinds_of(run_case(case)):
                return
    pytest.fail(f"no seed below {HUNTING} notices {name}")


def test_every_security_and_every_fault_of_it_is_drawn() -> None:
    cases = [secured(make_case(seed)) for seed in range(SEEDS)]
    assert {case.security for case in cases} == {*SECURITIES, *SECURITIES_OF_A_DAY}
    assert set(SECURITY_KINDS) <= {fault.kind for case in cases for fault in case.faults}


def test_all_else_of_a_seed_is_as_it_was_and_old_files_are_read() -> None:
    plain, case = make_case(4), secured(make_case(4))
    assert case.faults[: len(plain.faults)] == plain.faults
    assert (case.bursts, case.settings) == (plain.bursts, plain.settings)
    assert Case.from_json(case.to_json()) == case
    assert Case.from_json(plain.to_json().replace(',\n "security": ""', "")) == plain


def test_the_same_seed_is_the_same_run() -> None:
    case = secured(make_case(2, weather="squall"), "SASL_SSL/OAUTHBEARER/7000")
    assert run_case(case).trace_hash == run_case(case).trace_hash
