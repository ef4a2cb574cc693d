"""Copy one topic to another exactly once: read, transform, write, and commit the offsets read (KIP-447).

    aioproduce dev                                            # a cluster in memory, in another terminal
    python examples/transactional_copy.py raw clean           # run up to one copier for each partition

A copier may be killed at any instant. The consumer is confluent-kafka's. With `isolation.level=read_committed` it
waits for the offsets of an open transaction, so a copier that takes over a partition never reads records that
another copier is about to commit. aiokafka's consumer cannot wait for them; docs/how-to/transactions.md shows how
to use it.
Settings come from the environment: KAFKA_BOOTSTRAP_SERVERS (localhost:9092), GROUP (copiers), TRANSACTIONAL_ID
("copier-" and the process id), SESSION_TIMEOUT_MS (45000; then another copier gets the partitions of a dead one),
TRANSACTION_TIMEOUT_MS (60000; then the broker aborts a dead copier's transaction, and another reads its records).
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from aioproduce import Producer
from aioproduce.errors import TransactionError

SERVERS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
GROUP = os.environ.get("GROUP", "copiers")
SESSION_TIMEOUT_MS = int(os.environ.get("SESSION_TIMEOUT_MS", "45000"))
TRANSACTION_TIMEOUT_MS = int(os.environ.get("TRANSACTION_TIMEOUT_MS", "60000"))
TRANSACTIONAL_ID = os.environ.get("TRANSACTIONAL_ID", f"copier-{os.getpid()}")
RECORDS_PER_TRANSACTION = 750


def transform(value: bytes | None) -> bytes | None:
    return None if value is None else value.upper()


def next_offsets(messages: list[Any]) -> list[TopicPartition]:
    latest = {(message.topic(), message.partition()): message.offset() for message in messages}
    return [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in latest.items()]


class Reader:
    """A consumer whose calls wait in a thread."""

    def __init__(self, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": SERVERS,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "auto.offset.reset": "earliest",
            }
        )
        # With these callbacks partitions change only within read(), never while a transaction is open.
        self._consumer.subscribe([topic], on_assign=lambda *_: None, on_revoke=lambda *_: None)

    async def read(self) -> list[Message]:
        messages = await asyncio.to_thread(self._consumer.consume, RECORDS_PER_TRANSACTION, 0.5)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        return messages

    def group(self) -> object:
        """Return the group's metadata. It changes as copiers join and leave, so each commit asks for it."""
        return self._consumer.consumer_group_metadata()

    async def rewind(self) -> None:
        """Seek to the committed offsets."""
        for partition in await asyncio.to_thread(self._consumer.committed, self._consumer.assignment(), 30):
            offset = partition.offset if partition.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(TopicPartition(partition.topic, partition.partition, offset))

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)


async def copy(source: str, target: str) -> None:
    reader = Reader(source)
    try:
        async with Producer(
            SERVERS, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        ) as producer:
            while True:
                messages = await reader.read()
                if not messages:
                    continue
                try:
                    async with producer.transaction() as txn:
                        for message in messages:
                            await txn.send(target, transform(message.value()), message.key())
                        await txn.send_offsets(next_offsets(messages), reader.group())
                except TransactionError as error:
                    print(f"{type(error).__name__}: {error}", file=sys.stderr)
                    if error.is_fatal:
                        raise
                    if error.recover == "init":
                        await producer.init_transactions()
                    await reader.rewind()
                else:
                    print(f"{len(messages)} records", flush=True)
    finally:
        await reader.close()


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:3]))
