"""A service that sends at a steady rate through a queue on disk, whatever becomes of it and of its cluster.

    python -m examples.outage.service --bootstrap-servers HOST:PORT --directory SPOOL --journals J --records 9000

It knows nothing of faults: no `try`, no retry, no look at the cluster. A killed one is started again with the same
words, and sends what is left of the records.

1. Each call is made when it is due, also if earlier ones have not returned: a slow `send()` slows down no other.
2. An error of any call ends the service with a traceback; the story takes that for a failure.
3. A number is used once. A record whose `send()` had not returned is not sent again: it may be on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any, Final

from aioproduce.spool import SpooledProducer
from examples.outage.journal import Journal, Journals

TOPIC: Final = "orders"
MODES: Final = ("at-least-once", "exactly-once", "direct")
CUSTOMERS: Final = 50
TURN: Final = 0.005
"""Seconds between two turns of the clock that makes the calls."""

_FILLING: Final = b" " + b"." * 80


def value_of(life: int, number: int) -> bytes:
    """Return a record's value: its numbers, and some more bytes."""
    return b"%d.%d" % (life, number) + _FILLING


def key_of(number: int) -> bytes:
    """Return a record's key."""
    return b"customer-%d" % (number % CUSTOMERS)


async def run(
    producer: SpooledProducer, journal: Journal, life: int, records: int, rate: float, chunk: int
) -> None:
    """Send that many records, in calls of `chunk` records each, at `rate` records a second."""

    async def call(first: int, count: int) -> None:
        numbers = range(first, first + count)
        began = time.perf_counter()
        if chunk == 1:
            await producer.send(TOPIC, value_of(life, first), key_of(first))
        else:
            values = [value_of(life, number) for number in numbers]
            await producer.send_many(TOPIC, values, [key_of(number) for number in numbers])
        journal.returned(first, count, time.time(), time.perf_counter() - began)

    began_at = time.monotonic()
    async with asyncio.TaskGroup() as calls:
        first = 0
        while first < records:
            due = min(records, int((time.monotonic() - began_at) * rate) + chunk)
            while first + chunk <= due or first < due == records:
                count = min(chunk, records - first)
                calls.create_task(call(first, count))
                first += count
            await asyncio.sleep(TURN)


async def main(options: argparse.Namespace) -> None:
    """Send what earlier lives have not, and wait until the cluster has all of it."""
    journals = Journals(options.journals)
    left = options.records - journals.records()
    life = len(journals.lives()) + 1
    more: dict[str, Any] = {
        "exactly_once": options.mode == "exactly-once",
        "direct": options.mode == "direct",
    }
    with Journal(journals.file_of(life)) as journal:
        async with SpooledProducer(
            options.bootstrap_servers,
            directory=options.directory,
            sync=options.sync,
            segment_bytes=options.segment_bytes,
            client_id="orders",
            linger_ms=5,
            **more,
        ) as producer:
            await run(producer, journal, life, left, options.rate, options.chunk)
            await producer.flush()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.outage.service", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--directory", type=Path, required=True, help="the queue's directory")
    parser.add_argument(
        "--journals", type=Path, required=True, help="the folder for the numbers whose send() returned"
    )
    parser.add_argument(
        "--records", type=int, required=True, help="records of all lives of the service together"
    )
    parser.add_argument("--rate", type=float, default=2_000, help="records a second (2,000)")
    parser.add_argument("--chunk", type=int, default=1, help="records of a call: above 1, of send_many() (1)")
    parser.add_argument("--sync", choices=("always", "interval", "os"), default="always")
    parser.add_argument("--segment-bytes", type=int, default=1024 * 1024)
    parser.add_argument("--mode", choices=MODES, default="at-least-once")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main(parse()))
