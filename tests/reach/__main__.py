"""`python -m tests.reach FOLDER`: make the map of source files and test files from a record of `recorder`.

The map is `reach.json`: for each source file of the package the test files that reached one of its functions. A
file without functions (tables, errors, protocols) counts as reached where an importer of it is. Test files that the
record does not know keep their places, so that a part of the tests can be recorded anew.
"""

from __future__ import annotations

import argparse
import ast
import json
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from tests.reach.probes import PACKAGE, Probes

if TYPE_CHECKING:
    from collections.abc import Iterable

MAP = Path(__file__).parent / "reach.json"
ROOT = PACKAGE.parent


def reached_modules(folder: Path) -> dict[str, set[str]]:
    """By test file: the modules that its tests reached."""
    probes = Probes(folder)
    names = [name for name in probes.modules if probes.places[name]]
    firsts = [probes.modules[name][1] for name in names]
    reached: dict[str, set[str]] = {}
    for record in sorted(folder.glob("record-*.jsonl")):
        for line in record.read_text(encoding="utf-8").splitlines():
            test = json.loads(line)
            modules = reached.setdefault(test["test"].partition("::")[0], set())
            modules.update(names[bisect_right(firsts, number) - 1] for number in test["probes"])
    return reached


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
    reached = reached_modules(folder)
    made = make_map(reached, Probes(folder).modules)
    before = json.loads(MAP.read_text(encoding="utf-8")) if MAP.exists() else {}
    for source, tests in before.items():
        if source in made:
            made[source] |= {test for test in tests if test not in reached and (ROOT / test).exists()}
    rows = {source: sorted(tests) for source, tests in made.items()}
    MAP.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{len(made)} source files, {len(reached)} test files recorded: {MAP}")


if __name__ == "__main__":
    main()
