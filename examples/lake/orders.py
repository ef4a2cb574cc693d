"""A service that reads its records from a file, and continues at the right line after a kill and a restart.

    python -m examples.lake.orders FILE --bootstrap-servers HOST:PORT --topic orders --journal JOURNAL

The journal holds the number of acknowledged lines. After a kill the service sends the later lines again, because
their outcome is unknown. The stamp of a record comes from the file name and the line number, so the audit sees a
repeated line as a duplicate. `Auditor` makes new stamps at each start: it is for records without such a source
(`clicks`).

1. The journal never counts a line that is not acknowledged: it is written after the acknowledgement.
2. A line that is sent again has the same stamp and the same bytes, so a reader recognizes it.
3. The closing mark follows when the whole file is acknowledged. Without it the audit does not regard the file as
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
"""Chunks that may be sent before the first is acknowledged. At most this many are sent twice after a kill."""


def id_of(file: Path) -> bytes:
    """Return the producer's id in the stamps: a 16-byte hash of the file's name."""
    return hashlib.blake2b(file.name.encode(), digest_size=16).digest()


class Journal:
    """The number of acknowledged lines, in a file that is replaced as a whole: it is never half written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._next = file.with_name(f"{file.name}.next")

    def read(self) -> int:
        """Return the number of lines, 0 if there is no journal yet."""
        return int(self._file.read_text()) if self._file.exists() else 0

    def write(self, lines: int) -> None:
        """Replace the journal."""
        self._next.write_text(str(lines))
        os.replace(self._next, self._file)


async def run(file: Path, producer: Producer, topic: str, journal: Journal, rate: float) -> int:
    """Send the lines that are not acknowledged, at `rate` records a second; return the number of all lines."""
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
    """Wait for the oldest chunk and record it in the journal as acknowledged."""
    end, sent = waiting.popleft()
    for delivery in sent:
        await delivery
    journal.write(end)


async def main(options: argparse.Namespace) -> None:
    """Send the file, and then the closing mark."""
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
    parser.add_argument("file", type=Path, help="a file with one JSON order per line")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--audit-topic", default=DEFAULT_AUDIT_TOPIC)
    parser.add_argument(
        "--journal", type=Path, required=True, help="the file for the number of acknowledged lines"
    )
    parser.add_argument("--rate", type=float, default=5_000, help="records a second")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
