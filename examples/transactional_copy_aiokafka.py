"""Copy a topic exactly once with aiokafka's consumer: records and read offsets are in one transaction.

pip install 'aioproduce[aiokafka]'
python examples/transactional_copy_aiokafka.py localhost:9092 orders orders-copy 0 1     # partitions 0 and 1

It may be killed at any time and started again on any machine: readers of committed records see each record once.

The arguments assign the partitions, and each partition has its own `transactional.id`. Do not use aiokafka's
`subscribe()`: after a rebalance its consumer does not wait for the offsets of a pending transaction, and copies the
same records again. For the same reason the order below matters: the producer's start fences an earlier copier and
ends its pending transaction, so the committed offset that is read *afterwards* is final.
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
    """Copy a partition, for ever, to the partition of the same number."""
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
                    # The group's name is enough, because its partitions are assigned by hand.
                    await txn.send_offsets({source: records[-1].offset + 1}, GROUP)
        finally:
            await consumer.stop()


async def main(servers: str, topic: str, target: str, *partitions: str) -> None:
    """Copy some partitions. If one fails, all end, and the next start continues at the committed offsets."""
    async with asyncio.TaskGroup() as group:
        for partition in partitions:
            group.create_task(copy_partition(servers, TopicPartition(topic, int(partition)), target))


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    failures: list[str] = []
    try:
        asyncio.run(main(*sys.argv[1:]))
    except* ProducerError as errors:
        failures += map(str, errors.exceptions)
    # After the except*: CPython before 3.11.4 puts what is raised inside it into a group, and the exit would fail.
    sys.exit("; ".join(failures) or None)
