"""The time of a record in each stage: `python -m benchmarks.stages`.

For docs/explanation/measurements.md. Values of 100 bytes, batches of 64 KiB; processor seconds of this process, the
least of several rounds.

1. The cost of every record is timed separately, in a loop, and the time of the empty loop is subtracted.
2. The core is compiled, so nothing can be put around its parts while it runs in a producer. Its stages are timed on
   the core alone, with one batch in each request. The hand-over of a new batch and the write to the socket are
   methods in Python, and timed in place: one producer on uvloop sends to the null broker.
3. What is left of a record's whole time is the cost of `send()` around the append.
4. `gather()` of deliveries that are done is compared with `gather()` of asyncio's own futures that are done.
5. A batch that another thread compresses costs the loop's thread what that thread needs more than without
   compression: hand-over, report, the interpreter's lock, less the bytes that need not be written. Its voluntary
   context switches tell how often it waits for the lock; without compression there are none.
6. For the checksum the limit is measured, too: the least time that its work can take on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final

import uvloop
from crc32c import crc32c

from aioproduce import Producer
from aioproduce._native.delivery import BatchResult
from aioproduce._native.key_hash import MURMUR2
from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce._native.topic_appender import TopicAppender
from aioproduce.core.batching.serialized_record import SerializedRecord
from aioproduce.core.effects import Effect
from aioproduce.drivers import asyncio as driver
from aioproduce.producer.admission import Admission
from aioproduce.testing.fake_cluster.encoding import encode_response
from benchmarks.null_broker import null_broker
from benchmarks.process import payload
from benchmarks.report import stage_cell
from tests.unit.sender_harness import SenderHarness
from tests.unit.sender_wire import TOPIC as CORE_TOPIC
from tests.unit.sender_wire import produce_body

TOPIC: Final = "bench"
VALUE: Final = b"v" * 100
BATCH_SIZE: Final = 65536
RECORDS: Final = 500_000
ROUNDS: Final = 5
CORE_BATCHES: Final = 500
OPEN: Final = "open a batch: memory, queue, sticky choice"
WRITE: Final = "write: the system call"
DRAIN: Final = "drain, sequence, header and checksum, request (core alone)"
ANSWER: Final = "answer: decode, settle, give memory back (core alone)"
GATHER: Final = "gather() of deliveries"
OWN_GATHER: Final = "gather() of asyncio's own futures"
COMPRESSED: Final = "lz4 in another thread: what the loop's thread pays more"
WAITS: Final = "(how often the loop's thread waits for the interpreter's lock)"
CHECKSUM: Final = "(of it the checksum alone)"
IN_PLACE: Final[dict[str, tuple[type, str]]] = {
    OPEN: (Admission, "append_plain"),
    WRITE: (driver._Connection, "write"),
}


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, timed."""

        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return call


@contextmanager
def wrapped(watch: Stopwatch) -> Iterator[None]:
    """Time the methods in Python during the context; a producer that is started in it uses the timed ones."""
    originals = {name: getattr(owner, method) for name, (owner, method) in IN_PLACE.items()}
    for name, (owner, method) in IN_PLACE.items():
        setattr(owner, method, watch.timed(name, originals[name]))
    try:
        yield
    finally:
        for name, (owner, method) in IN_PLACE.items():
            setattr(owner, method, originals[name])


def least(measure: Callable[[], float]) -> float:
    """Return the fastest of a few: other work on the machine is not the stage's."""
    return min(measure() for _ in range(ROUNDS))


def per_call(function: Callable[[], object], calls: int) -> float:
    """Return the processor seconds of one call, without the loop around it."""
    # The least of several: an empty loop that was interrupted would make the call look cheaper than it is.
    empty = min(_loop(calls) for _ in range(ROUNDS))
    began = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - began - empty) / calls


def _loop(turns: int) -> float:
    began = time.process_time()
    for _ in range(turns):
        pass
    return time.process_time() - began


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


