"""`python -m tests.simulation`: many seeds and a table, or one seed and all that happened.

python -m tests.simulation                          200 seeds, as CI runs them
python -m tests.simulation --seeds 10000            what `make soak` runs
python -m tests.simulation --secured                the same over TLS or with logins, and with their faults
python -m tests.simulation --transactional          transactions, with faults of their coordinators
python -m tests.simulation --seed 1099 --trace      one, with everything that happened
python -m tests.simulation --seed 1099 --shrink     the smallest case that still fails, as a file for `regressions`
python -m tests.simulation --case FILE              a case from a file
python -m tests.simulation --mutants                bugs on purpose: how many of 100 seeds, or what else, notice it
"""

from __future__ import annotations

import sys

from tests.interpreted_finder import InterpretedNative

if "--mutants" in sys.argv:
    # They replace methods of the core's classes, which compiled ones do not allow.
    sys.meta_path.insert(0, InterpretedNative("aioproduce"))

import argparse
import json
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.case import WEATHERS, Case, make_case, secured
from tests.simulation.case_transactional import TransactionalCase, make_transactional
from tests.simulation.mutants import MUTANTS, WHERE
from tests.simulation.mutants_security import SECURITY_MUTANTS
from tests.simulation.mutants_transactions import TRANSACTIONAL_MUTANTS
from tests.simulation.run import Outcome, run_case
from tests.simulation.run_transactional import run_transactional
from tests.simulation.shrink import describe, kinds_of, shrink
from tests.simulation.witness import stand_in_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_console = Console(stderr=True)


def run_seed(
    seed: int, weather: str | None = None, is_secured: bool = False, is_transactional: bool = False
) -> Outcome:
    """For a process of its own."""
    if is_transactional:
        return run_transactional(make_transactional(seed))
    case = make_case(seed, weather=weather)
    return run_case(secured(case) if is_secured else case)


def run_mutant(seed: int, name: str) -> Outcome:
    """One seed with one bug on purpose."""
    if name in SECURITY_MUTANTS:
        mutant = SECURITY_MUTANTS[name]
        with mutant.bug():
            return run_case(secured(make_case(seed, weather=mutant.weather), mutant.security))
    if name in TRANSACTIONAL_MUTANTS:
        transactional = TRANSACTIONAL_MUTANTS[name]
        with transactional.bug():
            return run_transactional(make_transactional(seed, **transactional.where))
    with MUTANTS[name]():
        return run_case(make_case(seed, **WHERE.get(name, {})))


