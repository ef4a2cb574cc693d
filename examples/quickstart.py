"""How to send records: one, many, with a key; and how to handle a failure.

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
        # The producer connects when it first needs a broker. check() reports at once whether one answers.
        cluster = await producer.check(timeout=5)
        print(f"{len(cluster.brokers)} broker(s)")

        # Two stages: accepted (the record is in the bounded buffer), then acknowledged (it is in the log).
        delivery = await producer.send(TOPIC, b"hello", headers=[("from", b"quickstart")])
        metadata = await delivery
        print(f"hello: partition {metadata.partition}, offset {metadata.offset}")

        # Both stages in one call. Records of one key go to one partition, in order.
        for price in (b"12.50", b"12.75"):
            metadata = await producer.send_and_wait(TOPIC, price, key=b"tea")
            print(f"tea at {price.decode()}: partition {metadata.partition}, offset {metadata.offset}")

        # Many records: one handle for all. Await the handle to wait for the acknowledgements.
        deliveries = await producer.send_many(TOPIC, [b"record %d" % number for number in range(10_000)])
        print(f"{len(await deliveries):,} records acknowledged")

        # No wait per record: the producer calls the callback once for each, and flush() waits for all.
        outcomes: list[BaseException | None] = []
        await producer.send(TOPIC, b"fire, and be told", on_delivery=lambda _, error: outcomes.append(error))
        await producer.flush()
        print(f"told: {outcomes}")

        # A record that can never be sent is refused at once. Other records are not affected.
        try:
            await producer.send(TOPIC, bytes(2_000_000))
        except RecordTooLargeError as error:
            print(f"refused: {error.size:,} bytes are above {error.limited_by}={error.limit:,}")
    # The end of the block sends all accepted records and closes the connections.


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
