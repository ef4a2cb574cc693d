"""Jepsen's case on real Kafka: the EndTxn of a transaction arrives when the next one is open.

A proxy keeps the commit of transaction 1 back and cuts its connection; the producer asks again on another one, and
has its outcome. It begins transaction 2 and sends. Now the broker gets the commit that was kept, byte for byte, and
then transaction 2 is aborted. Nobody who reads committed records may see anything of it.

1. With `transaction.version` 2 the broker refuses the late commit: each end has brought a new epoch.
2. With version 1 the broker would take it. The producer has asked for a new epoch, since an answer was lost.
3. Without that defence (a mutant) the late commit commits transaction 2: the test can fail.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer
from aioproduce.core.transactions.transaction import Transaction
from aioproduce.errors import TransactionOutcome
from aioproduce.wire.api import ApiKey
from tests.faults.proxy import FaultProxy
from tests.integration.test_transactions_kafka import read
from tests.kafka_cluster import KafkaCluster
from tests.unit.fake_broker_peer import decoded
from tests.wire_oracle import response_class

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.kafka_tools import KafkaTools

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.extended("starts its own brokers; the model's late EndTxn stays in the gate"),
    pytest.mark.usefixtures("nothing_unhandled"),
]

RUNS = 20
RUNS_OF_THE_MUTANT = 10
NONE, PRODUCER_FENCED = 0, 90
LAST_END_TXN = {1: 4, 2: 5}


@pytest.fixture(scope="module", params=[1, 2], ids=lambda version: f"version {version}")
def proxied(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaCluster, int]]:
    """One broker behind a proxy, and its `transaction.version`."""
    features = {"transaction.version": str(request.param)}
    directory = tmp_path_factory.mktemp("jepsen")
    with KafkaCluster(kafka_tools, directory, features=features, has_proxies=True) as cluster:
        yield cluster, request.param


@asynccontextmanager
async def producer_behind_a_proxy(
    cluster: KafkaCluster, topic: str
) -> AsyncIterator[tuple[Producer, FaultProxy]]:
    node = cluster.nodes[1]
    proxy = FaultProxy({1: ("127.0.0.1", node.proxied_port)}, ports={1: node.proxy_port})
    settings: dict[str, Any] = {
        "transactional_id": topic,
        "linger_ms": 0,
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
    }
    async with proxy, Producer(proxy.bootstrap_servers, **settings) as producer:
        yield producer, proxy


async def late_commit(
    producer: Producer, proxy: FaultProxy, topic: str, number: int, version: int
) -> tuple[int, TransactionOutcome | None]:
    """One run; what the broker says to the late commit, and what the producer says of transaction 2."""
    kept = proxy.hold_request(ApiKey.END_TXN)
    first = await producer.begin_transaction()
    await first.send_and_wait(topic, b"1-%02d" % number)
    await first.commit()
    assert first.outcome is TransactionOutcome.COMMITTED
    assert kept.is_spent
    second = await producer.begin_transaction()
    await second.send_and_wait(topic, b"2-%02d" % number)
    (answer,) = await proxy.deliver(kept)
    code: int = decoded(response_class(ApiKey.END_TXN, LAST_END_TXN[version]), answer).error_code.value
    await second.abort()
    return code, second.outcome


async def torn_runs(
    cluster: KafkaCluster, topic: str, version: int, runs: int
) -> tuple[list[bytes], set[int]]:
    """What a reader of committed records sees of aborted transactions, and what late commits were answered."""
    cluster.create_topic(topic)
    async with producer_behind_a_proxy(cluster, topic) as (producer, proxy):
        ends = [await late_commit(producer, proxy, topic, number, version) for number in range(runs)]
    assert {outcome for _, outcome in ends} == {TransactionOutcome.ABORTED}
    seen = await asyncio.to_thread(read, cluster.bootstrap_servers, topic)
    assert [value for value in seen if value.startswith(b"1-")] == [
        b"1-%02d" % number for number in range(runs)
    ]
    return [value for value in seen if value.startswith(b"2-")], {code for code, _ in ends}


async def test_nothing_of_an_aborted_transaction_is_seen(
    proxied: tuple[KafkaCluster, int], topic_name: str
) -> None:
    cluster, version = proxied
    torn, codes = await torn_runs(cluster, topic_name, version, RUNS)
    print(f"transaction.version {version}: {len(torn)} torn of {RUNS}, late commits answered {codes}")
    assert (torn, codes) == ([], {PRODUCER_FENCED})


async def test_without_the_new_epoch_version_1_is_torn(
    proxied: tuple[KafkaCluster, int], topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: what this test file asserts does depend on the defence, and with version 2 on the broker's."""
    cluster, version = proxied
    monkeypatch.setattr(Transaction, "wants_new_epoch", lambda *_, **__: False)
    torn, codes = await torn_runs(cluster, topic_name, version, RUNS_OF_THE_MUTANT)
    print(
        f"mutant, transaction.version {version}: {len(torn)} torn of {RUNS_OF_THE_MUTANT}, answered {codes}"
    )
    if version == 1:
        assert codes == {NONE}
        assert torn == [b"2-%02d" % number for number in range(RUNS_OF_THE_MUTANT)]
    else:
        assert (torn, codes) == ([], {PRODUCER_FENCED})
