"""Putting records on disk, next to a plain producer that sends as many to the null broker.

Contenders take turns within a round. The queue's cluster is away, so that what is measured is the way to the disk;
a last contender forwards to the null broker meanwhile, and its turn ends when the queue is empty. So its cost is
that of a record's whole way, and the queue's share of it is what it has above the producer's.

1. A turn of `always` with one task has few records: each waits for a sync of the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.null_broker import NullBroker
from benchmarks.spool.workload import (
    BULK,
    IN_TASKS,
    ONE_TASK,
    Cost,
    Target,
    nobody,
    paired,
    producers_turn,
    queues_turn,
    run,
    target,
)

PRODUCER: Final = "Producer to the null broker"
WHOLE_WAY: Final = "os, and forwarded"
RECORDS: Final = {IN_TASKS: 200_000, BULK: 1_000_000, ONE_TASK: 10_000}
ALWAYS_ONE: Final = 300
LEAST_SHARE: Final = 0.8
LEAST_BULK: Final = 3_000_000
MOST_CPU: Final = 0.3


class Found(NamedTuple):
    """The rows, and the targets."""

    rows: list[dict[str, Any]]
    targets: list[Target]


def measure(
    broker: NullBroker, folder: Path, rounds: int, scale: float, show: Callable[[str], object]
) -> Found:
    """Measure all contenders each way, in interleaved rounds."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    with nobody() as away:
        for number in range(rounds):
            for way, records in RECORDS.items():
                turns = _turns(broker.bootstrap_servers, away, folder, way, max(1_000, int(records * scale)))
                for name in turns if number % 2 else reversed(turns):
                    show(f"append, round {number + 1}: {way}, {name}")
                    costs.setdefault((way, name), []).append(run(turns[name]))
    return Found(_rows(costs), _targets(costs))


def _turns(servers: str, away: str, folder: Path, way: str, count: int) -> dict[str, Callable[[], Any]]:
    turns: dict[str, Callable[[], Any]] = {PRODUCER: partial(producers_turn, servers, way, count)}
    for sync in ("os", "interval", "always"):
        few = ALWAYS_ONE if (sync, way) == ("always", ONE_TASK) else count
        turns[sync] = partial(queues_turn, away, folder, sync, way, min(few, count), drains=False)
    if way != ONE_TASK:
        turns[WHOLE_WAY] = partial(queues_turn, servers, folder, "os", way, count, drains=True)
    return turns


def _rows(costs: dict[tuple[str, str], list[Cost]]) -> list[dict[str, Any]]:
    rows = []
    for (way, name), found in costs.items():
        plain = costs[way, PRODUCER]
        shares = paired([each.rate for each in found], [each.rate for each in plain])
        rows.append(
            {
                "way": way,
                "contender": name,
                "records": found[0].records,
                "records_per_second": round(median(each.rate for each in found)),
                "cpu_us": median(each.cpu_us for each in found),
                "by_producer": [median(shares), min(shares), max(shares)],
                "rounds": [each._asdict() for each in found],
            }
        )
    return sorted(rows, key=lambda row: list(RECORDS).index(row["way"]))


def _targets(costs: dict[tuple[str, str], list[Cost]]) -> list[Target]:
    def rates(way: str, name: str) -> list[float]:
        return [each.rate for each in costs[way, name]]

    def more_cpu(way: str, name: str) -> list[float]:
        pairs = zip(costs[way, name], costs[way, PRODUCER], strict=True)
        return [mine.cpu_us - plain.cpu_us for mine, plain in pairs]

    found = [
        target(
            f"{sync}, 1,000 tasks: rate by the producer's",
            paired(rates(IN_TASKS, sync), rates(IN_TASKS, PRODUCER)),
            LEAST_SHARE,
        )
        for sync in ("os", "interval")
    ]
    found.append(target("os, send_many: records/s", rates(BULK, "os"), LEAST_BULK))
    for way in (IN_TASKS, BULK):
        for name in ("os", WHOLE_WAY):
            what = f"{name}, {way}: CPU s per million above the producer's"
            found.append(target(what, more_cpu(way, name), MOST_CPU, is_least=False))
    return found
