"""The cost of an import: a new interpreter that imports the producer, less one that imports nothing."""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

STATEMENTS = (
    "import aioproduce",
    "from aioproduce import Producer",
    "from aiokafka import AIOKafkaProducer",
    "from confluent_kafka import Producer",
)


def import_times(rounds: int) -> dict[str, float]:
    """Return the milliseconds of CPU time of each statement: medians of a number of interleaved rounds."""
    runs: dict[str, list[float]] = {statement: [] for statement in ("pass", *STATEMENTS)}
    # The first round reads the files from the disk, and is not counted.
    for number in range(rounds + 1):
        for statement, found in runs.items():
            taken = _cpu_seconds(statement)
            if number:
                found.append(taken)
    empty = median(runs.pop("pass"))
    return {statement: (median(found) - empty) * 1e3 for statement, found in runs.items()}


def _cpu_seconds(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
