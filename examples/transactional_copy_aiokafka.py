"""Copying a topic exactly once with aiokafka's consumer: each record, and how far it was read, in one transaction.

pip install 'aioproduce[aiokafka]'
python examples/transactional_copy_aiokafka.py localhost:9092 orders orders-copy 0 1     # partitions 0 and 1

It may be killed and started again at any time, also elsewhere: readers of committed records see each record once.

Partitions are assigned by hand, here by the arguments, and each has a `transactional.id` of its own. aiokafka's
`subscribe()` will not do: after a rebalance its consumer reads committed offsets without waiting for those of a
transaction that is pending still, and copies the same records again. So the order below matters: the producer's
start ends what an earlier copier left pending, and fences it; the committed offset that is read *then* is final.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from aioproduce import Producer
from aioproduce.errors import ProducerError

GROUP = "transactional-copy"


async def copy_partition(servers: str, source: TopicPartition, target: str) -> None:
    """Copy a partition, for ever; partition n goes to partition n."""
    name = f"{GROUP}-{source.topic}-{source.partition}"
    async with Producer(servers, transactional_id=name, linger_ms=5) as producer:  # first: see above
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            consumer.assign([source])
            print(f"{source.topic}-{source.partition}: from {await consumer.position(source)}", flush=True)
            while True:
                records = (await consumer.getmany(source, timeout_ms=1000, max_records=1000)).get(source, [])
                if not records:
                    continue
                async with producer.transaction() as txn:
                    for record in records:
                        await txn.send(
                            target,
                            record.value,
                            record.key,
                            partition=source.partition,
                            timestamp=record.timestamp,
                            headers=record.headers,
                        )
                    # The group's name is enough: its consumers assign their partitions themselves.
                    await txn.send_offsets({source: records[-1].offset + 1}, GROUP)
        finally:
            await consumer.stop()


async def main(servers: str, topic: str, target: str, *partitions: str) -> None:
    """Copy some partitions; where one fails all end, and the next start goes on from what is committed."""
    async with asyncio.TaskGroup() as group:
        for partition in partitions:
            group.create_task(copy_partition(servers, TopicPartition(topic, int(partition)), target))


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except* ProducerError as errors:
        sys.exit("; ".join(str(error) for error in errors.exceptions))
