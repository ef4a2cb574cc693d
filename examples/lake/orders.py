"""A service that takes its records from a file and, killed and started again, goes on where it was.

    python -m examples.lake.orders FILE --bootstrap-servers HOST:PORT --topic orders --journal JOURNAL

It remembers in the journal how many lines are acknowledged. What it had sent beyond that when it was killed it
sends once more, since nobody can know what became of it; so that this shows as what it is, the stamp of a record
is made of the file and the number of the line, and not anew at each start, as `Auditor` makes it for records
that come from nowhere else (`clicks`).

1. The journal never tells more than what is acknowledged: it is written when the acknowledgement is there.
2. A line that is sent again has the same stamp and the same bytes: whoever reads can tell it from another
   record.
3. The closing mark comes when the whole file is acknowledged; without it the audit does not take the file as
   complete.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Final

from aioproduce import DeliveryFuture, Producer
from aioproduce.audit.mark import DEFAULT_AUDIT_TOPIC, Mark
from aioproduce.audit.stamp import STAMP_HEADER, pack_stamp

CHUNK: Final = 500
"""Lines between two looks at the clock, and between two entries in the journal."""

CHUNKS_AHEAD: Final = 20
"""Chunks that are sent before the first of them is acknowledged: this many at most are sent twice after a kill."""


def id_of(file: Path) -> bytes:
    """The producer's id in the stamps: 16 bytes, of the file's name."""
    return hashlib.blake2b(file.name.encode(), digest_size=16).digest()


class Journal:
    """How many lines are acknowledged, in a file that is replaced whole: it is never half written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._next = file.with_name(f"{file.name}.next")

    def read(self) -> int:
        """Lines, 0 where there is no journal yet."""
        return int(self._file.read_text()) if self._file.exists() else 0

    def write(self, lines: int) -> None:
        """Replace it."""
        self._next.write_text(str(lines))
        os.replace(self._next, self._file)


async def run(file: Path, producer: Producer, topic: str, journal: Journal, rate: float) -> int:
    """Send what is not acknowledged yet, at that many records a second; returns how many lines there are."""
    producer_id = id_of(file)
    number = journal.read()
    waiting: deque[tuple[int, list[DeliveryFuture]]] = deque()
    with file.open("rb") as lines:
        source = islice(lines, number, None)
        began_at, began_with = time.monotonic(), number
        while chunk := list(islice(source, CHUNK)):
            sent = []
            for line in chunk:
                value = line.rstrip(b"\n")
                stamp = [(STAMP_HEADER, pack_stamp(producer_id, number))]
                key = str(json.loads(value)["customer"]).encode()
                sent.append(await producer.send(topic, value, key=key, headers=stamp))
                number += 1
            waiting.append((number, sent))
            while waiting and (len(waiting) > CHUNKS_AHEAD or all(each.done() for each in waiting[0][1])):
                await settle(waiting, journal)
            await asyncio.sleep(max(0.0, began_at + (number - began_with) / rate - time.monotonic()))
    while waiting:
        await settle(waiting, journal)
    return number


async def settle(waiting: deque[tuple[int, list[DeliveryFuture]]], journal: Journal) -> None:
    """Wait for the oldest chunk, and remember that it is acknowledged."""
    end, sent = waiting.popleft()
    for delivery in sent:
        await delivery
    journal.write(end)


async def main(options: argparse.Namespace) -> None:
    """The file, and then the mark that says that this was all."""
    async with Producer(
        options.bootstrap_servers, client_id="orders", linger_ms=20, compression_type="lz4"
    ) as producer:
        lines = await run(options.file, producer, options.topic, Journal(options.journal), options.rate)
        mark = Mark(
            kind="closing",
            producer_id=id_of(options.file),
            next=lines,
            acknowledged=lines,
            topics={options.topic: lines},
            at=time.time_ns() // 1_000_000,
            client_id="orders",
            run={"file": options.file.name},
        )
        await producer.send_and_wait(options.audit_topic, mark.to_json(), key=mark.key)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.lake.orders", description=__doc__)
    parser.add_argument("file", type=Path, help="an order a line, as JSON")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--audit-topic", default=DEFAULT_AUDIT_TOPIC)
    parser.add_argument("--journal", type=Path, required=True, help="how many lines are acknowledged")
    parser.add_argument("--rate", type=float, default=5_000, help="records a second")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
