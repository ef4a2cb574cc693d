"""What an import costs: a new interpreter that imports the package, less one that imports nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median


def import_milliseconds(module: str, rounds: int) -> float:
    """The median of so many rounds, interleaved with the empty interpreter."""
    with_it, without = [], []
    for _ in range(rounds + 1):
        without.append(_seconds("pass"))
        with_it.append(_seconds(f"import {module}"))
    # The first of each reads the files from the disk.
    return (median(with_it[1:]) - median(without[1:])) * 1e3


def _seconds(statement: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - began


def import_times(rounds: int) -> dict[str, float]:
    """Ours beside aiokafka's, in milliseconds."""
    return {module: import_milliseconds(module, rounds) for module in ("aioproduce", "aiokafka")}
