"""The file of survivors: each mutant that no test kills, and why it may live.

1. `equivalent`: nobody can see the change, and the reason argues that. `left`: somebody could, and the reason says
   why no test looks.
2. An entry holds for the function that its author read: `function` is its hash. A change of the function calls for
   another reading.
3. An entry is wrong if there is no such mutant, if a test kills it, or if it gives no reason.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.mutation.mutants import Mutant

FILE: Final = Path(__file__).with_name("survivors.toml")
KINDS: Final = ("equivalent", "left")


@dataclass(frozen=True, slots=True)
class Survivor:
    """One entry."""

    mutant: str
    function: str
    kind: str
    reason: str


def read(path: Path = FILE) -> dict[str, Survivor]:
    """By the mutant's name."""
    if not path.exists():
        return {}
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
    return {entry["mutant"]: Survivor(**entry) for entry in entries}


def objections(
    entries: Mapping[str, Survivor], all_mutants: Iterable[Mutant], survived: set[str], killed: set[str]
) -> list[str]:
    """What is wrong with the file after a run, a line each; nothing if it is true."""
    hashes = {mutant.name: mutant.function_hash for mutant in all_mutants}
    wrong: list[str] = []
    for name, entry in entries.items():
        if name not in hashes:
            wrong.append(f"there is no such mutant (any more): {name}")
        elif hashes[name] != entry.function:
            wrong.append(f"the function has changed to {hashes[name]}, read the reason again: {name}")
        if entry.kind not in KINDS or not entry.reason.strip():
            wrong.append(f"no reason, or no kind of {' and '.join(KINDS)}: {name}")
        if name in killed:
            wrong.append(f"a test kills it, so it is no survivor: {name}")
    wrong += [f"survives without a reason: {name}" for name in sorted(survived - entries.keys())]
    return wrong
