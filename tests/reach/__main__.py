"""`python -m tests.reach FOLDER`: make the map of source files and test files from a record of `recorder`.

The map is `reach.json`: for each source file of the package the test files that reached one of its functions. A
file without functions (tables, errors, protocols) counts as reached where an importer of it is. Test files that the
record does not know keep their places, so that a part of the tests can be recorded again.
"""

from __future__ import annotations

import argparse
import ast
import json
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.reach import MAP, ReachMap, read_map, write_map
from tests.reach.probes import PACKAGE, Probes

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = PACKAGE.parent


@dataclass(slots=True)
class Reached:
    """What was recorded of one test file: the modules that its tests reached, and their processor time."""

    modules: set[str] = field(default_factory=set)
    seconds: float = 0.0


def read_record(folder: Path) -> dict[str, Reached]:
    """By test file: what its tests reached."""
    probes = Probes(folder)
    names = [name for name in probes.modules if probes.places[name]]
    firsts = [probes.modules[name][1] for name in names]
    files: dict[str, Reached] = {}
    for record in sorted(folder.glob("record-*.jsonl")):
        for line in record.read_text(encoding="utf-8").splitlines():
            test = json.loads(line)
            reached = files.setdefault(test["test"].partition("::")[0], Reached())
            reached.modules.update(names[bisect_right(firsts, number) - 1] for number in test["probes"])
            reached.seconds += test["cpu"]
    return files


def source_of(module: str) -> Path:
    """A module's file."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(source: Path) -> set[str]:
    """The modules that a file imports by name anywhere, also for types alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def make_map(reached: dict[str, set[str]], modules: Iterable[str]) -> dict[str, set[str]]:
    """By source file: the test files that reach it."""
    made: dict[str, set[str]] = {module: set() for module in modules}
    for test_file, reached_by_it in reached.items():
        for module in reached_by_it:
            made[module].add(test_file)
    imports = {module: imported(source_of(module)) for module in made}
    for module in sorted(made):
        if not made[module]:
            importers = [other for other in made if module in imports[other]]
            made[module] = set().union(*(made[other] for other in importers))
    return {str(source_of(module).relative_to(ROOT)): tests for module, tests in sorted(made.items())}


def main() -> None:
    """Read the record, write the map."""
    parser = argparse.ArgumentParser(prog="python -m tests.reach", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the record is: AIOPRODUCE_REACH of the run")
    folder: Path = parser.parse_args().folder
    files = read_record(folder)
    made = make_map({test: reached.modules for test, reached in files.items()}, Probes(folder).modules)
    seconds = {test: round(reached.seconds, 1) for test, reached in files.items()}
    before = read_map() if MAP.exists() else ReachMap({}, {})
    for source, tests in before.by_source.items():
        kept = {test for test in tests if test not in files and (ROOT / test).exists()}
        if source in made:
            made[source] |= kept
        seconds |= {test: before.seconds[test] for test in kept}
    write_map(ReachMap({source: sorted(tests) for source, tests in made.items()}, seconds))
    print(f"{len(made)} source files, {len(files)} test files recorded: {MAP.name}")


if __name__ == "__main__":
    main()
