"""Processes of others, by what Linux tells in `/proc`: who started whom, and who is connected to where.

Used where a test, or the example `lake`, must hit one certain process of a family that it did not start itself:
Spark's JVM, an executor, the Python worker that writes.

1. A process that ends meanwhile is passed over, never an error.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

_ESTABLISHED = "01"


def children(pid: int) -> list[int]:
    """What a process started and lives, by any of its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def family(pid: int) -> list[int]:
    """A process, all that it started, and what these did; parents before their children."""
    found = [pid]
    for each in found:
        found += children(each)
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has asked for its exit code does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def command_of(pid: int) -> bytes:
    """Its command line; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> bool:
    """SIGKILL; False where there is no such process any more."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_family(pid: int) -> None:
    """Send SIGKILL to a process and its descendants, the last ones first, so that no parent restarts one."""
    for each in reversed(family(pid)):
        kill(each)


def connected_to(pids: Iterable[int], ports: Iterable[int]) -> list[int]:
    """Those of these processes that have a connection to one of these ports, in the order given."""
    wanted = {f"{port:04X}" for port in ports}
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED and fields[2].rpartition(":")[2] in wanted:
                sockets.add(f"socket:[{fields[9]}]")
    return [pid for pid in pids if not sockets.isdisjoint(_open_files(pid))]


def _open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(file.path) for file in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return []
