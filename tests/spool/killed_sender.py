"""A process that puts numbers on disk, one after the other, and prints each when its `send()` has returned.

`python -m tests.spool.killed_sender SERVERS DIRECTORY FIRST COUNT SYNC`; `test_kills.py` kills it. With a count of
0 it sends nothing, and waits until the queue is empty.
"""

from __future__ import annotations

import asyncio
import sys

from aioproduce.spool import SpooledProducer


async def _send(servers: str, directory: str, first: int, count: int, sync: str) -> None:
    async with SpooledProducer(servers, directory=directory, sync=sync, segment_bytes=20_000) as producer:
        for number in range(first, first + count):
            await producer.send("numbers", b"%d" % number, b"key")
            print(number, flush=True)
        await producer.flush()


if __name__ == "__main__":
    _, at, folder, begin, how_many, policy = sys.argv
    asyncio.run(_send(at, folder, int(begin), int(how_many), policy))
