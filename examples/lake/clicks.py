"""A service whose records exist nowhere else: `Auditor` gives each its stamp.

    python -m examples.lake.clicks --bootstrap-servers HOST:PORT --topic clicks --count 60000

The argument `interceptors` of `Producer` is the only line about the audit. The auditor stamps each record, sends
heartbeats to the audit topic, and sends the closing mark when the producer closes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

from aioproduce import Producer
from aioproduce.audit import Auditor

CHUNK: Final = 500
PAGES: Final = 400


async def main(options: argparse.Namespace) -> None:
    """Send `--count` clicks at `--rate` records a second."""
    auditor = Auditor(heartbeat_ms=2_000)
    async with Producer(
        options.bootstrap_servers,
        client_id="clicks",
        linger_ms=20,
        compression_type="lz4",
        interceptors=[auditor],
    ) as producer:
        began_at = time.monotonic()
        for first in range(0, options.count, CHUNK):
            numbers = range(first, min(first + CHUNK, options.count))
            clicks = [b'{"click":%d,"page":%d}' % (number, number * 31 % PAGES) for number in numbers]
            deliveries = await producer.send_many(options.topic, clicks)
            await asyncio.sleep(max(0.0, began_at + numbers.stop / options.rate - time.monotonic()))
            await deliveries.wait()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.lake.clicks", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--rate", type=float, default=5_000, help="records a second")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
