"""Figures of a process, from inside and from outside: pinning, CPU seconds, resident memory, payload.

Called by the workers and the client modules. Linux only: `/proc` is read.

1. Peak memory is `VmHWM`, not `ru_maxrss`: the latter survives `exec` and would be the parent's.
2. CPU seconds are user and system time of all threads; of a child process as the kernel counts it in `/proc`,
   in ticks of 10 ms.
"""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
DISTINCT_VALUES = 1000


def pin(cores: tuple[int, ...]) -> None:
    """Pin this process and its children to these processors; an empty tuple pins nothing."""
    if cores:
        os.sched_setaffinity(0, cores)


def cpu_seconds() -> float:
    """Return the user and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds_of(pid: int) -> float:
    """Return the same of another process, while it runs."""
    # The name in parentheses may contain anything, so the fields are counted from its end.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int | str = "self", *, peak: bool = False) -> int:
    """Return the resident bytes of a process, now or (``peak``) at most so far; 0 if it has ended."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def payload(size: int) -> list[bytes]:
    """Return values of exactly that size, the same in each run: text without line ends, compressible threefold."""
    words = random.Random(4)
    vocabulary = [
        "".join(words.choices("abcdefghijklmnopqrstuvwxyz", k=words.randint(3, 9))) for _ in range(500)
    ]
    values = []
    for number in range(DISTINCT_VALUES if size <= 16384 else 20):
        parts, length = [f'{{"id": {number}, "text": "'], 20
        while length < size:
            parts.append(words.choice(vocabulary))
            length += len(parts[-1])
        values.append(" ".join(parts).encode()[:size].ljust(size, b"."))
    return values
