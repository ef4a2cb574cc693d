"""What type checkers say of users' scripts, and of the package itself.

`right/` holds scripts as users write them: they are clean in pyright's strict mode, and in mypy's, which
`make types` runs over them with the other tests. In `wrong/` each line with an error is marked `# error: ` with the
names that pyright (`report...`) and mypy give it: they find exactly those.

Pyright sees the package as users have it: by `py.typed`, without this project's settings and without Cython.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parents[1]
RIGHT: Final = sorted((HERE / "right").glob("*.py"))
WRONG: Final = sorted((HERE / "wrong").glob("*.py"))
_MARK: Final = re.compile(r"# error: (.*)$")
_MYPY_ERROR: Final = re.compile(r"(.+?):(\d+):(?:\d+:)? error: .*\[([\w-]+)\]")

# By file and line: the names of the errors there.
Errors = dict[tuple[str, int], set[str]]


def marked(*, of_pyright: bool) -> Errors:
    """What the scripts in `wrong/` say of themselves."""
    found: Errors = {}
    for path in WRONG:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if mark := _MARK.search(line):
                names = {name for name in mark[1].split(", ") if name.startswith("report") is of_pyright}
                if names:
                    found[path.name, number] = names
    return found


def pyright(*arguments: str | Path) -> dict[str, Any]:
    """What pyright reports, as its own JSON."""
    # It looks for libraries where the first `python` of the path has them, and for this package where it lies.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    # Node's helper threads (collector, compiler) make the same run dearer by a seventh where all processors are
    # busy, as the gate keeps them.
    options = f"{os.environ.get('NODE_OPTIONS', '')} --v8-pool-size=0".strip()
    ended = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", *map(str, arguments)],
        cwd=HERE,
        env={**os.environ, "PATH": path, "PYTHONPATH": _python_path(), "NODE_OPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.startswith("{"), ended.stdout + ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH", ""))))


@pytest.fixture(scope="session")
def pyright_of_scripts() -> tuple[Errors, Errors, list[str]]:
    """Of one run: the errors in `right/`, those in `wrong/`, and all that it said of the former.

    It reads the package as each run does, and has a row of its own in the budget, as `type_completeness` has.
    """
    report = pyright("--project", HERE, "--pythonversion", "3.11")
    assert report["summary"]["filesAnalyzed"] >= len(RIGHT) + len(WRONG)
    right: Errors = defaultdict(set)
    wrong: Errors = defaultdict(set)
    said = []
    for each in report["generalDiagnostics"]:
        path = Path(each["file"])
        place = path.name, each["range"]["start"]["line"] + 1
        name = each.get("rule", each["message"])
        if path.parent.name == "right":
            right[place].add(name)
            said.append(f"{place}: {each['message']}")
        elif not name.startswith("reportUnknown"):  # what follows from another error of the line
            wrong[place].add(name)
    return dict(right), dict(wrong), said


def test_pyright_has_nothing_to_say_of_what_is_right(
    pyright_of_scripts: tuple[Errors, Errors, list[str]],
) -> None:
    right, _, said = pyright_of_scripts
    assert RIGHT
    assert right == {}, "\n".join(said)


def test_pyright_finds_each_error(pyright_of_scripts: tuple[Errors, Errors, list[str]]) -> None:
    _, wrong, _ = pyright_of_scripts
    assert wrong == marked(of_pyright=True)


def test_mypy_finds_each_error() -> None:
    # As `make types` does, with its cache, which has read the package just before.
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, WRONG)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found: Errors = defaultdict(set)
    for line in ended.stdout.splitlines():
        if match := _MYPY_ERROR.fullmatch(line):
            found[Path(match[1]).name, int(match[2])].add(match[3])
    assert dict(found) == marked(of_pyright=False)


def test_the_marks_are_read() -> None:
    # Or all of the above would compare nothing with nothing.
    for of_pyright in (True, False):
        assert {path for path, _ in marked(of_pyright=of_pyright)} == {path.name for path in WRONG}


@pytest.fixture(scope="session")
def type_completeness() -> Any:
    """One run over the whole package. It costs more than a test may: it has a row of its own in the budget."""
    return pyright("--verifytypes", "aioproduce", "--ignoreexternal")["typeCompleteness"]


def test_every_public_name_has_a_type(type_completeness: Any) -> None:
    """All modules without an underscore, the parts of `aioproduce.testing` and the integrations among them.

    Types that are unknown because another library does not tell them (`aiokafka`, `confluent_kafka`, ...) are left
    out: `--ignoreexternal`.
    """
    report = type_completeness
    unknown = [
        f"{symbol['name']}: {symbol['diagnostics'][0]['message'] if symbol['diagnostics'] else ''}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert unknown == []
    assert report["completenessScore"] == 1
    assert report["exportedSymbolCounts"]["withKnownType"] > 5000
    checked = {each["name"] for each in report["modules"]}
    assert {"aioproduce.testing", "aioproduce.integrations.fastapi", "aioproduce.compat.confluent"} <= checked
