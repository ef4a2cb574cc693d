"""One pytest session: collect once, record what each test reaches, run chosen tests in forked children.

1. The parent only collects: every test runs in a child.
2. A test that fails without any mutant is an error, and one that skips is not used.
3. Property tests draw the same few examples each time, and do not shrink: whether one fails is all that counts.
4. The record of what each test reaches is kept, and made again for tests whose file changed, or for all when the
   package or a file that tests share changed.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, TextIO

import pytest

from tests.mutation.pool import in_children
from tests.mutation.swap import functions_of
from tests.mutation.targets import PACKAGE, ROOT, TESTS, targets
from tests.reach.probes import blocks, install, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.mutation.pool import Message
    from tests.mutation.swap import Functions
    from tests.reach.probes import ProbedFinder

_EXAMPLES: Final = 60
_ARGUMENTS: Final = (
    *("-q", "-q", "--no-header", "--strict-markers", "--strict-config"),
    *("-o", "addopts=", "-p", "no:cacheprovider", "-m", "not kafka and not spark and not extended"),
)

_PART: Final = 250
"""How many tests are recorded by one child."""

RECORDING: Final = (240.0, 280.0)
"""How long a test may take while it is recorded: of processor time, and by the clock."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one test did in the recording."""

    test: str
    outcome: str
    cpu: float
    wall: float
    probes: list[int] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """Seconds; a second of waiting costs less than one of work."""
        return self.cpu + 0.3 * max(self.wall - self.cpu, 0.0)


