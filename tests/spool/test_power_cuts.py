"""The log survives power cuts: see `crash_script` for what is promised, `lossy_disk` for what a cut may leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.spool.crash_script import CrashScript, PromiseBroken
from tests.spool.mutants import MUTANTS

_OPERATIONS = 200
# A write that is cut after eight bytes, in front of an old batch, is rare: the seeds before it are left out.
_FIRST_SEEDS = {"offset not in the checksum": 29, "slot not alternated": 1}


def _look_at(states: int, first_seed: int, states_per_cut: int, fault_rate: float) -> int:
    """Run scripts until so many states were looked at; return how many."""
    seen = 0
    for seed in itertools.count(first_seed):
        script = CrashScript(seed, _OPERATIONS, states_per_cut, fault_rate)
        script.run()
        seen += script.states
        if seen >= states:
            break
    return seen


@pytest.mark.parametrize("fault_rate", [0.0, 0.05, 0.2])
def test_a_cut_before_any_effect_keeps_every_promise(fault_rate: float) -> None:
    assert _look_at(1_000, 0, 4, fault_rate) >= 1_000


@pytest.mark.extended("more states, the same promises")
@pytest.mark.timeout(1800)  # beside other work one took more than the usual 300 s
@pytest.mark.parametrize("fault_rate", [0.0, 0.05, 0.2])
def test_a_hundred_thousand_states_keep_every_promise(
    fault_rate: float, record_property: Callable[[str, object], None]
) -> None:
    record_property("states", _look_at(100_000, 100, 80, fault_rate))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(_FIRST_SEEDS.get(name, 0), 60):
        try:
            CrashScript(seed, _OPERATIONS, 2, 0.1).run()
        except (PromiseBroken, IndexError, FileNotFoundError):
            return
    pytest.fail(f"nobody noticed: {name}")
