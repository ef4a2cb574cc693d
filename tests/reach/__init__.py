"""Which tests reach which code: probes in the package's own functions, read after each test.

`probes` puts them in, `recorder` is the pytest plugin that reads them, `python -m tests.reach` makes the map of
source files and test files that `make quick` chooses by. `tests.mutation` reads the finer record.

Record, then make the map:

    AIOPRODUCE_REACH=build/reach python -m pytest -p tests.reach.recorder
    python -m tests.reach build/reach
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAP: Final = Path(__file__).with_name("reach.json")


@dataclass(slots=True)
class ReachMap:
    """Which test files reach which source files.

    Attributes:
        by_source: For each source file the test files that reach it.
        seconds: Processor time of each test file.
    """

    by_source: dict[str, list[str]]
    seconds: dict[str, float]


def read_map(path: Path = MAP) -> ReachMap:
    """Read the recorded map."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    tests = [test for test, _ in recorded["tests"]]
    by_source = {
        source: [tests[number] for number in numbers] for source, numbers in recorded["sources"].items()
    }
    return ReachMap(by_source, dict(recorded["tests"]))


def write_map(reach: ReachMap, path: Path = MAP) -> None:
    """Write the map: a line for each file, test files by their numbers."""
    tests = sorted(reach.seconds)
    numbers = {test: number for number, test in enumerate(tests)}
    rows = [json.dumps([test, reach.seconds[test]]) for test in tests]
    lines = [
        f"{json.dumps(source)}: {json.dumps(sorted(numbers[test] for test in reached))}"
        for source, reached in sorted(reach.by_source.items())
    ]
    tests_text, sources_text = ",\n  ".join(rows), ",\n  ".join(lines)
    path.write_text(
        f'{{"tests": [\n  {tests_text}\n ],\n "sources": {{\n  {sources_text}\n }}}}\n', encoding="utf-8"
    )
