"""`make quick`: lint, types and the tests that a change reaches, within two minutes; first failures end the run.

What reaches what is recorded (`tests/reach`), since the package imports lazily: an import says little.

1. Changed is what differs from `--since` (default: where this branch left its upstream, else the last commit), new
   files included.
2. A change of the core, the wire or `_native` concerns everything, so it runs `EVERYTHING`: unit and property
   tests and a fixed slice of the others. Any other module runs the test files that reach it. A test file runs
   itself. A page or another file runs the test files that name it.
3. Tests that need real brokers, Spark or a browser, and extended ones, are left to `make test`; a summary says so.
4. Where more is reached than fits `SECONDS`, the test files that reach the fewest modules go first: they are about
   the change. The summary names what was left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.reach import ReachMap, read_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CHECKED: Final = ("aioproduce/", "pyspark_aioproduce/", "tests/", "examples/", "benchmarks/", "setup.py")
CENTRAL: Final = ("aioproduce/core/", "aioproduce/wire/", "aioproduce/_native/")
EVERYTHING: Final = (
    "tests/unit",
    "tests/property",
    "tests/drivers/test_producer_records.py",
    "tests/drivers/test_producer_flush.py",
    "tests/drivers/test_producer_recovery.py",
    "tests/drivers/test_delivery_future.py",
    "tests/simulation/test_seeds.py",
    "tests/simulation/test_scenarios_sequences.py",
    "tests/package/test_layout.py",
)
SECONDS: Final = 150.0
"""Processor time of the chosen test files together, as `tests/reach` recorded it: two processes run them."""
TIER: Final = "not extended and not native and not kafka and not spark and not browser"


@dataclass(slots=True)
class Choice:
    """The tests of one run: pytest's paths, and the test files that did not fit."""

    paths: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def changed_files(since: str | None) -> list[str]:
    """List the files that differ from a revision, and those that git does not track yet.

    Raises:
        OSError: git cannot tell, for example because there is no such revision.
    """
    base = since or _upstream() or "HEAD"
    differing = _git("diff", "--name-only", "--diff-filter=d", base)
    return sorted({*differing, *_git("ls-files", "--others", "--exclude-standard")})


def _upstream() -> str | None:
    """Where this branch left its upstream; None if it has none."""
    found = subprocess.run(
        ["git", "merge-base", "HEAD", "@{upstream}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else None


def _git(*arguments: str) -> list[str]:
    answer = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise OSError(f"git {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout.splitlines()


def choose(
    changed: Iterable[str], reach: ReachMap, *, root: Path = REPOSITORY, seconds: float = SECONDS
) -> Choice:
    """Choose the tests for the changed files.

    Args:
        changed: Paths relative to the root, with slashes.
        reach: The recorded map.
        root: Where the test files are.
        seconds: Processor time that the test files may take together.
    """
    changed = list(changed)
    own = [path for path in changed if _is_test_file(path)]
    if any(path.startswith(CENTRAL) for path in changed):
        return Choice([*own, *(path for path in EVERYTHING if path not in own)])
    reached: set[str] = set()
    for path in changed:
        if path in reach.by_source:
            reached.update(reach.by_source[path])
        elif not _is_test_file(path):
            reached.update(_naming(path, root))
    breadth = Counter(test for tests in reach.by_source.values() for test in tests)
    choice = Choice(own)
    spent = sum(reach.seconds.get(path, 1.0) for path in own)
    for test in sorted(reached - set(own), key=lambda test: (breadth[test], test)):
        spent += reach.seconds.get(test, 1.0)
        fits = spent <= seconds and (root / test).exists()
        (choice.paths if fits else choice.left_out).append(test)
    return choice


def _is_test_file(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def _naming(path: str, root: Path) -> set[str]:
    """The test files that name a file: a harness by its module, a page or an example by its name."""
    name = Path(path)
    wanted = path.removesuffix(".py").replace("/", ".") if name.suffix == ".py" else name.name
    return {
        test.relative_to(root).as_posix()
        for test in sorted(root.glob("tests/**/test_*.py"))
        if wanted in test.read_text(encoding="utf-8")
        or (name.name == "conftest.py" and test.parent == root / name.parent)
    }


def _check(title: str, *command: str) -> bool:
    """Run one command where one can see it; say whether it passed."""
    print(f"== {title}", flush=True)
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0


def run(changed: Sequence[str], reach: ReachMap) -> int:
    """Lint, type-check and test what changed; the exit status of `make quick`."""
    python = [sys.executable, "-m"]
    sources = [path for path in changed if path.endswith(".py") and path.startswith(CHECKED)]
    choice = choose(changed, reach)
    passed = True
    if sources:
        passed = _check("lint", *python, "ruff", "check", *sources)
        passed = _check("format", *python, "ruff", "format", "--check", *sources) and passed
        if any(path.startswith("aioproduce/") for path in sources):
            passed = _check("floors", str(Path(sys.executable).with_name("lint-imports"))) and passed
        passed = passed and _check("types", *python, "mypy", *sources)
    if passed and choice.paths:
        pytest = ["pytest", "-q", "-n", "2", "--dist", "loadgroup", "--maxfail", "3", "-m", TIER]
        passed = _check(f"tests: {len(choice.paths)} paths", *python, *pytest, *choice.paths)
    if choice.left_out:
        print(f"left to `make test`, because they do not fit two minutes: {', '.join(choice.left_out)}")
    print(
        f"{len(changed)} files changed, {len(choice.paths)} paths of tests run: {'passed' if passed else 'FAILED'}."
        " Real brokers, Spark, the browser and extended tests are for `make test` and `make test-full`."
    )
    return 0 if passed else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m tests.gate.quick [--since REVISION]`."""
    parser = argparse.ArgumentParser(prog="make quick", description="Lint, types and tests of what changed.")
    parser.add_argument(
        "--since", help="a revision (default: where this branch left its upstream, else HEAD)"
    )
    changed = changed_files(parser.parse_args(arguments).since)
    if not changed:
        print("Nothing has changed: `make quick QUICK='--since REVISION'` names what to compare with.")
        return 0
    return run(changed, read_map())


if __name__ == "__main__":
    sys.exit(main())
