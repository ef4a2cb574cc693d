"""The cost of an import: a new interpreter that imports the producer, less one that imports nothing.

The modules' bytecode is kept between the rounds, as it is wherever `PYTHONDONTWRITEBYTECODE` is not set. With that
variable each process compiles the sources again, which costs as much again as the import.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
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
    # The first round reads the files from the disk and keeps their bytecode, and is not counted.
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        for number in range(rounds + 1):
            for statement, found in runs.items():
                taken = _cpu_seconds(statement, environment)
                if number:
                    found.append(taken)
    empty = median(runs.pop("pass"))
    return {statement: (median(found) - empty) * 1e3 for statement, found in runs.items()}


def _cpu_seconds(statement: str, environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
