"""A program for aiokafka that runs on aioproduce with a changed import: its results and its speed.

pip install 'aioproduce[aiokafka]'
python examples/drop_in.py                    # with a cluster in memory
python examples/drop_in.py localhost:9092     # with yours; sends to the topic "drop-in"

In your program, change one line:

    - from aiokafka import AIOKafkaProducer
    + from aioproduce.compat.aiokafka import AIOKafkaProducer

This program imports both, and runs the same functions with each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from aioproduce.compat.aiokafka import AIOKafkaProducer
from aioproduce.testing import FakeCluster

TOPIC = "drop-in"
RECORDS = 20_000


async def orders(producer: Any) -> None:
    """Send as a service does: one record at a time, keys, headers, and errors of aiokafka's classes."""
    metadata = await producer.send_and_wait(
        TOPIC, {"item": "tea", "pounds": 3}, key="customer-7", headers=[("from", b"example")]
    )
    print(
        f"  an order is at partition {metadata.partition}, offset {metadata.offset}: {type(metadata).__name__}"
    )
    try:
        await producer.send(TOPIC, {"item": "x" * 2_000_000})
    except MessageSizeTooLargeError as error:
        print(f"  refused: {type(error).__module__}.{type(error).__name__}")


async def records_per_second(producer: Any) -> float:
    """Send as a loader does: many futures, gathered."""
    began_at = time.perf_counter()
    futures = [await producer.send(TOPIC, {"number": number}) for number in range(RECORDS)]
    await asyncio.gather(*futures)
    return RECORDS / (time.perf_counter() - began_at)


async def a_batch(producer: Any) -> None:
    """Send as a pipeline does: a batch for a partition of its choice."""
    batch = producer.create_batch()
    while batch.append(key=None, value={"row": batch.record_count()}, timestamp=None) is not None:
        pass
    metadata = await (await producer.send_batch(batch, TOPIC, partition=0))
    print(f"  a batch of {batch.record_count()} records begins at offset {metadata.offset}")


async def run(producer_type: Any, servers: str) -> float:
    """Run the program with a producer of either library; return its records per second."""
    producer = producer_type(
        bootstrap_servers=servers,
        key_serializer=lambda key: None if key is None else key.encode(),
        value_serializer=lambda value: json.dumps(value).encode(),
        acks="all",
        linger_ms=5,
    )
    await producer.start()
    try:
        await orders(producer)
        await a_batch(producer)
        return await records_per_second(producer)
    finally:
        await producer.stop()


async def compare(servers: str) -> None:
    """Run the program with each producer."""
    speeds = {}
    for producer_type in (aiokafka.AIOKafkaProducer, AIOKafkaProducer):
        name = producer_type.__module__
        print(f"{name}:")
        speeds[name] = await run(producer_type, servers)
        print(f"  {speeds[name]:,.0f} records/s, serialized, gathered")


async def main() -> None:
    """Run it against the given cluster, or against one in memory."""
    if len(sys.argv) > 1:
        await compare(sys.argv[1])
        return
    async with FakeCluster(topics={TOPIC: 3}) as cluster:
        await compare(cluster.bootstrap_servers)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KafkaError as error:
        sys.exit(str(error))
