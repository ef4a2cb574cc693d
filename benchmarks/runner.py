"""Run cases, interleaved, each in a separate process, and take medians.

Called by `__main__.py` with the sections of the plans.

1. A round runs all cases in turn (backwards in every second round), so that a disturbance of the machine affects
   all clients.
2. A run counts only if the broker has exactly the records that the client reports as acknowledged. Any other number
   raises `CountMismatchError` and ends the whole program.
3. Each figure is its own median over the rounds; ratios are of medians of one run of the program.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, final

from benchmarks.cases import Case, Outcome

if TYPE_CHECKING:
    from benchmarks.targets import Target

# A single run takes seconds; a Java client on one busy processor a few dozen.
RUN_TIMEOUT = 600.0
Progress = Callable[[Case], object]


class BenchmarkError(Exception):
    """A worker failed; the text has its output."""


class CountMismatchError(BenchmarkError):
    """The broker's number of records differs from the number acknowledged to the client."""


@final
@dataclass(frozen=True, slots=True)
class Result:
    """A case over all rounds.

    Attributes:
        figures: The median of each figure.
        rounds: Every round's figures.
    """

    case: Case
    figures: dict[str, float]
    rounds: list[dict[str, float]] = field(repr=False)


def run_once(
    case: Case, target: Target | None, cores: tuple[int, ...] = (), interpreter: Sequence[str] = ()
) -> Outcome:
    """Run one case in a new process, of this interpreter or another, and check its count against the broker's.

    Raises:
        BenchmarkError: if the worker fails.
        CountMismatchError: if the counts differ.
    """
    if target is not None:
        target.begin()
    command = [*(interpreter or [sys.executable]), "-m", "benchmarks.worker", case.to_json()]
    command += [target.bootstrap_servers if target else "", ",".join(map(str, cores))]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{case.name} did not end within {RUN_TIMEOUT:.0f} s") from error
    if answer.returncode != 0:
        raise BenchmarkError(f"{case.name} failed:\n{answer.stdout[-2000:]}{answer.stderr[-4000:]}")
    outcome = Outcome.from_json(answer.stdout.splitlines()[-1])
    if target is not None and outcome.total:
        _check(case, outcome, target)
        outcome.figures.update(target.shape())
    return outcome


def _check(case: Case, outcome: Outcome, target: Target) -> None:
    at_broker = target.count()
    if at_broker != outcome.total:
        raise CountMismatchError(
            f"{case.name}: {outcome.total:,} records were acknowledged to the client, the {target.name} has "
            f"{at_broker:,}"
        )


def run_interleaved(
    runs: Sequence[tuple[Target | None, Case]],
    *,
    rounds: int,
    cores: tuple[int, ...] = (),
    interpreters: Sequence[Sequence[str]] = (),
    starting: Progress = lambda case: None,
    ended: Progress = lambda case: None,
) -> list[Result]:
    """Run every case against its brokers, round after round; the results are in the order of the cases.

    Each case can have an interpreter of its own: the command that starts it.
    """
    figures: list[list[dict[str, float]]] = [[] for _ in runs]
    for number in range(rounds):
        order = list(enumerate(runs))
        for index, (target, case) in reversed(order) if number % 2 else order:
            starting(case)
            figures[index].append(
                run_once(case, target, cores, interpreters[index] if interpreters else ()).rates(
                    case.settings.value_size
                )
            )
            ended(case)
    return [
        Result(case, {name: median(each[name] for each in found) for name in found[0]}, found)
        for (_, case), found in zip(runs, figures, strict=True)
    ]