class Core:
    """A Sender alone, whose broker acknowledges everything; it times the way to a request, and the answer."""

    def __init__(self) -> None:
        self.harness = SenderHarness(partitions=1, linger_ms=0, batch_size=BATCH_SIZE, buffer_memory=2**26)
        self._record = SerializedRecord(CORE_TOPIC, None, VALUE, None, 0, 0)

    def send_batch(self) -> tuple[float, float]:
        """Return the seconds from a full batch to its request, and those that its answer takes."""
        harness, sender = self.harness, self.harness.sender
        view = sender.metadata.topic(CORE_TOPIC)
        assert view is not None
        for _ in range(BATCH_SIZE // 112):  # one batch, nearly full
            assert sender.accumulator.append(view, self._record, harness.now) is not None
        effects: list[Effect] = []
        began = time.perf_counter()
        while (effect := sender.next_effect(harness.now)) is not None:
            effects.append(effect)  # type: ignore[arg-type]  # nothing logs in, and nothing is compressed
        drained = time.perf_counter() - began
        for effect in effects:
            harness._carry_out(effect)
        (request,) = harness.produces
        harness.requests.remove(request)
        body = produce_body(request, lambda _: 0, {}, (), throttle=0.0, offsets={})
        answer = encode_response(request.api, request.version, request.correlation_id, body)
        frame = len(answer).to_bytes(4, "big") + answer
        began = time.perf_counter()
        sender.receive_data(request.connection_id, frame, harness.now)
        answered = time.perf_counter() - began
        harness.run()
        return drained, answered


def of_core() -> dict[str, float]:
    """Seconds of a batch in the core's stages."""
    core = Core()
    drained, answered = zip(*(core.send_batch() for _ in range(CORE_BATCHES)), strict=True)
    return {DRAIN: min(drained), ANSWER: min(answered)}


async def of_records(servers: str) -> tuple[float, float]:
    """Seconds of a record that is sent and dropped, and what awaiting its delivery adds."""
    dropped: list[float] = []
    awaited: list[float] = []
    async with Producer(servers, linger_ms=5, batch_size=BATCH_SIZE, buffer_memory=2**26) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
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
    return min(dropped), min(awaited)


async def of_gather(servers: str) -> dict[str, float]:
    """Seconds of each of many deliveries in `gather()`, and of asyncio's own futures."""
    count = RECORDS // 10
    found = {GATHER: 1.0, OWN_GATHER: 1.0}
    loop = asyncio.get_running_loop()
    async with Producer(servers, linger_ms=5, batch_size=BATCH_SIZE, buffer_memory=2**26) as producer:
        for _ in range(ROUNDS):
            deliveries = [await producer.send(TOPIC, VALUE) for _ in range(count)]
            await producer.flush()
            futures = [loop.create_future() for _ in range(count)]
            for future in futures:
                future.set_result(None)
            for name, awaited in ((GATHER, deliveries), (OWN_GATHER, futures)):
                began = time.process_time()
                await asyncio.gather(*awaited)
                found[name] = min(found[name], (time.process_time() - began) / count)
            del deliveries, futures, awaited
    return found


async def of_compression(servers: str, batches: Callable[[], int]) -> tuple[float, float]:
    """What a batch that another thread compresses costs the loop's thread more than one as it is.

    Returns:
        Seconds of processor time, and how often the thread waits.
    """
    least_of: dict[str, float] = {}
    waits_of: dict[str, float] = {}
    values = payload(len(VALUE))
    for _ in range(ROUNDS):
        for codec in ("none", "lz4"):
            async with Producer(
                servers, linger_ms=5, batch_size=BATCH_SIZE, buffer_memory=2**26, compression_type=codec
            ) as producer:
                await producer.send_and_wait(TOPIC, VALUE)
                before, began, waits = batches(), time.thread_time(), _waits()
                for number in range(RECORDS // 2):
                    await producer.send(TOPIC, values[number % len(values)])
                await producer.flush()
                count = batches() - before
                spent, waited = (time.thread_time() - began) / count, (_waits() - waits) / count
            least_of[codec] = min(least_of.get(codec, 1.0), spent)
            waits_of[codec] = min(waits_of.get(codec, inf), waited)
    return least_of["lz4"] - least_of["none"], waits_of["lz4"] - waits_of["none"]


def _waits() -> int:
    """How often this thread has given the processor up to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


async def in_place(servers: str, batches: Callable[[], int]) -> dict[str, float]:
    """Seconds of a batch in the methods that are timed in place."""
    found: dict[str, float] = {}
    watch = Stopwatch()
    with wrapped(watch):
        async with Producer(servers, linger_ms=5, batch_size=BATCH_SIZE, buffer_memory=2**26) as producer:
            for _ in range(ROUNDS):
                before = batches()
                watch.seconds.clear()
                for _ in range(RECORDS):
                    await producer.send(TOPIC, VALUE)
                await producer.flush()
                count = batches() - before
                for name in IN_PLACE:
                    found[name] = min(found.get(name, 1.0), watch.seconds[name] / count)
    return found


async def measured(servers: str, batches: Callable[[], int]) -> dict[str, dict[str, float]]:
    """Nanoseconds of a record and, where a batch pays, microseconds of a batch, by stage."""
    dropped, awaited = await of_records(servers)
    stages = {**await in_place(servers, batches), **of_core()}
    gathered = await of_gather(servers)
    compressed, waits = await of_compression(servers, batches)
    block = bytes(BATCH_SIZE)
    checksum = least(lambda: per_call(lambda: crc32c(block), 2000))
    append, batch = append_cost(), sum(stages.values())
    each = BATCH_SIZE // (len(VALUE) + 8)  # the records of a batch

    def of_batch(seconds: float) -> dict[str, float]:
        return {"record_ns": seconds / each * 1e9, "batch_us": seconds * 1e6}

    return {
        "append: write the record, make its future": {"record_ns": append * 1e9},
        "send() around it: call, checks, clock, await": {
            "record_ns": (dropped - append - batch / each) * 1e9
        },
        **{name: of_batch(seconds) for name, seconds in stages.items()},
        "a batch, opened to given back: the sum of these": of_batch(batch),
        CHECKSUM: of_batch(checksum),
        "sent, delivery dropped": {"record_ns": dropped * 1e9},
        "await of the delivery: RecordMetadata": {"record_ns": awaited * 1e9},
        **{name: {"record_ns": seconds * 1e9} for name, seconds in gathered.items()},
        COMPRESSED: of_batch(compressed),
        WAITS: {"times": waits},
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
    print(f"{'what':70} {'ns a record':>12} {'us a batch':>11}")
    for name, each in found.items():
        print(f"{name:70} {stage_cell(each, 'record_ns', 1):>12} {stage_cell(each, 'batch_us', 1):>11}")


if __name__ == "__main__":
    main()
