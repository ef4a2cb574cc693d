"""Makes a case that fails smaller, as long as it fails in the same way: what is left is what it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.case import Case
    from tests.simulation.run import Outcome

T = TypeVar("T")


def kinds_of(outcome: Outcome) -> frozenset[str]:
    """The letters of the oracle that objected."""
    return frozenset(violation[0] for violation in outcome.violations)


def shrink(
    case: Case, run: Callable[[Case], Outcome], *, tell: Callable[[str], object] = lambda _: None
) -> Case:
    """Leave out faults, then bursts, then faults again, while one of the same letters objects.

    Args:
        case: It fails.
        run: Runs a case.
        tell: Told of progress.
    """
    wanted = kinds_of(run(case))
    if not wanted:
        raise ValueError("the case does not fail")
    runs = 0

    def fails(smaller: Case) -> bool:
        nonlocal runs
        runs += 1
        tell(f"{runs} runs: {len(smaller.faults)} faults, {len(smaller.bursts)} bursts")
        return bool(wanted & kinds_of(run(smaller)))

    while True:
        before = len(case.faults) + len(case.bursts)
        case = _with_fewest_faults(case, fails)
        case = _with_fewest_bursts(case, fails)
        if len(case.faults) + len(case.bursts) == before:
            return case


def _with_fewest_faults(case: Case, fails: Callable[[Case], bool]) -> Case:
    return replace(case, faults=_fewest(case.faults, lambda some: fails(replace(case, faults=some))))


def _with_fewest_bursts(case: Case, fails: Callable[[Case], bool]) -> Case:
    return replace(case, bursts=_fewest(case.bursts, lambda some: fails(replace(case, bursts=some))))


def _fewest(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Leave out halves, then quarters, down to single items (delta debugging)."""
    size = max(len(items) // 2, 1)
    while items:
        for start in range(0, len(items), size):
            fewer = items[:start] + items[start + size :]
            if fails(fewer):
                items = fewer
                break
        else:
            if size == 1:
                return items
            size = size // 2
            continue
        size = min(size, max(len(items) // 2, 1))
    return items


def describe(violations: Sequence[str], limit: int = 5) -> str:
    """The first of them, a line each."""
    lines = list(violations[:limit])
    if len(violations) > limit:
        lines.append(f"and {len(violations) - limit} more")
    return "\n".join(lines)
