"""compact as a process that kills itself with SIGKILL at a step: ``python -m tests.spark.dying_compact LAKE STEP``.

Started by ``kill_land``, many times: it imports no more than compact does.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from aioproduce.spark.compaction import OLD, RESULT_FILE, Compactor, Policy
from aioproduce.spark.lake_files import LakeFiles
from aioproduce.spark.layout import Table
from aioproduce.spark.manifest import Manifest, Phase
from aioproduce.spark.safety import safe_batches
from aioproduce.spark.store import Store

if TYPE_CHECKING:
    from pathlib import Path

STEPS = ("written", "recorded", "published", "switched", "hidden", "deleting", "finished")
"""At which compact is killed: the result is written; the manifest tells of it; the result is in the table; the
manifest says that it counts; the first source is gone from the table; all are, and none is deleted; the manifest is
idle. Killed at one, the next run goes on to the one after it."""

PHASE_STEPS = {Phase.WRITTEN: "recorded", Phase.SWITCHED: "switched", Phase.IDLE: "finished"}


class DyingFiles(LakeFiles):
    """Kills its own process at a step."""

    def __init__(self, step: str) -> None:
        self._step = step

    def _at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace_file(self, path: Path, content: bytes) -> None:
        super().replace_file(path, content)
        self._at(PHASE_STEPS[Manifest.from_json(content, path=str(path)).phase])

    def move_directory(self, path: Path, to: Path) -> None:
        super().move_directory(path, to)
        self._at("hidden" if to.parent.name == OLD else "published")

    def remove_tree(self, path: Path) -> None:
        if path.name == OLD and path.exists():
            self._at("deleting")
        super().remove_tree(path)

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        if path.name == RESULT_FILE:
            self._at("written")


def main(lake: str, step: str) -> None:
    """Compact the data, and die on the way, if there is so much to do."""
    Compactor(Store(lake, Table.DATA), lambda: safe_batches(lake), Policy(), DyingFiles(step)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
