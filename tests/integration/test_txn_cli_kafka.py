"""`aioproduce txn` against a real Kafka: what it tells of transactions, and the end of one that hangs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from aioproduce import PreparedTransaction, Producer
from aioproduce.cli.app import app
from aioproduce.cli.txn_cluster import ClusterTransactions
from aioproduce.config import ProducerConfig
from aioproduce.errors import TransactionOutcome
from aioproduce.records import TopicPartition
from tests.cli.command import Outcome
from tests.integration.test_transactions_kafka import read
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_tools import KafkaTools


async def txn(kafka: KafkaCluster, *arguments: str) -> Outcome:
    command = ["txn", *arguments, "-b", kafka.bootstrap_servers]
    result = await asyncio.to_thread(CliRunner().invoke, app, command)
    return Outcome(result.exit_code, result.stdout, result.stderr)


async def prepared(servers: str, topic: str, **settings: Any) -> PreparedTransaction:
    async with Producer(servers, transactional_id=topic, linger_ms=0, **settings) as producer:
        opened = await producer.begin_transaction()
        await opened.send(topic, b"prepared")
        return await opened.prepare()


async def test_listed_described_and_ended(kafka1: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    kafka1.create_topic(topic_name)
    servers = kafka1.bootstrap_servers
    file = tmp_path / "prepared"
    for verdict, done in (("commit", TransactionOutcome.COMMITTED), ("abort", TransactionOutcome.ABORTED)):
        opened = await prepared(servers, topic_name)
        file.write_bytes(opened.to_bytes())
        listed = (await txn(kafka1, "list", "--json", "--producer-id", str(opened.producer_id))).json
        assert [(row["transactional_id"], row["state"]) for row in listed["transactions"]] == [
            (topic_name, "Ongoing")
        ]
        (row,) = (await txn(kafka1, "describe", "--prepared", str(file), "--json")).json["transactions"]
        assert (row["outcome"], row["partitions"], row["producer_epoch"]) == (
            "open",
            [f"{topic_name}-0"],
            opened.producer_epoch,
        )
        place = ("--topic", topic_name, "--partition", "0", "--producer-id", str(opened.producer_id))
        refused = await txn(kafka1, "abort", *place, "--yes")
        assert (refused.code, "does not hang" in refused.err) == (1, True)
        assert (await txn(kafka1, "find-hanging", "--topic", topic_name, "--json")).json == {"hanging": []}
        assert await opened.outcome(servers) is None
        ended = await txn(kafka1, verdict, "--prepared", str(file), "--json")
        assert (ended.code, ended.json["outcome"]) == (0, done.value), ended.err
        assert await opened.outcome(servers) is done
    assert await asyncio.to_thread(read, servers, topic_name) == [b"prepared"]


@pytest.mark.extended("the model's answers to filters stay in the gate")
@pytest.mark.parametrize("filters", [{"pattern": "no-such-.*"}, {"duration": 3600.0}, {"states": ["Dead"]}])
async def test_filters(kafka1: KafkaCluster, topic_name: str, filters: dict[str, Any]) -> None:
    kafka1.create_topic(topic_name)
    servers = kafka1.bootstrap_servers
    opened = await prepared(servers, topic_name)
    cluster = ClusterTransactions(ProducerConfig.from_mapping({"bootstrap.servers": servers}), 30.0)
    mine = partial(cluster.list_transactions, producer_ids=[opened.producer_id])
    assert len(await asyncio.to_thread(mine)) == 1
    assert (await txn(kafka1, "find-hanging", "--json")).json == {"hanging": []}
    assert await asyncio.to_thread(partial(mine, **filters)) == []
    await opened.abort(servers)


@pytest.mark.extended("markers at the model's leaders stay in the gate")
async def test_the_outcome_after_a_rival_and_after_a_marker_by_hand(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    """A marker past the coordinator lets readers on, and the coordinator knows nothing of it."""
    kafka1.create_topic(topic_name)
    servers = kafka1.bootstrap_servers
    opened = await prepared(servers, topic_name)
    place = ("--topic", topic_name, "--partition", "0", "--start-offset", "0")
    forced = await txn(kafka1, "abort", *place, "--yes", "--force", "--json")
    assert (forced.code, forced.json["outcome"]) == (0, "aborted"), forced.err
    cluster = ClusterTransactions(ProducerConfig.from_mapping({"bootstrap.servers": servers}), 30.0)
    (producer,) = await asyncio.to_thread(cluster.producers, TopicPartition(topic_name, 0))
    assert (producer.producer_id, producer.open_from) == (opened.producer_id, -1)
    assert await asyncio.to_thread(read, servers, topic_name) == []
    async with Producer(servers, transactional_id=topic_name):
        assert await opened.outcome(servers) is TransactionOutcome.UNKNOWN


@pytest.mark.extended(
    "starts brokers and waits for a time-out of the coordinator; the model's time-outs stay in the gate"
)
@pytest.mark.parametrize("version", [1, 2])
async def test_outcomes_by_version(kafka_tools: KafkaTools, tmp_path: Path, version: int) -> None:
    features = {"transaction.version": str(version)}
    with KafkaCluster(kafka_tools, tmp_path, features=features) as cluster:
        cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        for verdict in TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED:
            opened = await prepared(servers, "t")
            assert opened.transaction_version == version
            assert await opened.outcome(servers) is None
            end = opened.commit if verdict is TransactionOutcome.COMMITTED else opened.abort
            await end(servers)
            assert await opened.outcome(servers) is verdict
            async with Producer(servers, transactional_id="t"):
                assert await opened.outcome(servers) is TransactionOutcome.UNKNOWN
        late = await prepared(servers, "t", transaction_timeout_ms=1_000)
        while (outcome := await late.outcome(servers)) is None:
            pass
        assert outcome is (TransactionOutcome.ABORTED if version == 2 else TransactionOutcome.UNKNOWN)
        assert await asyncio.to_thread(read, servers, "t") == [b"prepared"]
