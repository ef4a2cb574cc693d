"""A run notices when the file of survivors is not true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.mutation.mutants import mutants_of
from tests.mutation.survivors import Survivor, objections

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    module = tmp_path / "one.py"
    module.write_text("def one(a):\n    return a < 1\n", encoding="utf-8")
    mutants = mutants_of("one", module)
    first, second, third, fourth = mutants
    entries = {
        name: Survivor(name, function, kind, reason)
        for name, function, kind, reason in (
            (first.name, first.function_hash, "equivalent", "nobody can see it"),
            (second.name, "0" * 12, "equivalent", "nobody can see it"),
            (third.name, third.function_hash, "forgotten", "nobody can see it"),
            ("gone", "0" * 12, "left", "it costs too much"),
        )
    }
    wrong = objections(entries, mutants, {first.name, second.name, fourth.name}, {third.name})
    assert sorted(line.partition(":")[0] for line in wrong) == [
        "a test kills it, so it is no survivor",
        "no reason, or no kind of equivalent and left",
        "survives without a reason",
        f"the function has changed to {second.function_hash}, read the reason again",
        "there is no such mutant (any more)",
    ]
    assert objections({first.name: entries[first.name]}, mutants, {first.name}, set()) == []
