"""`python -m tests.mutation`: change the producer in many small ways, and see which changes no test notices.

python -m tests.mutation                                420 mutants, as `make mutation` runs them
python -m tests.mutation --sample 0 --module core.retry all mutants of one module
python -m tests.mutation --names FILE --thorough        those named in a file, against every test that reaches them
python -m tests.mutation --sample 50 --list             only say what would be changed

It fails if less than 95 % are killed, or if `survivors.toml` is not true of this run.
"""

from __future__ import annotations

import os

os.environ["AIOPRODUCE_PURE"] = (
    "1"  # a mutant is the code of a Python function: the core must not be compiled
)

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutation.mutants import Mutant, mutants_of, sample
from tests.mutation.run import Result, Status, run_mutants
from tests.mutation.session import Session
from tests.mutation.survivors import objections, read
from tests.mutation.targets import ROOT, targets

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = ROOT / "build" / "mutation"
KILLED_SHARE = 0.95

_console = Console(stderr=True, highlight=False, soft_wrap=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sample", type=int, default=420, help="how many mutants; 0: all of them (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="which ones (%(default)s)")
    parser.add_argument(
        "--module", action="append", default=[], help="only of this module, as core.sender; repeat it"
    )
    parser.add_argument("--names", type=Path, help="the mutants whose names are the lines of this file")
    parser.add_argument(
        "-n", "--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)"
    )
    parser.add_argument(
        "--budget", type=float, default=30, help="seconds of tests for each mutant (%(default)s)"
    )
    parser.add_argument("--thorough", action="store_true", help="all tests that reach a mutant, however long")
    parser.add_argument("--json", type=Path, help="write the results there, as they come")
    parser.add_argument("--list", action="store_true", help="print the names, run nothing")
    return parser.parse_args()


def chosen_mutants(arguments: argparse.Namespace) -> tuple[list[Mutant], list[Mutant]]:
    """All mutants there are, and those to run."""
    every = {name: mutants_of(name, path) for name, path in targets().items()}
    unknown = [name for name in arguments.module if name not in every]
    if unknown:
        raise SystemExit(f"no such module: {', '.join(unknown)}; there are {', '.join(every)}")
    some = {name: found for name, found in every.items() if name in arguments.module or not arguments.module}
    all_mutants = [mutant for found in every.values() for mutant in found]
    if arguments.names is not None:
        by_name = {mutant.name: mutant for mutant in all_mutants}
        names = [
            line.strip() for line in arguments.names.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise SystemExit("no such mutant: " + "\n".join(unknown))
        return all_mutants, [by_name[name] for name in names]
    return all_mutants, sample(some, arguments.sample or sum(map(len, some.values())), arguments.seed)


def main() -> int:
    """Run, and say what survived."""
    arguments = _arguments()
    all_mutants, drawn = chosen_mutants(arguments)
    if arguments.list:
        print(*(mutant.name for mutant in drawn), sep="\n")
        return 0
    results: list[Result] = []
    began_at = time.monotonic()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_console,
    ) as progress:

        def body(session: Session) -> None:
            recording = progress.add_task("recording which tests reach what", total=len(session.items))
            recorded = session.recorded(
                arguments.workers, lambda done, _: progress.update(recording, completed=done)
            )
            progress.update(recording, completed=len(session.items))
            running = progress.add_task("mutants", total=len(drawn))
            budget = float("inf") if arguments.thorough else arguments.budget
            for result in run_mutants(session, recorded, drawn, arguments.workers, budget):
                results.append(result)
                progress.advance(running)
                if arguments.json is not None:
                    rows = [each.as_row() for each in results]
                    arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
                if result.status is Status.SURVIVED:
                    progress.console.print(
                        f"survived {result.tests} tests: {result.mutant.name}", markup=False
                    )

        Session(FOLDER, body).run()
    return report(all_mutants, results, time.monotonic() - began_at)


def report(all_mutants: Sequence[Mutant], results: Sequence[Result], seconds: float) -> int:
    """Print the table by module, what is wrong, and the summary; the exit status."""
    counted = [result for result in results if result.status is not Status.VOID]
    if not counted:
        _console.print("no mutant was run")
        return 1
    table = Table("module", "mutants", "killed", "hung", "survived")
    for module in dict.fromkeys(result.mutant.module for result in counted):
        of_module = Counter(result.status for result in counted if result.mutant.module == module)
        numbers = (
            of_module.total(),
            of_module[Status.KILLED],
            of_module[Status.HUNG],
            of_module[Status.SURVIVED],
        )
        table.add_row(module, *map(str, numbers))
    _console.print(table)
    statuses = Counter(result.status for result in results)
    survived = {result.mutant.name for result in counted if result.status is Status.SURVIVED}
    killed = {result.mutant.name for result in counted} - survived
    entries = read()
    wrong = objections(entries, all_mutants, survived, killed)
    share = len(killed) / len(counted)
    if share < KILLED_SHARE:
        wrong.append(f"{share:.1%} are killed, less than {KILLED_SHARE:.0%}")
    for line in wrong:
        _console.print(f"- {line}", markup=False)
    kinds = Counter(entries[name].kind for name in survived & entries.keys())
    _console.print(
        f"{len(counted)} mutants of {len(all_mutants)}: {len(killed)} killed ({share:.1%}; "
        f"{statuses[Status.HUNG]} of them by hanging), {len(survived)} survived ({kinds['equivalent']} equivalent, "
        f"{kinds['left']} left for a reason), {statuses[Status.VOID]} could not be made; {seconds:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