class Session:
    """The plugin: `body` runs in place of pytest's own loop over the tests.

    Attributes:
        items: The tests, by their names.
        functions: The functions that can be swapped.
    """

    def __init__(self, folder: Path, body: Callable[[Session], None]) -> None:
        self._folder = folder
        self._body = body
        self._error: BaseException | None = None
        self.items: dict[str, pytest.Item] = {}
        self.functions: Functions = {}
        prepare(folder, PACKAGE)
        self.finder: ProbedFinder = install(folder, folder / "hits")
        # The other modules' probes would only take room.
        self._wanted = frozenset(
            number
            for name in targets()
            for number, _, _ in blocks(self.finder.probes, f"{PACKAGE.name}.{name}")
        )

    def run(self, tests: Sequence[str] = TESTS) -> None:
        """Collect, and run the body."""
        code = pytest.main([*_ARGUMENTS, *tests], plugins=[self])
        if self._error is not None:
            raise self._error
        if not self.items:
            raise RuntimeError(f"pytest collected no tests and ended with {code!r}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know the tests, and make property tests small."""
        self.items = {item.nodeid: item for item in session.items}
        for item in session.items:
            _make_small(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the body; what it raises is not pytest's."""
        if session.testsfailed:
            return False
        # One folder for all children, and never pruned by one of them.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        gc.unfreeze()  # what is frozen is not found
        self.functions = functions_of(targets().values())
        gc.collect()
        gc.freeze()
        try:
            self._body(self)
        except BaseException as error:
            self._error = error
        return True

    def recorded(self, workers: int, progress: Callable[[int, int], None]) -> dict[str, Recorded]:
        """By test: what it reaches. Read from the folder, where that is still true."""
        keys = _keys(self.items)
        path = self._folder / "record.jsonl"
        known: dict[str, Recorded] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            key, stored = json.loads(line)
            if stored["test"] in self.items and key == keys[_file(stored["test"])]:
                known[stored["test"]] = Recorded(**stored)
        missing = [name for name in self.items if name not in known]
        progress(len(known), len(self.items))
        with path.open("w", encoding="utf-8") as file:
            _write(file, known.values(), keys)
            for recorded in self._record(missing, workers):
                known |= {each.test: each for each in recorded}
                _write(file, (each for each in recorded if each.outcome != "failed"), keys)
                progress(len(known), len(self.items))
        return known

    def _record(self, names: list[str], workers: int) -> Iterator[list[Recorded]]:
        parts = [names[start : start + _PART] for start in range(0, len(names), _PART)]
        for child in in_children(parts, self._record_part, workers):
            lines = [message for message in child.messages if "outcome" in message]
            yield [Recorded(**line) for line in lines]
            if len(lines) < len(child.job):
                why = child.messages[-1].get("failed", "it hung" if child.is_hung else "it crashed")
                raise RuntimeError(f"recording ended at {child.job[len(lines)]}: {why}")

    def _record_part(self, names: list[str], send: Callable[[Message], None]) -> None:
        self.finder.remap(self._folder / f"hits-{os.getpid()}")
        (self._folder / f"hits-{os.getpid()}").unlink()
        runner = _Runner([self.items[name] for name in names])
        for index, name in enumerate(names):
            send({"limits": RECORDING})
            self.finder.clear()
            cpu, wall = time.process_time(), time.monotonic()
            outcome = runner.run(index)
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
            send(
                asdict(
                    Recorded(
                        name,
                        outcome,
                        round(cpu, 4),
                        round(wall, 4),
                        sorted(self._wanted.intersection(self.finder.reached())),
                    )
                )
            )

    def run_until_failure(
        self, names: Sequence[str], limits: Sequence[tuple[float, float]], send: Callable[[Message], None]
    ) -> None:
        """In a child: run tests until one fails."""
        runner = _Runner([self.items[name] for name in names])
        for index, name in enumerate(names):
            send({"limits": limits[index], "test": name})
            if runner.run(index) == "failed":
                send({"killed": name, "why": runner.why})
                return
        send({"survived": len(names)})


class _Runner:
    """Runs tests one by one in a child, without a line on the terminal."""

    def __init__(self, items: list[pytest.Item]) -> None:
        self._items = items
        self._outcome = ""
        self.why = ""
        if items:
            plugins = items[0].config.pluginmanager
            plugins.unregister(name="terminalreporter")
            plugins.register(self, "mutation-runner")

    def run(self, index: int) -> str:
        """One test: passed, skipped or failed."""
        item = self._items[index]
        following = self._items[index + 1] if index + 1 < len(self._items) else None
        self._outcome = "passed"
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return self._outcome

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The worst of set-up, call and tear-down counts."""
        if report.failed:
            self._outcome = "failed"
            self.why = self.why or str(report.longreprtext).strip().rpartition("\n")[2][:200]
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"


def _make_small(item: pytest.Item) -> None:
    from hypothesis import HealthCheck, Phase, settings  # not before the probes are in

    def small(old: settings) -> settings:
        return settings(
            old,
            max_examples=min(old.max_examples, _EXAMPLES),
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )

    body: Any = getattr(item, "obj", None)
    body = getattr(body, "__func__", body)
    if hasattr(body, "_hypothesis_internal_use_settings"):
        body._hypothesis_internal_use_settings = small(body._hypothesis_internal_use_settings)
    owner: Any = getattr(item.parent, "obj", None)
    if isinstance(getattr(owner, "settings", None), settings):
        owner.settings = small(owner.settings)


def _write(file: TextIO, lines: Iterable[Recorded], keys: Mapping[str, str]) -> None:
    """What is written can be read again, though the run is ended before its end."""
    file.writelines(json.dumps((keys[_file(line.test)], asdict(line))) + "\n" for line in lines)
    file.flush()


def _file(test: str) -> str:
    return test.partition("::")[0]


def _keys(items: Iterable[str]) -> dict[str, str]:
    """By test file: the hash of all that its record depends on."""
    shared = [*sorted(PACKAGE.rglob("*.py")), *sorted((ROOT / "tests").glob("*.py"))]
    for folder in sorted({"/".join(each.split("/")[:2]) for each in TESTS}):
        shared += sorted(path for path in (ROOT / folder).rglob("*.py") if not path.name.startswith("test_"))
    common = hashlib.sha256()
    for path in shared:
        common.update(path.read_bytes())
    return {
        file: hashlib.sha256(common.digest() + (ROOT / file).read_bytes()).hexdigest()
        for file in {_file(name) for name in items}
    }


def by_probe(recorded: Mapping[str, Recorded], first: int, end: int) -> dict[int, list[str]]:
    """By probe of one module: the tests that reach it and pass."""
    found: dict[int, list[str]] = {}
    for line in recorded.values():
        if line.outcome == "passed":
            for number in line.probes:
                if first <= number < end:
                    found.setdefault(number, []).append(line.test)
    return found
