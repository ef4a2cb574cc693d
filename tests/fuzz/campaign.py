"""Runs targets, each under atheris in a process of its own, and tells what came of it.

Called by `__main__` (bounded by time) and by `test_fuzz` (bounded by executions).

1. The corpus in the repository is read, never written: what is found goes to a folder of the caller's.
2. A run ends in time: libFuzzer ends itself, and is killed where it does not.
3. A crash is told with the bytes that cause it and the command that tries them again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tests.fuzz.target import CORPUS, NAMES, load

REPOSITORY: Final = Path(__file__).parents[2]

_PULSE: Final = re.compile(r"#(?P<runs>\d+)\s.*cov: (?P<edges>\d+) ft: (?P<features>\d+)")
_RUNS: Final = re.compile(r"stat::number_of_executed_units: (\d+)")
_SLOWEST_SECONDS: Final = 10
"""One input; most take less than a millisecond."""
_GRACE_SECONDS: Final = 60
_MEMORY_MIB: Final = 2048
_TAIL_LINES: Final = 40


@final
@dataclass(frozen=True, slots=True)
class Report:
    """One target's run.

    Attributes:
        name: The target.
        runs: Inputs that were tried.
        edges: Edges of `aioproduce` (between lines of bytecode) that they reached.
        features: Edges and how often they were taken, as libFuzzer counts them.
        found: New inputs that reached something new.
        crash: The input that broke the target's invariant, or `None`.
        output: The last lines of the run.
        returncode: The process's.
    """

    name: str
    runs: int
    edges: int
    features: int
    found: int
    crash: bytes | None
    output: str
    returncode: int

    @property
    def is_well(self) -> bool:
        """Whether the run came to its end with nothing to tell."""
        return self.crash is None and self.returncode == 0

    def describe(self) -> str:
        """The failure: what was raised, the input, how to try it again."""
        if self.crash is None:
            return f"{self.name}: ended with {self.returncode}\n{self.output}"
        return (
            f"{self.name}: {len(self.crash)} bytes break its invariant\n{self.output}\n"
            f"input: {self.crash.hex()}\n"
            f"again: python -m tests.fuzz --replay {self.name} {self.crash.hex()}"
        )


def missing() -> str | None:
    """Why nothing can be fuzzed here; `None` where it can."""
    if importlib.util.find_spec("atheris") is not None:
        return None
    return "atheris is not installed: it has wheels for Linux on x86-64, CPython 3.11 to 3.14"


def fuzz(
    name: str,
    folder: Path,
    *,
    seconds: float = 0,
    runs: int = -1,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda runs, edges: None,
) -> Report:
    """Fuzz one target.

    Args:
        name: Which.
        folder: Where to put what is found; gone through first, if there is something of an earlier run.
        seconds: Bound by time; 0 for none.
        runs: Bound by executions; -1 for none.
        seed: Of libFuzzer's choices; 0 for a new one.
        tell: Called with executions and edges as they grow.
    """
    found, crashes = folder / "found", folder / "crashes"
    for each in (found, crashes):
        each.mkdir(parents=True, exist_ok=True)
    target = load(name)
    for number, content in enumerate(target.seeds()):
        (found / f"seed-{number:03}").write_bytes(content)
    before = _count(found)
    arguments = [
        f"-max_len={target.max_size}",
        f"-max_total_time={int(seconds)}",
        f"-runs={runs}",
        f"-seed={seed}",
        f"-timeout={_SLOWEST_SECONDS}",
        f"-rss_limit_mb={_MEMORY_MIB}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
        str(found),
        str(CORPUS / name),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.engine", name, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            lines = _follow(process.stdout, tell)
            process.wait(_GRACE_SECONDS)
        finally:
            process.kill()
    return _report(name, lines, _count(found) - before, crashes, process.returncode)


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _follow(output: Iterable[str], tell: Callable[[int, int], None]) -> list[str]:
    lines = []
    for line in output:
        lines.append(line.rstrip("\n"))
        if (pulse := _PULSE.match(line)) is not None:
            tell(int(pulse["runs"]), int(pulse["edges"]))
    return lines


def _report(name: str, lines: list[str], found: int, crashes: Path, returncode: int) -> Report:
    pulses = [pulse for line in lines if (pulse := _PULSE.match(line)) is not None]
    last = pulses[-1] if pulses else None
    counted = [int(match[1]) for line in lines if (match := _RUNS.match(line)) is not None]
    crash = next(iter(sorted(crashes.iterdir())), None)
    told = [line for line in lines if not _PULSE.match(line) and not line.startswith(("INFO", "stat::"))]
    return Report(
        name,
        runs=counted[0] if counted else int(last["runs"]) if last else 0,
        edges=int(last["edges"]) if last else 0,
        features=int(last["features"]) if last else 0,
        found=found,
        crash=None if crash is None else crash.read_bytes(),
        output="\n".join(told[-_TAIL_LINES:]),
        returncode=returncode,
    )


def table(reports: Iterable[Report]) -> str:
    """The summary, a line for each target."""
    width = max(map(len, NAMES))
    lines = [f"{'target':<{width}}  {'executions':>11}  {'edges':>6}  {'features':>8}  {'new':>5}  crashes"]
    lines += [
        f"{report.name:<{width}}  {report.runs:>11,}  {report.edges:>6,}  {report.features:>8,}  "
        f"{report.found:>5,}  {0 if report.is_well else 1}"
        for report in reports
    ]
    return "\n".join(lines)
