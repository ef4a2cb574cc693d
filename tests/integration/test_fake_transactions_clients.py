"""Transactions of a FakeCluster on sockets: librdkafka writes them, librdkafka and aiokafka read them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from aioproduce.testing import ClusterThread, TransactionConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

# In order: values, and whether their transaction is committed.
TRANSACTIONS = [((b"a", b"b"), True), ((b"lost", b"gone"), False), ((b"c",), True)]
COMMITTED = [b"a", b"b", b"c"]
EVERYTHING = [b"a", b"b", b"lost", b"gone", b"c"]


@pytest.fixture(params=[1, 2])
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterThread]:
    with ClusterThread(3, topics={"t": 1}, transaction_version=request.param) as cluster:
        yield cluster


def producer(cluster: ClusterThread, **settings: Any) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "orders",
            "linger.ms": 0,
            **settings,
        }
    )
    made.init_transactions(20)
    return made


def write(cluster: ClusterThread) -> Producer:
    client = producer(cluster)
    for values, is_commit in TRANSACTIONS:
        client.begin_transaction()
        for value in values:
            client.produce("t", value)
        client.flush(20)
        if is_commit:
            client.commit_transaction(20)
        else:
            client.abort_transaction(20)
    return client


def read(cluster: ClusterThread, isolation_level: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes | None] = []
    while len(found) <= count:
        message = consumer.poll(20)
        assert message is not None, f"the end did not come: {found}"
        if message.error() is not None:
            break
        found.append(message.value())
    consumer.close()
    return found


async def read_by_aiokafka(cluster: ClusterThread, isolation_level: str, count: int) -> list[bytes | None]:
    partition = AiokafkaPartition("t", 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level=isolation_level)
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def test_readers_are_given_what_is_committed(cluster: ClusterThread) -> None:
    write(cluster)

    assert read(cluster, "read_committed", len(COMMITTED)) == COMMITTED
    assert read(cluster, "read_uncommitted", len(EVERYTHING)) == EVERYTHING
    assert await read_by_aiokafka(cluster, "read_committed", len(COMMITTED)) == COMMITTED
    assert await read_by_aiokafka(cluster, "read_uncommitted", len(EVERYTHING)) == EVERYTHING
    cluster.assert_produced_exactly("t", COMMITTED, isolation="read_committed")
    cluster.assert_produced_exactly("t", EVERYTHING)
    assert [batch.marker for batch in cluster.log("t") if batch.marker] == ["COMMIT", "ABORT", "COMMIT"]


def test_readers_stop_at_an_open_transaction(cluster: ClusterThread) -> None:
    client = write(cluster)
    client.begin_transaction()
    client.produce("t", b"pending")
    client.flush(20)

    (open_one,) = cluster.open_transactions
    assert (open_one.transactional_id, open_one.state) == ("orders", "Ongoing")
    assert open_one.partitions == (("t", 0),)
    assert cluster.last_stable_offset("t", 0) == 8 == cluster.high_watermark("t", 0) - 1
    assert read(cluster, "read_committed", len(COMMITTED)) == COMMITTED
    client.commit_transaction(20)
    cluster.wait_for_records("t", 4, isolation="read_committed")
    assert read(cluster, "read_committed", 4) == [*COMMITTED, b"pending"]


def test_offsets_come_with_the_transaction(cluster: ClusterThread) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "copier"})
    client = producer(cluster)
    for offset, is_commit in ((3, True), (9, False)):
        client.begin_transaction()
        client.produce("t", b"%d" % offset)
        client.send_offsets_to_transaction(
            [TopicPartition("t", 0, offset)], consumer.consumer_group_metadata(), 20
        )
        if is_commit:
            client.commit_transaction(20)
        else:
            client.abort_transaction(20)

    # A reader waits until the markers are written (require_stable).
    assert consumer.committed([TopicPartition("t", 0)], 20)[0].offset == 3
    assert cluster.committed_offset("copier", "t", 0) == 3
    consumer.close()


def test_a_new_client_fences_the_old_one(cluster: ClusterThread) -> None:
    old = producer(cluster)
    old.begin_transaction()
    old.produce("t", b"old")
    old.flush(20)
    new = producer(cluster)

    with pytest.raises(KafkaException, match="_FENCED"):
        old.commit_transaction(20)
    new.begin_transaction()
    new.produce("t", b"new")
    new.commit_transaction(20)
    assert cluster.wait_for_records("t", 1, isolation="read_committed").values == [b"new"]


def test_a_coordinator_that_dies_is_followed(cluster: ClusterThread) -> None:
    client = producer(cluster)
    client.begin_transaction()
    client.produce("t", b"v")
    client.flush(20)
    cluster.stop_broker(cluster.transaction_coordinator("orders"))

    client.commit_transaction(20)

    assert cluster.wait_for_records("t", 1, isolation="read_committed").values == [b"v"]


def test_a_denied_transactional_id(cluster: ClusterThread) -> None:
    cluster.deny_transactional_id("orders")

    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        producer(cluster)


def test_time_out_of_a_transaction() -> None:
    config = TransactionConfig(marker_delay=0.0)
    with ClusterThread(1, topics={"t": 1}, transaction_config=config) as cluster:
        client = producer(cluster, **{"transaction.timeout.ms": 1000})
        client.begin_transaction()
        client.produce("t", b"v")
        client.flush(20)
        while cluster.open_transactions:
            time.sleep(0.01)

        with pytest.raises(KafkaException):
            client.commit_transaction(20)
        assert cluster.records("t", isolation="read_committed") == []
        assert len(cluster.records("t")) == 1
