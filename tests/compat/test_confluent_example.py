"""The example runs, in a process of its own, and without confluent-kafka the drop-in names the extra."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from aioproduce.errors import MissingExtraError

ROOT = Path(__file__).parents[2]


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.drop_in_confluent"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 left after flush()" in done.stdout
    assert "1000 messages in " in done.stdout
    assert "told: b'with headers' is there, headers [('from', b'example')]" in done.stdout
    assert "refused: MSG_SIZE_TOO_LARGE" in done.stdout


def test_without_confluent_kafka_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in [name for name in sys.modules if name.startswith("aioproduce.compat.confluent")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"aioproduce\[confluent\]"):
        importlib.import_module("aioproduce.compat.confluent")
