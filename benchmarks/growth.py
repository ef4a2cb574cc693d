"""Which part of a batch's cost grows with the partitions and topics in turn: `python -m benchmarks.growth`.

The section `scaling` shows that a record's cost grows; this program shows where. Each case fills one batch of 36
records in each partition (or topic) in turn, and then flushes: the mean of several rounds, in processor time of
the client's process. uvloop and the producer have processor 0, the null broker has processor 1.

1. *open* is the first record of each batch, *append* are the others, *flush* is the rest of a batch's way.
2. The collector is a part of these three. Its own time is measured by `gc.callbacks`.
3. Means, not medians: with 100 of them most rounds are too short for a full collection.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections import defaultdict
from itertools import pairwise
from statistics import fmean
from typing import Final, final

import uvloop

from aioproduce import Producer
from benchmarks.process import payload, pin
from benchmarks.targets import null_target

BATCH_SIZE: Final = 4096
RECORDS: Final = 36
"""Records of 100 bytes that fit into a batch."""
BATCHES: Final = 40_000
"""The batches of a case, in all rounds."""
CASES: Final = {
    "100 partitions": (100, False),
    "10,000 partitions": (10_000, False),
    "100 topics": (100, True),
    "5,000 topics": (5_000, True),
}
OPEN: Final = "open"
APPEND: Final = "append"
FLUSH: Final = "flush"
COLLECTOR: Final = "of these, the collector"
WHOLE: Final = "a batch"


@final
class Collections:
    """The processor time of the garbage collector while it is watched."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


async def measured(count: int, batches: int, *, are_topics: bool) -> dict[str, float]:
    """Return the microseconds of a batch in each part, with this many partitions, or topics of one partition."""
    names = {f"bench-{number}": 1 for number in range(count)} if are_topics else {"bench": count}
    places = [(topic, partition) for topic, partitions in names.items() for partition in range(partitions)]
    values = payload(100)
    found: defaultdict[str, list[float]] = defaultdict(list)
    collections = Collections()
    with null_target((1,), topics=names) as target:
        async with Producer(
            target.bootstrap_servers,
            batch_size=BATCH_SIZE,
            buffer_memory=2**25 + 3 * BATCH_SIZE * count,
            linger_ms=60_000,
            max_block_ms=300_000,
        ) as producer:

            async def send(times: int) -> None:
                for number in range(times):
                    for topic, partition in places:
                        await producer.send(topic, values[number], partition=partition)

            await send(RECORDS)
            await producer.flush()
            gc.collect()
            gc.callbacks.append(collections)
            try:
                for _ in range(max(1, batches // count)):
                    collections.seconds = 0.0
                    instants = [time.process_time()]
                    for step in (send(1), send(RECORDS - 1), producer.flush()):
                        await step
                        instants.append(time.process_time())
                    parts = [after - before for before, after in pairwise(instants)]
                    for name, seconds in zip((OPEN, APPEND, FLUSH), parts, strict=True):
                        found[name].append(seconds / count * 1e6)
                    found[COLLECTOR].append(collections.seconds / count * 1e6)
                    found[WHOLE].append(sum(parts) / count * 1e6)
            finally:
                gc.callbacks.remove(collections)
            if producer.unobserved_failures:
                raise RuntimeError(f"{producer.unobserved_failures} records failed: nothing is measured")
    return {name: fmean(each) for name, each in found.items()}


def all_cases(batches: int) -> dict[str, dict[str, float]]:
    """Measure every case."""
    return {
        case: uvloop.run(measured(count, batches, are_topics=are_topics))
        for case, (count, are_topics) in CASES.items()
    }


def main() -> None:
    """Measure and print all cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument(
        "--quick", action="store_true", help="one round of each case: the figures mean nothing"
    )
    options = parser.parse_args()
    pin((0,))
    found = all_cases(0 if options.quick else BATCHES)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'us of a batch':20}" + "".join(f"{name:>26}" for name in found["100 topics"]))
    for case, each in found.items():
        print(f"{case:20}" + "".join(f"{value:26.1f}" for value in each.values()))


if __name__ == "__main__":
    main()
