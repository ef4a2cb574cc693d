"""Code for confluent-kafka's AIOProducer that runs on aioproduce: only the import changes.

python examples/drop_in_confluent.py                    # with a cluster in memory
python examples/drop_in_confluent.py localhost:9092     # with yours; sends to the topic "drop-in"
"""

from __future__ import annotations

import asyncio
import sys

from confluent_kafka import KafkaError, KafkaException, Message

# from confluent_kafka.aio import AIOProducer
from aioproduce.compat.confluent import AIOProducer
from aioproduce.testing import FakeCluster

TOPIC = "drop-in"


async def send_orders(servers: str) -> None:
    producer = AIOProducer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.max.bytes": 100_000,
        }
    )
    try:
        # The same as with confluent-kafka: produce() returns a future, flush() waits for all.
        futures = [
            await producer.produce(TOPIC, value=f"order {number}", key=f"customer-{number % 3}")
            for number in range(1000)
        ]
        print(f"{await producer.flush()} left after flush()")
        messages = await asyncio.gather(*futures)
        print(f"{len(messages)} messages in {len({m.partition() for m in messages})} partitions")

        # Not possible with confluent-kafka's: await the future without flush(); headers, timestamps, a callback.
        def told(error: KafkaError | None, message: Message) -> None:
            print(
                f"told: {message.value()!r} {'failed' if error else 'is there'}, headers {message.headers()}"
            )

        await (await producer.produce(TOPIC, "with headers", headers={"from": "example"}, on_delivery=told))

        # Errors have confluent-kafka's classes.
        try:
            await (await producer.produce(TOPIC, bytes(200_000)))
        except KafkaException as error:
            print(f"refused: {error.args[0].name()}")
    finally:
        await producer.close()


async def main() -> None:
    if len(sys.argv) > 1:
        await send_orders(sys.argv[1])
        return
    async with FakeCluster(topics={TOPIC: 3}) as cluster:
        await send_orders(cluster.bootstrap_servers)


if __name__ == "__main__":
    asyncio.run(main())