def in_processes(
    run: Callable[[int], Outcome], seeds: Sequence[int], title: str, jobs: int
) -> Iterator[Outcome]:
    """Run seeds on all processors, with a progress bar; outcomes come in the order of the seeds."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=_console,
        transient=True,
    )
    with ProcessPoolExecutor(jobs) as pool, progress:
        task = progress.add_task(title, total=len(seeds))
        for outcome in pool.map(run, seeds, chunksize=4):
            progress.advance(task)
            yield outcome


@dataclass
class Sum:
    """What some runs come to."""

    seeds: int = 0
    virtual_hours: float = 0.0
    faults: int = 0
    offered: int = 0
    acknowledged: int = 0
    failures: dict[str, int] = field(default_factory=dict)  # asdict() cannot copy a Counter
    requests: int = 0
    cpu: float = 0.0
    failed: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_hours += outcome.virtual_seconds / 3600
        self.faults += len(outcome.case.faults)
        self.offered += outcome.offered
        self.acknowledged += outcome.acknowledged
        for kind, count in outcome.failures.items():
            self.failures[kind] = self.failures.get(kind, 0) + count
        self.requests += outcome.requests
        self.cpu += outcome.cpu
        if outcome.violations:
            self.failed.append(outcome.case.seed)


def sum_up(outcomes: Iterable[Outcome]) -> dict[str, Sum]:
    """By weather and mode, and of all."""
    sums: dict[str, Sum] = {}
    for outcome in outcomes:
        for name in (outcome.case.weather, outcome.case.mode, "all"):
            sums.setdefault(name, Sum()).add(outcome)
    order = [*WEATHERS, *sorted(name for name in sums if name not in WEATHERS and name != "all"), "all"]
    return {name: sums[name] for name in order if name in sums}


def table_of(sums: dict[str, Sum]) -> Table:
    table = Table(title="Simulated runs")
    for column in (
        "",
        "seeds",
        "virtual hours",
        "faults",
        "records",
        "acknowledged",
        "failed, absent",
        "failed, maybe written",
        "requests",
        "CPU s",
        "violations",
    ):
        table.add_column(column, justify="left" if not column else "right")
    for name, total in sums.items():
        doubtful = sum(count for kind, count in total.failures.items() if "maybe" in kind)
        table.add_row(
            name,
            f"{total.seeds:,}",
            f"{total.virtual_hours:,.0f}",
            f"{total.faults:,}",
            f"{total.offered:,}",
            f"{total.acknowledged:,}",
            f"{sum(total.failures.values()) - doubtful:,}",
            f"{doubtful:,}",
            f"{total.requests:,}",
            f"{total.cpu:,.0f}",
            f"{len(total.failed):,}",
            end_section=name == "fair",
        )
    return table


def run_many(arguments: argparse.Namespace) -> int:
    """Run seeds, print the table, and shrink the first that fails."""
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    began = time.monotonic()
    failed: list[Outcome] = []

    def watched() -> Iterator[Outcome]:
        run = partial(
            run_seed,
            weather=arguments.weather,
            is_secured=arguments.secured,
            is_transactional=arguments.transactional,
        )
        for outcome in in_processes(run, seeds, f"{len(seeds)} seeds", arguments.jobs):
            if outcome.violations:
                failed.append(outcome)
                _console.print(f"seed {outcome.case.seed}:\n{describe(outcome.violations)}", markup=False)
            yield outcome

    sums = sum_up(watched())
    if arguments.json:
        print(json.dumps({name: asdict(total) for name, total in sums.items()}))
    else:
        Console().print(table_of(sums))
        print(
            f"{len(seeds)} seeds from {seeds.start}, {len(failed)} with violations, in "
            f"{time.monotonic() - began:.0f} s on {arguments.jobs} processors"
        )
    if failed and not arguments.json:
        which = " --transactional" if arguments.transactional else ""
        print(
            f"to see the first: python -m tests.simulation{which} --seed {failed[0].case.seed} --trace; "
            "what it takes:"
        )
        print(_shrunk(failed[0].case))
    return 1 if failed else 0


def _run(case: Case | TransactionalCase, *, trace: int | None = 0) -> Outcome:
    return (
        run_transactional(case, trace=trace)
        if isinstance(case, TransactionalCase)
        else run_case(case, trace=trace)
    )


def _shrunk(case: Any) -> Any:
    with _console.status("shrinking") as status:
        return shrink(case, _run, tell=status.update)


def run_one(case: Case | TransactionalCase, arguments: argparse.Namespace) -> int:
    """Run one case and say everything of it."""
    if arguments.shrink:
        case = _shrunk(case)
    outcome = _run(case, trace=None if arguments.trace else 0)
    if arguments.json:
        print(json.dumps({"case": asdict(case), "violations": outcome.violations, "trace": outcome.trace}))
        return 1 if outcome.violations else 0
    print(case)
    for line in outcome.trace:
        print(line)
    print(
        f"{outcome.offered} records, {outcome.acknowledged} acknowledged, failed: {outcome.failures}; "
        f"{outcome.requests} requests in {outcome.virtual_seconds:.1f} virtual seconds, {outcome.cpu:.2f} CPU s; "
        f"trace {outcome.trace_hash}"
    )
    print(describe(outcome.violations) or "nothing is wrong")
    if arguments.shrink:
        folder = Path(__file__).parent / "regressions"
        if isinstance(case, TransactionalCase):
            folder = folder / "transactional"
            folder.mkdir(exist_ok=True)
        path = folder / f"seed-{case.seed}.json"
        path.write_text(case.to_json() + "\n")
        print(f"the case is in {path}")
    return 1 if outcome.violations else 0


def _where(name: str) -> list[str]:
    if name in SECURITY_MUTANTS:
        return [SECURITY_MUTANTS[name].weather, SECURITY_MUTANTS[name].security]
    if name in TRANSACTIONAL_MUTANTS:
        return [f"{key}={value}" for key, value in TRANSACTIONAL_MUTANTS[name].where.items()]
    return [str(value) for value in WHERE.get(name, {}).values()]


def run_mutants(arguments: argparse.Namespace) -> int:
    """Say for each mutant how many seeds notice it, and by which letters; or what notices it in their place."""
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    table = Table(title=f"Bugs on purpose, {len(seeds)} seeds each")
    for column in ("mutant", "only in", "caught in", "first seed", "by"):
        table.add_column(column)
    survivors = 0
    rows: list[dict[str, Any]] = []
    for name in arguments.mutant or [*MUTANTS, *SECURITY_MUTANTS, *TRANSACTIONAL_MUTANTS]:
        outcomes = list(in_processes(partial(run_mutant, name=name), seeds, name, arguments.jobs))
        caught = [outcome for outcome in outcomes if outcome.violations]
        letters = Counter(letter for outcome in caught for letter in kinds_of(outcome))
        stand_in = stand_in_for(name) if name in MUTANTS else None
        survivors += not (stand_in.notices if stand_in is not None else caught)
        by = ", ".join(f"{letter} {count}" for letter, count in letters.most_common())
        if stand_in is not None:
            by = f"{by}; {stand_in}" if by else str(stand_in)
        first = caught[0].case.seed if caught else None
        _console.print(f"{name}: {len(caught)} of {len(seeds)}", markup=False, highlight=False)
        where = ", ".join(_where(name))
        table.add_row(name, where, f"{len(caught)} of {len(seeds)}", str(first), by)
        rows.append(
            {
                "mutant": name,
                "caught": len(caught),
                "seeds": len(seeds),
                "first": first,
                "by": letters,
                "stand_in": None if stand_in is None else str(stand_in),
            }
        )
    if arguments.json:
        print(json.dumps(rows))
    else:
        Console().print(table)
    return 1 if survivors else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", type=int, help="how many (200; 100 with --mutants)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--weather", choices=WEATHERS, help="only this kind")
    parser.add_argument(
        "--secured", action="store_true", help="each over TLS or with logins, and their faults"
    )
    parser.add_argument(
        "--transactional", action="store_true", help="transactions, with faults of their coordinators"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one per processor)")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--case", type=Path, help="run the case in this file alone")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--shrink", action="store_true", help="find the smallest case that still fails")
    parser.add_argument("--mutants", action="store_true", help="run bugs on purpose")
    names = [*MUTANTS, *SECURITY_MUTANTS, *TRANSACTIONAL_MUTANTS]
    parser.add_argument("--mutant", action="append", choices=names, help="with --mutants: only this one")
    parser.add_argument("--json", action="store_true", help="for a program")
    arguments = parser.parse_args()
    if arguments.seeds is None:
        arguments.seeds = 100 if arguments.mutants else 200
    if arguments.case is not None:
        return run_one(Case.from_json(arguments.case.read_text()), arguments)
    if arguments.seed is not None and arguments.transactional:
        return run_one(make_transactional(arguments.seed), arguments)
    if arguments.seed is not None:
        case = make_case(arguments.seed, weather=arguments.weather)
        return run_one(secured(case) if arguments.secured else case, arguments)
    return run_mutants(arguments) if arguments.mutants else run_many(arguments)


if __name__ == "__main__":
    sys.exit(main())
