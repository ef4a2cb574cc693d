"""The measured process: `python -m tests.budget.program COUNTER [transactions | silent]`.

Started by `measure` in the world of `world.c`.

Prints one JSON object: for each mode what a run of `RECORDS` and one of twice as many counted.

1. Before it is counted a mode has run once: what happens once in a process has happened.
2. The garbage collector runs between the counted runs only: when it comes depends on everything that was ever made.
3. Chance gives 0, 1, 2, ...: a run has few batches, and requests of one batch each, where chance takes a partition
   twice in a row, made send_many a third dearer than requests of two.
4. Each run begins with a full second and with chance's 0. The table of loads is made again every 5 ms, and with it
   other partitions are drawn: when that was, in the first mode, depended on what the process had done before.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count as numbers
from random import Random
from typing import Any, Final, Protocol
from unittest.mock import patch

from aioproduce import Producer
from tests.budget.modes import MODES, VALUE, alone, dropped, in_transaction
from tests.budget.world import TOPIC, MemoryLoop

RECORDS: Final = 4_000
REFERENCE: Final = "reference"
LIVE: Final = "live"
TRANSACTIONS: Final = "transactions"
SILENT: Final = "silent"
SERVERS: Final = "broker:9092"
SETTINGS: Final[dict[str, Any]] = {"linger_ms": 5, "batch_size": 65536, "client_id": "budget"}

Counts = dict[str, dict[str, list[float]]]
"""What was counted: mode, then figure, then the smaller and the larger run."""


class Counter(Protocol):
    """Counts one thing while a mode runs."""

    def start(self) -> None:
        """From here."""

    def stop(self, name: str) -> dict[str, float]:
        """Until here; nothing where the figures are to be had elsewhere, under this name."""


class Frames:
    """Python frames entered (a coroutine's, each time it goes on) and C functions called from them."""

    def __init__(self) -> None:
        self._frames = 0
        self._calls = 0

    def _count(self, _frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            self._frames += 1
        elif event == "c_call":
            self._calls += 1

    def start(self) -> None:
        """Profile from here."""
        self._frames = self._calls = 0
        sys.setprofile(self._count)

    def stop(self, name: str) -> dict[str, float]:
        """The figures."""
        sys.setprofile(None)
        return {"frames": self._frames, "calls": self._calls}


class Instructions:
    """Instructions of the process, counted by callgrind, which writes them to a file for each run."""

    def __init__(self, world: ctypes.CDLL) -> None:
        self._world = world

    def start(self) -> None:
        """Count from here."""
        self._world.budget_count_from_here()

    def stop(self, name: str) -> dict[str, float]:
        """Write the figure under this name."""
        self._world.budget_dump(name.encode())
        return {}


async def count(
    mode: Callable[[int], Awaitable[None]], name: str, counter: Counter, align: Callable[[], None]
) -> dict[str, list[float]]:
    """What a mode's two runs count."""
    await mode(RECORDS)
    runs = []
    for size in (RECORDS, 2 * RECORDS):
        gc.collect()
        align()
        counter.start()
        await mode(size)
        runs.append(counter.stop(f"{name} {size}"))
    smaller, larger = runs
    return {figure: [smaller[figure], larger[figure]] for figure in smaller}


async def reference(records: int) -> None:
    """Work that is no part of aioproduce, of the same kind: to tell this Python's price from ours.

    No memory that grows in place: what that costs depends on what happens to lie behind it.
    """

    async def accepted(place: dict[str, int], value: bytes) -> tuple[bytes, int]:
        place["size"] += len(value)
        if place["size"] > 65536:
            place["size"] = 0
        return value, place["size"]

    place = {"size": 0}
    total = 0
    for _ in range(records):
        value, _ = await accepted(place, VALUE)
        total += len(value)
    assert total == 100 * records


async def count_modes(producer: Producer, counter: Counter, align: Callable[[], None]) -> Counts:
    """All modes, and the reference."""
    counts = {REFERENCE: await count(reference, REFERENCE, counter, align)}
    for name, mode in MODES.items():
        if mode is not alone:
            counts[name] = await count(partial(mode, producer), name, counter, align)
    async with Producer(SERVERS, **SETTINGS | {"linger_ms": 0}) as at_once:
        counts[alone.__name__] = await count(partial(alone, at_once), alone.__name__, counter, align)
    return counts


async def count_in_transaction(counter: Counter, align: Callable[[], None]) -> Counts:
    """The same records without a transaction and in one."""
    counts: Counts = {}
    for mode, transactional_id in ((dropped, None), (in_transaction, "budget")):
        async with Producer(SERVERS, **SETTINGS, transactional_id=transactional_id) as producer:
            counts[mode.__name__] = await count(partial(mode, producer), mode.__name__, counter, align)
    return counts


async def count_live(producer: Producer) -> Counts:
    """What a delivery that is kept keeps: blocks of memory, objects that the garbage collector walks, bytes."""
    blocks: list[float] = []
    tracked: list[float] = []
    size = 0.0
    for records in (RECORDS, RECORDS, 2 * RECORDS):
        gc.collect()
        blocks_before, tracked_before = sys.getallocatedblocks(), len(gc.get_objects())
        deliveries = [await producer.send(TOPIC, VALUE) for _ in range(records)]
        await producer.flush()
        gc.collect()
        blocks.append(sys.getallocatedblocks() - blocks_before)
        tracked.append(len(gc.get_objects()) - tracked_before)
        size = sys.getsizeof(deliveries[0])
        del deliveries
    return {LIVE: {"blocks": blocks[1:], "tracked": tracked[1:], "bytes": [0.0, size * RECORDS]}}


class Chance:
    """Yield 0, 1, 2, ... and start again at the end."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """0 again."""
        self._numbers = numbers()

    def draw(self, stop: int) -> int:
        """The next number below that."""
        return next(self._numbers) % stop


async def run(what: str, of: str, world: ctypes.CDLL, chance: Chance) -> Counts:
    """Count with producers of its own."""

    def align() -> None:
        world.budget_align()
        chance.restart()

    counter = Instructions(world) if what == "instructions" else Frames()
    if of == TRANSACTIONS:
        return await count_in_transaction(counter, align)
    if of == SILENT:
        from benchmarks.silent_metrics import silent

        with silent():
            return await run(what, "", world, chance)
    async with Producer(SERVERS, **SETTINGS) as producer:
        if what == "live":
            return await count_live(producer)
        return await count_modes(producer, counter, align)


def main(what: str, of: str = "") -> None:
    """Count, and print."""
    world = ctypes.CDLL(None)  # what is preloaded is among the process's own functions
    world.budget_pass.argtypes = [ctypes.c_double]
    gc.collect()
    gc.disable()
    chance = Chance()
    with (
        patch.object(Random, "randrange", lambda _, stop: chance.draw(stop)),
        asyncio.Runner(loop_factory=lambda: MemoryLoop(world.budget_pass)) as runner,
    ):
        counts = runner.run(run(what, of, world, chance))
        broker = runner.get_loop().broker  # type: ignore[attr-defined]  # it is a MemoryLoop
    assert broker.records > RECORDS
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
