"""Threads that send: `python -m benchmarks.blocking`, BlockingProducer compared with confluent-kafka's Producer.

A process of each takes turns of a fraction of a second against one null broker, so other work on the machine
affects all of them. A ratio is of two consecutive turns. The medians, minima and maxima are shown.

1. The settings are the same (`cases.Settings`). A turn ends when the callback of every record has reported its
   acknowledgement.
2. confluent-kafka must be polled: by every thread after each hundred records ("polled by all"), or by a separate
   thread ("polled by one"). Both are measured, since the faster one depends on the number of threads.
3. The broker's count must equal the number of acknowledged records.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import Any, Final, NoReturn, cast, final

from rich.console import Console
from rich.table import Table

from aioproduce import BlockingProducer
from aioproduce._native.delivery import BatchResult
from aioproduce._native.hand_over import BlockingPath, HandOver
from aioproduce._native.key_hash import MURMUR2
from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce._native.topic_appender import TopicAppender
from benchmarks.cases import PARTITIONS, TOPIC, Case
from benchmarks.clients.confluent_client import settings_of
from benchmarks.null_broker import null_broker
from benchmarks.process import payload

VALUES: Final = payload(100)
OURS: Final = ("callbacks", "futures")
THEIRS: Final = ("confluent, polled by all", "confluent, polled by one")

Turn = Callable[[int, int], None]
"""Sends a number of records from a number of threads, and waits until all are acknowledged."""


def in_threads(threads: int, work: Callable[[], object]) -> None:
    """Run it in this number of threads at once."""
    started = [threading.Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


@final
class _Count:
    """The count of delivery callbacks, which are called in one thread at a time."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def __call__(self, first: Any, second: Any) -> None:
        # Ours gets (metadata, error), theirs (error, message).
        self.acknowledged += 1

    def check(self, expected: int) -> None:
        if self.acknowledged != expected:
            raise RuntimeError(f"{expected} records were sent, and {self.acknowledged} called back for")
        self.acknowledged = 0


# -- the clients ---


