"""The time of a record in each stage: `python -m benchmarks.stages`.

For docs/explanation/measurements.md.

One producer, uvloop, null broker; values of 100 bytes, batches of 64 KiB; processor seconds of this process.

1. The cost of every record is timed separately, in a loop, and the time of the empty loop is subtracted.
2. The cost of a batch or a request is timed in place: the few methods that each of them passes through once are
   wrapped in two readings of the clock (a tenth of a microsecond). An inner stage is subtracted from the outer one.
3. For the checksum the limit is measured, too: the least time that its work can take on this machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvloop
from crc32c import crc32c

from aioproduce import Producer
from aioproduce._native.delivery import BatchResult
from aioproduce._native.key_hash import MURMUR2
from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce._native.topic_appender import TopicAppender
from aioproduce.core.batching.producer_batch import ProducerBatch
from aioproduce.core.sender import Sender
from aioproduce.drivers import asyncio as driver
from aioproduce.producer.admission import Admission
from benchmarks.null_broker import null_broker

TOPIC: Final = "bench"
VALUE: Final = b"v" * 100
BATCH_SIZE: Final = 65536
RECORDS: Final = 500_000
ROUNDS: Final = 5
STAGES: Final[dict[str, tuple[type, str]]] = {
    "open a batch: memory, queue, sticky choice": (Admission, "append_at_once"),
    "drain, sequence, request": (Sender, "next_effect"),
    "seal: header and checksum": (ProducerBatch, "begin_attempt"),
    "write: the system call": (driver._Connection, "write"),
    "answer: decode, settle, give memory back": (Sender, "receive_data"),
}
CHECKSUM: Final = "(the checksum alone, which is part of the seal)"


class Stopwatch:
    """Time and calls by stage; an inner stage is subtracted from the outer one."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, timed."""

        def call(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                took = time.perf_counter() - began
                self.seconds[name] += took - self._inner.pop()
                self._inner[-1] += took

        return call


@contextmanager
def wrapped(watch: Stopwatch) -> Iterator[None]:
    """Time the stages during the context."""
    originals = {name: getattr(owner, method) for name, (owner, method) in STAGES.items()}
    for name, (owner, method) in STAGES.items():
        setattr(owner, method, watch.timed(name, originals[name]))
    try:
        yield
    finally:
        for name, (owner, method) in STAGES.items():
            setattr(owner, method, originals[name])


def least(measure: Callable[[], float]) -> float:
    """Return the fastest of a few: other work on the machine is not the stage's."""
    return min(measure() for _ in range(ROUNDS))


def per_call(function: Callable[[], object], calls: int) -> float:
    """Return the processor seconds of one call, without the loop around it."""
    began = time.process_time()
    for _ in range(calls):
        pass
    empty = time.process_time() - began
    began = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - began - empty) / calls


def append_cost() -> float:
    """One record into an open batch, with its future, called from Python."""
    appender = TopicAppender(MURMUR2)
    appender.set_partition_count(1)
    calls = BATCH_SIZE // 2 // len(VALUE)

    def measure() -> float:
        buffer = RecordBatchBuffer(bytearray(BATCH_SIZE))
        appender.open(0, buffer, BatchResult(TOPIC, 0, None))  # type: ignore[arg-type]  # nobody waits
        return per_call(lambda: appender.append(0, 0, None, VALUE, None), calls)

    call = min(per_call(lambda: None, calls) for _ in range(200))
    return min(measure() for _ in range(200)) - call


async def of_records(producer: Producer) -> dict[str, float]:
    """Seconds a record: sent and dropped, and what awaiting its delivery adds."""
    dropped: list[float] = []
    awaited: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(RECORDS):
            await producer.send(TOPIC, VALUE)
        await producer.flush()
        dropped.append((time.process_time() - began) / RECORDS)
        deliveries = [await producer.send(TOPIC, VALUE) for _ in range(RECORDS // 10)]
        await producer.flush()
        began = time.process_time()
        for delivery in deliveries:
            await delivery
        awaited.append((time.process_time() - began) / len(deliveries))
        del deliveries
    return {"dropped": min(dropped), "awaited": min(awaited)}


async def of_batches(producer: Producer, batches: Callable[[], int]) -> dict[str, float]:
    """Seconds a batch, by stage."""
    found: dict[str, float] = {}
    for _ in range(ROUNDS):
        watch = Stopwatch()
        before = batches()
        with wrapped(watch):
            for _ in range(RECORDS):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
        count = batches() - before
        for name in STAGES:
            found[name] = min(found.get(name, 1.0), watch.seconds[name] / count)
    return found


async def measured(servers: str, batches: Callable[[], int]) -> dict[str, dict[str, float]]:
    """Nanoseconds of a record and, where a batch pays, microseconds of a batch, by stage."""
    async with Producer(servers, linger_ms=5, batch_size=BATCH_SIZE, buffer_memory=2**26) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        records = await of_records(producer)
        stages = await of_batches(producer, batches)
    block = bytes(BATCH_SIZE)
    checksum = least(lambda: per_call(lambda: crc32c(block), 2000))
    append = append_cost()
    of_batch = sum(stages.values())
    each = BATCH_SIZE // 108  # what a record of this size takes in a batch
    rest = records["dropped"] - append - of_batch / each
    return {
        "append: write the record, make its future": {"record_ns": append * 1e9},
        "send() around it: call, checks, clock, await": {"record_ns": rest * 1e9},
        **{
            name: {"record_ns": seconds / each * 1e9, "batch_us": seconds * 1e6}
            for name, seconds in stages.items()
        },
        CHECKSUM: {"record_ns": checksum / each * 1e9, "batch_us": checksum * 1e6},
        "sent, delivery dropped": {"record_ns": records["dropped"] * 1e9},
        "await of the delivery: RecordMetadata": {"record_ns": records["awaited"] * 1e9},
    }


def main() -> None:
    """Measure and print all stages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for a program")
    options = parser.parse_args()
    with null_broker(topics={TOPIC: 6}) as broker:
        found = uvloop.run(measured(broker.bootstrap_servers, lambda: broker.stats()["batches"]))
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'what':48} {'ns a record':>12} {'us a batch':>11}")
    for name, each in found.items():
        batch = f"{each['batch_us']:11.1f}" if "batch_us" in each else ""
        print(f"{name:48} {each['record_ns']:12.1f} {batch}")


if __name__ == "__main__":
    main()
