"""The pytest plugin that writes down what each test reached.

    AIOPRODUCE_REACH=build/reach python -m pytest -p tests.reach.recorder


1. It must be loaded by `-p`, and puts the probes in when it is imported: pytest imports our own plugin soon after.
2. Each process of pytest-xdist has a file of bytes and a record of its own; processes that its tests start share
   the bytes. A process that goes on between tests counts for the test that runs meanwhile.
3. What a fixture of a wider scope reaches counts for the test that it was set up for.
4. A record is written line by line, so that a run that is cut short leaves what it had.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.reach.probes import FOLDER, HITS, PACKAGE, install, prepare

if TYPE_CHECKING:
    from collections.abc import Generator


def _installed() -> Recorder | None:
    """Put the probes in if this run is recorded; a process of pytest-xdist finds their numbers settled."""
    if FOLDER not in os.environ:
        return None
    present = sorted(name for name in sys.modules if name.partition(".")[0] == PACKAGE.name)
    if present:
        raise RuntimeError(f"the probes come too late: {', '.join(present)} is imported already")
    folder = Path(os.environ[FOLDER]).absolute()
    if HITS not in os.environ:
        prepare(folder, PACKAGE)
        for record in folder.glob("record-*.jsonl"):
            record.unlink()
    return Recorder(folder, os.environ.get("PYTEST_XDIST_WORKER", "main"))


def pytest_configure(config: pytest.Config) -> None:
    """Read the probes from here on."""
    if RECORDER is not None:
        config.pluginmanager.register(RECORDER, "reach-recorder")


class Recorder:
    """Reads the probes after each test."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._finder = install(folder, folder / f"hits-{worker}")
        self._record = folder / f"record-{worker}.jsonl"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Clear the probes, run the test, write down which were set."""
        self._finder.clear()
        begun = time.process_time()
        done = yield
        line = {
            "test": item.nodeid,
            "cpu": round(time.process_time() - begun, 4),
            "probes": self._finder.reached(),
        }
        with self._record.open("a", encoding="utf-8") as record:
            record.write(json.dumps(line) + "\n")
        return done


RECORDER = _installed()
