"""`sync="always"` with 1,000 tasks, next to a loop that writes and syncs groups of the same bytes.

The loop is what a disk allows: no event loop, no tasks, no encoding. It writes each group by one `pwrite` and syncs
it by one `fdatasync`, into a file whose room is reserved. The size of a group is that of the queue's own groups:
the batches are counted in its files, by their heads.

A second loop has groups of 1,000 records, one of each task: the most that a disk could store if none of them came
late. It has no target.

1. The three take turns, and each turn has as many groups.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.spool.workload import (
    TASKS,
    TOPIC,
    Cost,
    Target,
    by_tasks,
    measured,
    nobody,
    queue,
    run,
    scratch,
    target,
)

GROUPS: Final = 200
LEAST_SHARE: Final = 0.8
_SEGMENT: Final = 16 * 1024**2
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END: Final = 12


class Turn(NamedTuple):
    """One turn of both.

    Attributes:
        records_per_second: Of the queue.
        group: Records of a group, on average.
        group_bytes: Bytes of a group, on average.
        syncs_per_second: Of the bare loop.
        full_per_second: Records a second of a bare loop whose groups have a record of each task.
    """

    records_per_second: float
    group: float
    group_bytes: float
    syncs_per_second: float
    full_per_second: float

    @property
    def share(self) -> float:
        """The queue's rate, by what the bare loop could store."""
        return self.records_per_second / (self.syncs_per_second * self.group)


def measure(
    folder: Path, rounds: int, scale: float, show: Callable[[str], object]
) -> tuple[list[dict[str, Any]], Target]:
    """Measure both in turn."""
    turns = []
    groups = max(20, int(GROUPS * scale))
    for number in range(rounds):
        show(f"always, round {number + 1}")
        turns.append(_turn(folder, groups))
    what = "always, 1,000 tasks: rate by bare syncs/s x group"
    told = [
        {**each._asdict(), "share": each.share, "full_share": each.records_per_second / each.full_per_second}
        for each in turns
    ]
    return told, target(what, [each.share for each in turns], LEAST_SHARE)


def _turn(folder: Path, groups: int) -> Turn:
    batches: list[tuple[int, int]] = []

    async def spooled() -> Cost:
        with nobody() as away, scratch(folder) as place:
            async with queue(away, place, "always") as producer:
                cost = await measured(
                    groups * TASKS, lambda count: by_tasks(lambda value: producer.send(TOPIC, value), count)
                )
            for log in sorted(place.glob("**/*.log")):
                batches.extend(batches_of(log.read_bytes()))
        return cost

    cost = run(spooled)
    size = sum(size for size, _ in batches) / len(batches)
    group = sum(count for _, count in batches) / len(batches)
    with scratch(folder) as place:
        syncs = bare_syncs(place, round(size), groups)
        full = bare_syncs(place, round(size / group * TASKS), groups) * TASKS
    return Turn(cost.rate, group, size, syncs, full)


def batches_of(content: bytes) -> list[tuple[int, int]]:
    """Return bytes and records of each batch at the beginning of a segment, read by Kafka's description of it."""
    found, at = [], 0
    while at + _HEAD.size <= len(content):
        _, length, _, magic, *_, count = _HEAD.unpack_from(content, at)
        if magic != 2 or count < 1 or length <= 0:
            break
        found.append((length + _LENGTH_END, count))
        at += length + _LENGTH_END
    return found


def bare_syncs(folder: Path, size: int, count: int) -> float:
    """Return how many groups of that many bytes are written and synced in a second."""
    content = os.urandom(size)
    file = os.open(folder / "bare", os.O_CREAT | os.O_RDWR)
    try:
        room = max(_SEGMENT, size)
        os.posix_fallocate(file, 0, room)
        os.fsync(file)
        at = 0
        began = time.perf_counter()
        for _ in range(count):
            if at + size > room:
                at = 0
            os.pwrite(file, content, at)
            os.fdatasync(file)
            at += size
        return count / (time.perf_counter() - began)
    finally:
        os.close(file)
