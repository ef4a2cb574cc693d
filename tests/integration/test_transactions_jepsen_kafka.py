"""A late copy of a commit, on real Kafka: it must not commit the next transaction (Jepsen's case, KIP-890).

A proxy keeps the EndTxn of the first transaction from the broker and resets the connection. The producer asks
again, is told that the transaction is committed, and begins the second one. Then the first EndTxn reaches the
broker, and the second transaction is aborted: no reader of committed records may see it.

With `transaction.version` 2 each end raises the epoch. With version 1 it does not, and the producer asks for a new
epoch after an end that was in doubt; a producer without that defence is torn, which shows that the test can fail.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.core.transactions.transaction import Transaction as CoreTransaction
from aioproduce.errors import TransactionOutcome
from aioproduce.wire import error_codes as codes
from tests.integration.test_producer_kafka_proxied import proxy_of
from tests.integration.test_transactions_kafka import read
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.proxy import FaultProxy
    from tests.kafka_tools import KafkaTools

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("a broker of its own for each transaction.version, 20 late commits each"),
]

END_TXN = 26
RUNS = 20
RUNS_OF_THE_MUTANT = 10


@pytest.fixture(scope="module", params=[1, 2], ids=["version 1", "version 2"])
def site(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaCluster, int]]:
    version = int(request.param)
    directory = tmp_path_factory.mktemp(f"late{version}")
    features = {"transaction.version": str(version)}
    with KafkaCluster(kafka_tools, directory, features=features, has_proxies=True) as cluster:
        yield cluster, version


async def late_commits(cluster: KafkaCluster, proxy: FaultProxy, topic: str, runs: int) -> list[int]:
    """Run the case; the codes of the late answers."""
    told = []
    settings: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}
    async with Producer(proxy.bootstrap_servers, transactional_id=topic, **settings) as producer:
        for number in range(runs):
            fault = proxy.reset_before(END_TXN)
            async with producer.transaction() as txn:
                await txn.send(topic, b"%d: committed" % number)
            assert fault.is_spent
            assert txn.outcome is TransactionOutcome.COMMITTED
            txn = await producer.begin_transaction()
            await txn.send_and_wait(topic, b"%d: aborted" % number)
            (answer,) = await proxy.deliver_late(fault)
            told.append(code_of(answer))
            await txn.abort()
            assert txn.outcome is TransactionOutcome.ABORTED
    return told


def code_of(answer: bytes) -> int:
    """Of an EndTxn response from version 3 on: correlation id, tagged fields, throttle time, error code."""
    return int.from_bytes(answer[9:11], "big", signed=True)


async def test_a_late_commit_does_not_commit_the_next_transaction(
    site: tuple[KafkaCluster, int], topic_name: str
) -> None:
    cluster, _ = site
    await asyncio.to_thread(cluster.create_topic, topic_name, partitions=1)
    async with proxy_of(cluster) as proxy:
        told = await late_commits(cluster, proxy, topic_name, RUNS)
    assert set(told) == {codes.PRODUCER_FENCED}
    values = await asyncio.to_thread(read, cluster.bootstrap_servers, topic_name)
    assert values == [b"%d: committed" % number for number in range(RUNS)]


async def test_without_the_defence_version_1_is_torn(
    site: tuple[KafkaCluster, int], topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, version = site
    monkeypatch.setattr(CoreTransaction, "wants_new_epoch", lambda *_, **__: False)
    expected, opened = (codes.NONE, RUNS_OF_THE_MUTANT) if version == 1 else (codes.PRODUCER_FENCED, 0)
    await asyncio.to_thread(cluster.create_topic, topic_name, partitions=1)
    async with proxy_of(cluster) as proxy:
        told = await late_commits(cluster, proxy, topic_name, RUNS_OF_THE_MUTANT)
    assert told == [expected] * RUNS_OF_THE_MUTANT
    values = await asyncio.to_thread(read, cluster.bootstrap_servers, topic_name)
    assert len([value for value in values if value.endswith(b": aborted")]) == opened
