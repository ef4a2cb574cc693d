"""What becomes of a mutant: killed, hung (twice), survived, or void."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.mutation import run as run_module
from tests.mutation.mutants import Mutant
from tests.mutation.run import Status, run_mutants
from tests.mutation.session import Recorded
from tests.mutation.swap import NotSwappableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

TESTS = ["tests/unit/test_a.py::test_first", "tests/unit/test_a.py::test_second"]
PROBES: Any = SimpleNamespace(modules={"aioproduce.one": ("", 0)}, places={"aioproduce.one": [("f", 1)]})


def named(name: str) -> Mutant:
    return Mutant(name, "one", Path("one.py"), "f", "f", 1, "hash", 0, "number", 0)


class FakeSession:
    """Its tests do what the mutant's name says, in the second test."""

    def __init__(self, folder: Path) -> None:
        self.finder = SimpleNamespace(probes=PROBES)
        self.functions: dict[Any, Any] = {}
        self.mutant = ""
        self.folder = folder

    def swap(self, mutant: Mutant, functions: object) -> None:
        self.mutant = mutant.name
        if mutant.name == "void":
            raise NotSwappableError("as told")

    def run_until_failure(
        self, names: Sequence[str], limits: object, send: Callable[[dict[str, Any]], None]
    ) -> None:
        for name in names:
            is_slow = name == TESTS[1] and (
                self.mutant == "hangs"
                or (self.mutant == "hangs once" and not (self.folder / "hung").exists())
            )
            send({"limits": [60, 0.05 if is_slow else 60], "test": name})
            if is_slow:
                (self.folder / "hung").touch()
                time.sleep(3600)
            if name == TESTS[1] and self.mutant == "killed":
                send({"killed": name, "why": "assert 1 == 2"})
                return
        send({"survived": len(names)})


def test_each_comes_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = FakeSession(tmp_path)
    monkeypatch.setattr(run_module, "swap", session.swap)
    recorded = {name: Recorded(name, "passed", 0.1, 0.1, [0]) for name in TESTS}
    drawn = [named(name) for name in ("hangs once", "killed", "void", "survives", "hangs")]
    results = {result.mutant.name: result for result in run_mutants(session, recorded, drawn, 1, 10.0)}
    assert {name: result.status for name, result in results.items()} == {
        "killed": Status.KILLED,
        "void": Status.VOID,
        "survives": Status.SURVIVED,
        "hangs once": Status.SURVIVED,
        "hangs": Status.HUNG,
    }
    assert results["killed"].test == results["hangs"].test == TESTS[1]
    assert results["killed"].why == "assert 1 == 2"
