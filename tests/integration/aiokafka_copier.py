"""A copier by aiokafka alone, as its documentation has it: `subscribe`, and offsets in the transaction.

The control of `test_transactional_copy_kafka.py`: its consumer asks for offsets without `require_stable`, and its
producer commits them without the generation of the group. Arguments and environment are those of
`examples/transactional_copy.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
GROUP = os.environ["GROUP"]
RECORDS_PER_TRANSACTION = 750


async def copy(source: str, target: str) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=SERVERS,
        group_id=GROUP,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        session_timeout_ms=int(os.environ["SESSION_TIMEOUT_MS"]),
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=SERVERS,
        transactional_id=os.environ["TRANSACTIONAL_ID"],
        transaction_timeout_ms=int(os.environ["TRANSACTION_TIMEOUT_MS"]),
        linger_ms=5,
    )
    await producer.start()
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=500, max_records=RECORDS_PER_TRANSACTION)
        if not found:
            continue
        async with producer.transaction():
            for messages in found.values():
                for message in messages:
                    await producer.send(target, message.value.upper(), key=message.key)
            offsets = {place: messages[-1].offset + 1 for place, messages in found.items()}
            await producer.send_offsets_to_transaction(offsets, GROUP)
        print(f"{sum(map(len, found.values()))} records", flush=True)


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:3]))
