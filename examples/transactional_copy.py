"""From one topic into another, each record exactly once: read, transform, write, commit what was read (KIP-447).

    aioproduce dev                                            # a cluster in memory, in another terminal
    python examples/transactional_copy.py raw clean           # as often beside each other as there are partitions

The consumer is confluent-kafka's: with `isolation.level=read_committed` it waits for offsets of a transaction that
is still open, so that a copier that takes over a partition never reads again what another one is about to commit.
aiokafka's consumer cannot do that (docs/how-to/transactions.md says what to do with it). It may be killed at any
instant.
Settings come from the environment: KAFKA_BOOTSTRAP_SERVERS (localhost:9092), GROUP (copiers), TRANSACTIONAL_ID
(copier- and the process id), SESSION_TIMEOUT_MS (45000): after that the partitions of one that died are another's,
TRANSACTION_TIMEOUT_MS (60000): after that what it left open is aborted, and the other one reads it again.
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
        # With callbacks partitions come and go within read() alone, and not while a transaction is open.
        self._consumer.subscribe([topic], on_assign=lambda *_: None, on_revoke=lambda *_: None)

    async def read(self) -> list[Message]:
        messages = await asyncio.to_thread(self._consumer.consume, RECORDS_PER_TRANSACTION, 0.5)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        return messages

    def group(self) -> object:
        """Asked for at each commit: it changes as copiers come and go."""
        return self._consumer.consumer_group_metadata()

    async def rewind(self) -> None:
        """Read again what was not committed."""
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
