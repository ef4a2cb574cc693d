"""One producer under several interpreters: `python -m benchmarks.interpreters [COMMAND ...]`.

Each command starts an interpreter that has aioproduce and uvloop, e.g. `.venv-3.13/bin/python` (which
`make test-python` makes). Without a command these are this interpreter, then what the variable
`AIOPRODUCE_INTERPRETERS` names, one a line, then the environments in this checkout. Ratios are to the first.

1. All take turns against one null broker (`runner.run_interleaved`): a round runs each case under each interpreter.
2. An interpreter that runs the package interpreted, or other sources of it, is refused.
3. `reference` is a loop in pure Python that calls no code of ours: what an interpreter's build gains or loses by
   itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.cases import Case, Settings
from benchmarks.runner import BenchmarkError, Result, run_interleaved
from benchmarks.targets import Target, null_target

REPOSITORY: Final = Path(__file__).parents[1]
VARIABLE: Final = "AIOPRODUCE_INTERPRETERS"
BROKER_CORES: Final = (1,)
CLIENT_CORES: Final = (0,)
_RECORDS: Final = 400_000
_PROBE: Final = """
import hashlib, json, pathlib, platform, sys, timeit
import aioproduce

sources = hashlib.sha256()
for path in sorted(pathlib.Path(aioproduce.__file__).parent.rglob("*.py")):
    sources.update(path.read_bytes())

def reference():
    place = {"size": 0}
    total = 0
    for number in range(100_000):
        place["size"] += number & 15
        if place["size"] > 65536:
            place["size"] = 0
        total += len((number, place["size"]))
seconds = min(timeit.repeat(reference, number=1, repeat=7))
print(json.dumps({
    "version": platform.python_version(), "compiler": platform.python_compiler(),
    "gil": getattr(sys, "_is_gil_enabled", lambda: True)(), "compiled": aioproduce.build_info().compiled,
    "reference": 100_000 / seconds, "sources": sources.hexdigest(),
}))
"""


@final
@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter of the comparison.

    Attributes:
        command: Starts it, in the checkout whose package it measures.
        version: Of CPython.
        compiler: What built it.
        reference: Turns a second of the loop of rule 3.
        sources: A digest of the package's sources.
    """

    command: tuple[str, ...]
    version: str
    compiler: str
    reference: float
    sources: str

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"CPython {self.version}, {self.compiler}"


def probe(command: Sequence[str]) -> Interpreter:
    """Ask an interpreter what it is.

    Raises:
        BenchmarkError: if it does not start, or runs the package interpreted.
    """
    answer = subprocess.run([*command, "-c", _PROBE], capture_output=True, text=True, check=False)
    if answer.returncode:
        raise BenchmarkError(f"{shlex.join(command)} cannot be measured:\n{answer.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    if not told["compiled"]:
        raise BenchmarkError(f"{shlex.join(command)} runs aioproduce interpreted: build its extensions first")
    free = "" if told["gil"] else " free-threaded"
    version = told["version"] + free
    return Interpreter(tuple(command), version, told["compiler"], told["reference"], told["sources"])


def found() -> list[list[str]]:
    """Return the commands of the variable, and of the environments in this checkout."""
    named = [shlex.split(line) for line in os.environ.get(VARIABLE, "").splitlines() if line.strip()]
    here = [[str(path)] for path in sorted(REPOSITORY.glob(".venv-*/bin/python"))]
    return [[sys.executable], *named, *here]


def cases(records: int) -> list[Case]:
    """Return what each interpreter runs."""

    def of(mode: str, share: float = 1) -> Case:
        count = int(records * share)
        return Case("throughput", "aioproduce", mode, "uvloop", count, max(count // 10, 1000))

    alone = Case("senders", "aioproduce", "alone", "uvloop", records // 100, 500, Settings(linger_ms=0))
    return [
        *(of("await-each"), of("dropped"), of("tasks", 0.25), of("callback", 0.5), of("send-many", 4)),
        replace(alone, options={"tasks": 1}),
    ]


def measure(interpreters: Sequence[Interpreter], target: Target, records: int, rounds: int) -> list[Result]:
    """Run every case under every interpreter; the results are by interpreter, then by case."""
    runs = [(target, case, each.command) for each in interpreters for case in cases(records)]
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("interpreters", total=len(runs) * rounds)
        return run_interleaved(
            [(target, case) for target, case, _ in runs],
            rounds=rounds,
            cores=CLIENT_CORES if (os.cpu_count() or 1) > 1 else (),
            interpreters=[command for *_, command in runs],
            ended=lambda _case: progress.advance(task),
        )


def figures_of(interpreters: Sequence[Interpreter], results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return each interpreter's medians by its name: records a second, and a lone record's CPU time in us."""
    of_each = len(results) // len(interpreters)
    figures: dict[str, dict[str, float]] = {}
    for number, each in enumerate(interpreters):
        row = {"reference, turns/s": each.reference}
        for result in results[number * of_each : (number + 1) * of_each]:
            if result.case.mode == "alone":
                row["alone, CPU us"] = result.figures["cpu_seconds_per_million"]
            else:
                row[f"{result.case.mode}, records/s"] = result.figures["records_per_second"]
        figures[each.name] = row
    return figures


def ratios(figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return each figure divided by that of the first interpreter; above 1 is better, also for CPU time."""
    first = next(iter(figures.values()))
    return {
        name: {
            figure: first[figure] / value if figure.endswith("us") else value / first[figure]
            for figure, value in row.items()
        }
        for name, row in figures.items()
    }


def show(figures: dict[str, dict[str, float]]) -> Table:
    """Return the table: each figure with its ratio to the first interpreter's."""
    names = list(figures)
    shown = Table("", *names)
    compared = ratios(figures)
    for figure in figures[names[0]]:
        cells = [f"{figures[name][figure]:,.0f}" for name in names]
        for place, name in enumerate(names[1:], 1):
            cells[place] += f" ({compared[name][figure]:.2f})"
        shown.add_row(figure, *cells)
    return shown


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interpreters", description=__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help="starts an interpreter")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=_RECORDS, help="of the longest case but one")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    commands = [shlex.split(command) for command in options.commands] or found()
    interpreters = [probe(command) for command in commands]
    if len({each.sources for each in interpreters}) > 1:
        raise BenchmarkError(
            "these interpreters have different sources of aioproduce: check out the same commit"
        )
    with null_target(BROKER_CORES if (os.cpu_count() or 1) > 1 else ()) as target:
        results = measure(interpreters, target, options.records, options.rounds)
    figures = figures_of(interpreters, results)
    Console(width=None if sys.stdout.isatty() else 200).print(show(figures))
    if options.json:
        document = {
            "figures": figures,
            "ratios": ratios(figures),
            "rounds": [
                {"case": result.case.mode, "records_per_second": _rates(result)} for result in results
            ],
        }
        options.json.write_text(json.dumps(document, indent=1))


def _rates(result: Result) -> list[float]:
    rates = [each["records_per_second"] for each in result.rounds]
    assert median(rates) == result.figures["records_per_second"]
    return rates


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(str(error))