def _ours(servers: str, mode: str) -> tuple[Turn, Callable[[], object]]:
    settings = Case("blocking", "").settings
    producer = BlockingProducer(
        servers,
        linger_ms=settings.linger_ms,
        batch_size=settings.batch_size,
        buffer_memory=settings.buffer_memory,
    )
    producer.start()
    send = producer.send

    def callbacks(records: int, threads: int) -> None:
        count = _Count()

        def work() -> None:
            for number in range(records // threads):
                send(TOPIC, VALUES[number % 1000], on_delivery=count)

        in_threads(threads, work)
        producer.flush()
        count.check(records)

    def futures(records: int, threads: int) -> None:
        def work() -> None:
            deliveries = [send(TOPIC, VALUES[number % 1000]) for number in range(records // threads)]
            for delivery in deliveries:
                delivery.result()

        in_threads(threads, work)

    return (callbacks if mode == "callbacks" else futures), producer.close


def _theirs(servers: str, mode: str) -> tuple[Turn, Callable[[], object]]:
    from confluent_kafka import Producer

    producer = Producer(settings_of(Case("blocking", ""), servers))
    produce, poll = producer.produce, producer.poll
    is_polled_by_one = mode.endswith("one")
    wait = time.sleep if is_polled_by_one else poll
    ended = threading.Event()

    def turn(records: int, threads: int) -> None:
        count = _Count()

        def work() -> None:
            for number in range(records // threads):
                while True:
                    try:
                        produce(TOPIC, VALUES[number % 1000], on_delivery=count)
                        break
                    except BufferError:
                        wait(0.001)
                if not is_polled_by_one and number % 100 == 0:
                    poll(0)

        in_threads(threads, work)
        producer.flush()
        count.check(records)

    def poll_on() -> None:
        while not ended.is_set():
            poll(0.1)

    poller = threading.Thread(target=poll_on)
    if is_polled_by_one:
        poller.start()

    def close() -> None:
        ended.set()
        if is_polled_by_one:
            poller.join()

    return turn, close


# -- the stages ---


def stages() -> dict[str, float]:
    """Return the nanoseconds of a record in each stage alone, in one thread: the best of some rounds."""
    rounds = [_stages_once() for _ in range(15)]
    return {name: min(costs[name] for costs in rounds) for name in rounds[0]}


def _stages_once() -> dict[str, float]:
    count, per_batch = 60_000, 600
    appender = TopicAppender(MURMUR2)
    appender.set_partition_count(1)
    appender.set_sticky(0, 10**12)
    wakes: list[None] = []
    hand_over = HandOver(
        {TOPIC: appender},
        lambda: wakes.append(None),
        lambda: None,
        _never,
        _never,
        limit=10**12,
        largest=10_000,
        is_plain=True,
    )
    path = BlockingPath()
    path._open_path(hand_over)
    told = _Count()
    costs = dict.fromkeys(
        ("send(), callback", "send()", "into the batch, callback", "into the batch", "callback", "result()"),
        0.0,
    )
    for has_callback in (True, False):
        suffix = ", callback" if has_callback else ""
        for _ in range(count // per_batch):
            result = BatchResult(TOPIC, 0, cast("Any", None))
            appender.open(0, RecordBatchBuffer(bytearray(per_batch * 200)), result)
            began = time.perf_counter()
            if has_callback:
                sent = [path.send(TOPIC, value, on_delivery=told) for value in VALUES[:per_batch]]
            else:
                sent = [path.send(TOPIC, value) for value in VALUES[:per_batch]]
            handed = time.perf_counter()
            entries = hand_over.take()
            if hand_over.accept(entries, 0, per_batch, {}) != per_batch:
                raise RuntimeError("the batch was too small")
            accepted = time.perf_counter()
            result.succeed(0)
            result.run_callbacks()
            settled = time.perf_counter()
            costs["send()" + suffix] += handed - began
            costs["into the batch" + suffix] += accepted - handed
            if has_callback:
                costs["callback"] += settled - accepted
            else:
                for delivery in sent:
                    delivery.result()
                costs["result()"] += time.perf_counter() - settled
    told.check(count)
    return {name: seconds / count * 1e9 for name, seconds in costs.items()}


def _never(*_: object) -> NoReturn:
    raise RuntimeError("nothing here waits, or forks")


# -- the worker ---


def work(mode: str, servers: str) -> None:
    """Do a turn for each line on standard input (records, threads), and print its seconds and processor seconds."""
    turn, close = (_ours if mode in OURS else _theirs)(servers, mode)
    turn(8_000, 8)
    gc.collect()
    gc.freeze()
    print(json.dumps({}), flush=True)
    while line := sys.stdin.readline().strip():
        records, threads = json.loads(line)
        began, cpu = time.perf_counter(), time.process_time()
        turn(records, threads)
        print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]), flush=True)
    close()


@final
class Worker:
    """A client in a separate process."""

    def __init__(self, mode: str, servers: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.blocking", "--worker", servers, "--mode", mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {self._process.wait()}")
        return json.loads(line)

    def turn(self, records: int, threads: int) -> tuple[float, float]:
        """Let it send; return records per second, and processor microseconds per record."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([records, threads]) + "\n")
        self._process.stdin.flush()
        seconds, cpu = self._read()
        return records / seconds, cpu / records * 1e6

    def end(self) -> None:
        """Let it close its producer."""
        self._process.communicate("\n")


# -- the comparison ---


def compare(records: int, turns: int, threads: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure all modes at each number of threads."""
    modes = [*OURS, *THEIRS]
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    with null_broker(topics={TOPIC: PARTITIONS}) as broker:
        workers = {mode: Worker(mode, broker.bootstrap_servers) for mode in modes}
        for count in threads:
            for turn in range(turns):
                for mode in modes if turn % 2 else reversed(modes):
                    found.setdefault((count, mode), []).append(workers[mode].turn(records, count))
        for worker in workers.values():
            worker.end()
        sent = len(modes) * (8_000 + records * turns * len(threads))
        if broker.records() != sent:
            raise RuntimeError(f"{sent} records were acknowledged, and the broker has {broker.records()}")
    rows = []
    for count in threads:
        best = max(THEIRS, key=lambda mode: median(rate for rate, _ in found[count, mode]))
        for mode in modes:
            measured = found[count, mode]
            ratios = [
                ours / theirs for (ours, _), (theirs, _) in zip(measured, found[count, best], strict=True)
            ]
            rows.append(
                {
                    "threads": count,
                    "client": mode if mode in THEIRS else f"BlockingProducer, {mode}",
                    "records_per_second": round(median(rate for rate, _ in measured)),
                    "cpu_us": median(cpu for _, cpu in measured),
                    "ratio": [median(ratios), min(ratios), max(ratios)],
                    "turns": [{"records_per_second": rate, "cpu_us": cpu} for rate, cpu in measured],
                }
            )
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Return the table for people."""
    title = (
        f"Threads that send, 100-byte values: aioproduce and confluent-kafka {version('confluent-kafka')}, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors"
    )
    table = Table(title=title, title_justify="left")
    for heading in ("threads", "client", "records/s", "CPU us a record", "records/s to the faster confluent"):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    for row in rows:
        middle, least, largest = row["ratio"]
        table.add_row(
            str(row["threads"]),
            row["client"],
            f"{row['records_per_second']:,}",
            f"{row['cpu_us']:.2f}",
            f"{middle:.2f} ({least:.2f}, {largest:.2f})",
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blocking", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="records of a turn (200,000)")
    parser.add_argument("--turns", type=int, default=10, help="turns of each process (10)")
    parser.add_argument(
        "--threads", type=int, action="append", help="the number of threads that send (1 and 8)"
    )
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument("--worker", metavar="SERVERS", help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=[*OURS, *THEIRS], help=argparse.SUPPRESS)
    parser.add_argument(
        "--stages", action="store_true", help="measure the cost of a record in each stage instead, in ns"
    )
    given = parser.parse_args(arguments)
    if given.stages:
        costs = stages()
        if given.json:
            print(json.dumps(costs))
        else:
            for name, cost in costs.items():
                print(f"{name:<26}{cost:8.0f}")
        return 0
    if given.worker:
        work(given.mode, given.worker)
        return 0
    threads = tuple(given.threads or (1, 8))
    if min(given.turns, *threads) < 1 or any(given.records % count for count in threads):
        parser.error("--turns, --threads: at least 1; --records: a multiple of --threads")
    with Console(stderr=True).status("Sending"):
        rows = compare(given.records, given.turns, threads)
    if given.json:
        print(json.dumps(rows))
    else:
        Console(width=120).print(table_of(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
