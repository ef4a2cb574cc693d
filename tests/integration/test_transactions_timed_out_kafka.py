"""Transactions that the coordinator of a real Kafka aborts, as they are open for too long.

The producer's own clock would abort them a little earlier: it is taken away here, so that a commit does meet a
transaction that is over. Java's producer, librdkafka's and franz-go's are of no use after that.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.core.transactions.transaction import Transaction
from aioproduce.drivers.blocking_client import BlockingConnection
from aioproduce.errors import (
    ProducerFencedError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionTimedOutError,
)
from tests.integration.test_transactions_kafka import read
from tests.unit.fake_broker_peer import decoded
from tests.wire_oracle import request_frame, response_class

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("waits for time-outs of the coordinator; the model's time-outs stay in the gate"),
    pytest.mark.usefixtures("nothing_unhandled"),
]

PRODUCERS, ROUNDS = 10, 10
# Long enough for the transactions that are to be committed, on a busy machine.
SETTINGS: dict[str, Any] = {"linger_ms": 0, "transaction_timeout_ms": 2_000}
DESCRIBE_TRANSACTIONS = 65


@pytest.fixture(autouse=True)
def _without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    never = property(lambda _: float("inf"), lambda *_: None)
    monkeypatch.setattr(Transaction, "deadline", never)


def state_of(cluster: KafkaCluster, transactional_id: str) -> str:
    """What the one broker's coordinator says, asked by kio."""
    messages = importlib.import_module("kio.schema.describe_transactions.v0.request")
    connection = BlockingConnection("127.0.0.1", cluster.nodes[1].port, timeout=30)
    try:
        request = messages.DescribeTransactionsRequest(transactional_ids=(transactional_id,))
        answer = bytes(connection.exchange(request_frame(request)))
    finally:
        connection.close()
    (found,) = decoded(response_class(DESCRIBE_TRANSACTIONS, 0), answer).transaction_states
    return str(found.transaction_state)


async def until_timed_out(cluster: KafkaCluster, transactional_id: str) -> None:
    while (state := await asyncio.to_thread(state_of, cluster, transactional_id)) != "CompleteAbort":
        assert state in ("Ongoing", "PrepareAbort"), state
        await asyncio.sleep(0.05)


async def rounds(cluster: KafkaCluster, topic: str, name: str) -> list[TransactionTimedOutError]:
    """One producer: each transaction that is timed out is followed by one that is committed."""
    told: list[TransactionTimedOutError] = []
    async with Producer(cluster.bootstrap_servers, transactional_id=name, **SETTINGS) as producer:
        for number in range(ROUNDS):
            late = await producer.begin_transaction()
            await late.send_and_wait(topic, b"late %s %d" % (name.encode(), number))
            await until_timed_out(cluster, name)
            with pytest.raises(TransactionTimedOutError) as raised:
                await late.commit()
            assert late.outcome is TransactionOutcome.ABORTED
            told.append(raised.value)
            async with producer.transaction() as txn:
                await txn.send(topic, b"in time %s %d" % (name.encode(), number))
    return told


async def test_100_commits_come_too_late_and_each_producer_goes_on(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    kafka1.create_topic(topic_name, partitions=2)
    names = [f"{topic_name}-{number}" for number in range(PRODUCERS)]
    told = [
        error
        for errors in await asyncio.gather(*(rounds(kafka1, topic_name, name) for name in names))
        for error in errors
    ]
    assert len(told) == PRODUCERS * ROUNDS == 100
    assert {error.outcome for error in told} == {TransactionOutcome.ABORTED}
    assert {error.recover for error in told} == {"begin"}
    assert not any(error.is_fatal for error in told)
    assert {str(error) for error in told} == {str(told[0])}
    assert "transaction.timeout.ms (2 s)" in str(told[0])
    seen = await asyncio.to_thread(read, kafka1.bootstrap_servers, topic_name)
    expected = [b"in time %s %d" % (name.encode(), number) for name in names for number in range(ROUNDS)]
    assert sorted(seen) == sorted(expected)
    print(f"{len(told)} timed out, each told as aborted; {len(seen)} committed after them; 0 fatal")


async def test_a_record_comes_too_late(kafka1: KafkaCluster, topic_name: str) -> None:
    """The broker refuses the record; the abort tells that it was the time-out, and the producer goes on."""
    kafka1.create_topic(topic_name)
    async with Producer(kafka1.bootstrap_servers, transactional_id=topic_name, **SETTINGS) as producer:
        for number in range(3):
            txn = await producer.begin_transaction()
            await txn.send_and_wait(topic_name, b"late")
            await until_timed_out(kafka1, topic_name)
            await txn.send(topic_name, b"later")
            with pytest.raises(TransactionFailedError, match="abort") as raised:
                await txn.commit()
            assert raised.value.recover == "abort"
            await txn.abort()
            assert txn.outcome is TransactionOutcome.ABORTED
            async with producer.transaction() as txn:
                await txn.send(topic_name, b"%d" % number)
    assert await asyncio.to_thread(read, kafka1.bootstrap_servers, topic_name) == [b"0", b"1", b"2"]


async def test_a_producer_that_is_fenced_does_not_go_on(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    servers = kafka1.bootstrap_servers
    for number in range(10):
        name = f"{topic_name}-{number}"
        async with Producer(servers, transactional_id=name, **SETTINGS) as producer:
            txn = await producer.begin_transaction()
            await txn.send_and_wait(topic_name, b"no")
            async with Producer(servers, transactional_id=name, **SETTINGS) as other:
                with pytest.raises(ProducerFencedError) as raised:
                    await txn.commit()
                assert raised.value.is_fatal
                assert raised.value.outcome is TransactionOutcome.ABORTED
                with pytest.raises(ProducerFencedError):
                    await producer.begin_transaction()
                async with other.transaction() as txn:
                    await txn.send(topic_name, b"%d" % number)
    seen = await asyncio.to_thread(read, servers, topic_name)
    assert seen == [b"%d" % number for number in range(10)]
