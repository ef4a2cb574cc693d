"""Transactions: contexts, explicit calls, a pool, prepared ones, offsets."""

from __future__ import annotations

from typing import assert_type

from aioproduce import (
    GroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    Producer,
    RecordMetadata,
    TopicPartition,
    TransactionalPool,
)
from aioproduce.errors import ProducerFencedError, TransactionError, TransactionOutcome


async def together(producer: Producer) -> None:
    async with producer.transaction() as txn:
        delivery = await txn.send("orders", b"42")
        await txn.send_offsets(
            {TopicPartition("incoming", 0): OffsetAndMetadata(7)}, GroupMetadata("copiers", 3, "member-1")
        )
    assert_type(txn.outcome, TransactionOutcome | None)
    assert_type(delivery.result(), RecordMetadata)
    try:
        begun = await producer.begin_transaction()
        await producer.send("orders", b"43")
        await producer.commit_transaction()
        print(begun.outcome)
    except ProducerFencedError:
        raise
    except TransactionError as error:
        print(error.recover)
        await producer.abort_transaction()


async def shared(producer: Producer) -> None:
    async with producer.group_commit(interval=0.05, records=1000) as group:
        assert_type(await group.send("orders", b"42"), RecordMetadata)


async def handed_over(producer: Producer) -> None:
    async with producer.transaction() as txn:
        await txn.send("orders", b"42")
        kept = (await txn.prepare()).to_bytes()
    prepared = PreparedTransaction.from_bytes(kept)
    await prepared.commit("localhost:9092", max_block_ms=5000)
    assert_type(await prepared.outcome("localhost:9092"), TransactionOutcome | None)


async def main() -> None:
    async with Producer(
        "localhost:9092", transactional_id="orders-1", transaction_timeout_ms=5000
    ) as producer:
        await together(producer)
        await shared(producer)
    async with (
        TransactionalPool("localhost:9092", transactional_id_prefix="orders", size=4) as pool,
        pool.transaction() as txn,
    ):
        await txn.send("orders", b"42")
