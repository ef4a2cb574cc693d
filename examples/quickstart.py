"""Sending records, from the first line to the last: one, many, with a key, and what a failure looks like.

python examples/quickstart.py                    # with a cluster in memory
python examples/quickstart.py localhost:9092     # with yours; sends to the topic "quickstart"
"""

from __future__ import annotations

import asyncio
import sys

from aioproduce import Producer
from aioproduce.errors import DeliveryError, ProducerError, RecordTooLargeError
from aioproduce.testing import FakeCluster

TOPIC = "quickstart"


async def quickstart(servers: str) -> None:
    async with Producer(servers, linger_ms=5, compression_type="lz4") as producer:
        # Nothing waits for a broker until something needs one. To hear at once whether there is one:
        cluster = await producer.check(timeout=5)
        print(f"{len(cluster.brokers)} broker(s)")

        # Two stages: accepted (it has its place in a bounded buffer), then acknowledged (it is in the log).
        delivery = await producer.send(TOPIC, b"hello", headers=[("from", b"quickstart")])
        metadata = await delivery
        print(f"hello: partition {metadata.partition}, offset {metadata.offset}")

        # Both at once. Records of one key go to one partition, in their order.
        for price in (b"12.50", b"12.75"):
            metadata = await producer.send_and_wait(TOPIC, price, key=b"tea")
            print(f"tea at {price.decode()}: partition {metadata.partition}, offset {metadata.offset}")

        # Many: one handle for all. Nothing is waited for until the handle is.
        deliveries = await producer.send_many(TOPIC, [b"record %d" % number for number in range(10_000)])
        print(f"{len(await deliveries):,} records acknowledged")

        # Without waiting at all: a callback per record, called once, and flush() before what depends on it.
        outcomes: list[BaseException | None] = []
        await producer.send(TOPIC, b"fire, and be told", on_delivery=lambda _, error: outcomes.append(error))
        await producer.flush()
        print(f"told: {outcomes}")

        # What can never be sent is refused at once, and costs the others nothing.
        try:
            await producer.send(TOPIC, bytes(2_000_000))
        except RecordTooLargeError as error:
            print(f"refused: {error.size:,} bytes are above {error.limited_by}={error.limit:,}")
    # Leaving the block sends what was accepted and closes the connections.


async def main() -> None:
    if len(sys.argv) > 1:
        await quickstart(sys.argv[1])
        return
    async with FakeCluster(topics={TOPIC: 3}) as cluster:
        await quickstart(cluster.bootstrap_servers)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except DeliveryError as error:
        sys.exit(
            f"not acknowledged ({'perhaps written' if error.possibly_written else 'not written'}): {error}"
        )
    except ProducerError as error:
        sys.exit(f"{type(error).__name__}: {error}")
