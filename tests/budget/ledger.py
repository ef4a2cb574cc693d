"""`budget.json`: what a record may cost, with what that was measured, and how far a new measurement may be from it.

Frames and live objects depend on the version of Python, instructions on that and on everything that was compiled: a
budget is compared exactly where it was recorded with the same, and in proportion to the reference work elsewhere.

1. A difference in either direction is a finding: dearer fails, and so does cheaper, until the gain is recorded.
2. Recording replaces what was measured with this Python and leaves all else.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any, Final

from aioproduce import build_info
from tests.budget.measure import Figures
from tests.budget.program import REFERENCE

FILE: Final = Path(__file__).with_name("budget.json")
REMEDY: Final = "if that is meant, record it, and say why in the commit: python -m tests.budget --record"

# They repeat to the last digit; what is left is for a batch more or less in a run.
COUNTED_TOLERANCE: Final = 0.01
COUNTED_SLACK: Final = 0.03
INSTRUCTIONS_TOLERANCE: Final = 0.03
# Another CPython, another compiler: what the same lines cost there is known in proportion only.
ELSEWHERE_TOLERANCE: Final = 0.35


def python_version() -> str:
    """The key of frames and live objects."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def environment() -> dict[str, str]:
    """Whatever changes the number of instructions without a change of ours."""
    module = build_info().modules[0]
    return {
        "python": sys.version,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "extensions": f"Cython {module.cython}, {module.compiler}",
    }


def recorded() -> dict[str, Any]:
    """The budget."""
    budget: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return budget


def record(kind: str, figures: Figures) -> None:
    """Make these figures the budget."""
    budget = recorded()
    rounded = {
        name: {figure: round(value, 1 if kind == "instructions" else 3) for figure, value in of_mode.items()}
        for name, of_mode in figures.items()
    }
    if kind == "instructions":
        kept = {"environment": environment(), "per record": rounded}
        budget.setdefault(kind, {})[python_version()] = kept
    else:
        budget.setdefault(kind, {})[python_version()] = rounded
    FILE.write_text(json.dumps(budget, indent=2, sort_keys=True) + "\n")


def findings(kind: str, figures: Figures) -> list[str]:
    """Where the figures are not those of the budget, each with what to do.

    Args:
        kind: "frames", "live" or "instructions".
        figures: What was measured.
    """
    if kind == "instructions":
        return _findings_in_instructions(figures)
    of_versions = recorded().get(kind, {})
    if not of_versions:
        return [f"no budget of {kind} is recorded: {REMEDY}"]
    budget = of_versions.get(python_version())
    if budget is not None:
        return compare(figures, budget, tolerance=COUNTED_TOLERANCE, slack=COUNTED_SLACK)
    newest = _newest(of_versions)
    return _only_dearer(figures, of_versions[newest], f"recorded with Python {newest}")


def _newest(of_versions: dict[str, Any]) -> str:
    return max(of_versions, key=lambda version: tuple(map(int, version.split("."))))


def _findings_in_instructions(figures: Figures) -> list[str]:
    of_versions = recorded().get("instructions", {})
    if not of_versions:
        return [f"no budget of instructions is recorded: {REMEDY}"]
    kept = of_versions.get(python_version(), of_versions[_newest(of_versions)])
    budget = kept["per record"]
    if kept["environment"] == environment():
        return compare(figures, budget, tolerance=INSTRUCTIONS_TOLERANCE)
    ratio = figures[REFERENCE]["instructions"] / budget[REFERENCE]["instructions"]
    scaled = {name: {"instructions": of["instructions"] * ratio} for name, of in budget.items()}
    return _only_dearer(figures, scaled, "recorded elsewhere, scaled by the reference work")


def _only_dearer(figures: Figures, budget: Figures, why: str) -> list[str]:
    """Against a budget of another environment."""
    found = compare(figures, budget, tolerance=ELSEWHERE_TOLERANCE, slack=COUNTED_SLACK)
    return [f"{finding} ({why})" for finding in found if " became cheaper:" not in finding]


def compare(figures: Figures, budget: Figures, *, tolerance: float, slack: float = 0.0) -> list[str]:
    """Each figure against its budget."""
    found = [f"{name} has no budget: {REMEDY}" for name in figures.keys() - budget.keys()]
    found += [
        f"{name} has a budget and was not measured: {REMEDY}" for name in budget.keys() - figures.keys()
    ]
    for name in sorted(figures.keys() & budget.keys()):
        for figure, value in figures[name].items():
            allowed = budget[name][figure]
            if abs(value - allowed) > allowed * tolerance + slack:
                word = "dearer" if value > allowed else "cheaper"
                share = f", {value / allowed - 1:+.1%}" if allowed else ""
                found.append(
                    f"{name} became {word}: {value:,.2f} {figure} per record, budget {allowed:,.2f}{share}; "
                    f"{REMEDY}"
                )
    return found


def table(kind: str, figures: Figures) -> str:
    """Return the figures for people, next to the budget if there is one for this Python."""
    budget = recorded().get(kind, {}).get(python_version(), {})
    if kind == "instructions":
        budget = budget.get("per record", {})
    lines = []
    for name, of_mode in figures.items():
        for figure, value in of_mode.items():
            before = budget.get(name, {}).get(figure)
            beside = "" if before is None else f"{before:>14,.2f}"
            lines.append(f"{name:<12}{figure:<14}{value:>14,.2f}{beside}")
    return "\n".join(lines)
