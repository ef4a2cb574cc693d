"""Transactions that cannot be, on real Kafka: each error names its cause and its remedy, and the remedy works.

1. `error.recover` and the text say what to do: abort, ask again, or make another producer. Each test does it.
2. What `recover` does not offer is refused: a producer that is of no use any more says so again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from aioproduce import GroupMetadata, OffsetAndMetadata, Producer
from aioproduce.errors import (
    BrokerRejectedError,
    ConfigError,
    ProducerFencedError,
    TransactionError,
    TransactionFailedError,
    TransactionOutcome,
    TransactionStateError,
    TransactionsUnavailableError,
)
from aioproduce.producer.offsets import read_group
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.integration.test_transactions_kafka import read
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.kafka_tools import KafkaTools
    from tests.mock_cluster import MockCluster

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("nothing_unhandled")]

extended = pytest.mark.extended("two producers with one id and metadata that is too large stay in the gate")

ABORTED = TransactionOutcome.ABORTED


def assert_told(error: TransactionError, recover: str, code: int | None, *words: str) -> None:
    print(f"{type(error).__name__} [{error.recover}]: {error}")
    assert (error.recover, error.code) == (recover, code)
    assert error.is_fatal == (recover == "new producer")
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{missing} in {error}"


async def assert_goes_on(producer: Producer, topic: str, *, value: bytes = b"goes on") -> None:
    """It commits a transaction, and nothing else is in the topic for readers of committed records."""
    async with producer.transaction() as txn:
        await txn.send(topic, value)
    servers = ",".join(f"{host}:{port}" for host, port in producer.config.bootstrap_servers)
    assert await asyncio.to_thread(read, servers, topic) == [value]


# -- one producer and another ---


async def test_two_producers_with_one_id(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    settings: dict[str, Any] = {"transactional_id": topic_name, "linger_ms": 0}
    async with Producer(kafka1.bootstrap_servers, **settings) as first:
        txn = await first.begin_transaction()
        await txn.send_and_wait(topic_name, b"of the first")
        async with Producer(kafka1.bootstrap_servers, **settings) as second:
            with pytest.raises(ProducerFencedError) as raised:
                await txn.commit()
            words = ("another producer of the same transactional.id", "aborted", "Close this one")
            assert_told(raised.value, "new producer", codes.PRODUCER_FENCED, *words)
            assert raised.value.outcome is ABORTED
            for call in (first.begin_transaction, txn.commit, txn.abort, first.init_transactions):
                with pytest.raises(ProducerFencedError):
                    await call()
            await assert_goes_on(second, topic_name)


# -- a record ---


@extended
async def test_a_commit_after_a_failed_delivery(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, configs={"max.message.bytes": "2000"})
    async with Producer(kafka1.bootstrap_servers, transactional_id=topic_name, linger_ms=0) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait(topic_name, b"fits")
        delivery = await txn.send(topic_name, b"x" * 5_000)
        with pytest.raises(TransactionFailedError) as raised:
            await txn.commit()
        assert_told(raised.value, "abort", None, "abort it", "MESSAGE_TOO_LARGE")
        assert isinstance(raised.value.__cause__, BrokerRejectedError)
        with pytest.raises(BrokerRejectedError, match="MESSAGE_TOO_LARGE"):
            await delivery
        with pytest.raises(TransactionStateError, match="the transaction has failed: abort it"):
            await txn.send(topic_name, b"more")
        await txn.abort()
        assert txn.outcome is ABORTED
        await assert_goes_on(producer, topic_name)


# -- offsets ---


async def refused_offsets(
    cluster: KafkaCluster, topic: str, offsets: Any, group: Any, **settings: Any
) -> TransactionError:
    """The error of `send_offsets()`; the transaction is aborted after it, and the next one is committed."""
    chosen: dict[str, Any] = {"transactional_id": topic, "linger_ms": 0} | settings
    async with Producer(cluster.bootstrap_servers, **chosen) as producer:
        txn = await producer.begin_transaction()
        await txn.send_and_wait(topic, b"no")
        with pytest.raises(TransactionFailedError) as raised:
            await txn.send_offsets(offsets, group)
        with pytest.raises(TransactionFailedError) as at_commit:
            await txn.commit()
        assert str(at_commit.value) == str(raised.value)
        await txn.abort()
        assert txn.outcome is ABORTED
        await assert_goes_on(producer, topic)
    return raised.value


async def test_metadata_that_is_too_large(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    offsets = {(topic_name, 0): OffsetAndMetadata(1, -1, "x" * 4097)}
    error = await refused_offsets(kafka1, topic_name, offsets, "g")
    words = ("abort", "offset.metadata.max.bytes", f"{topic_name}-0")
    assert_told(error, "abort", codes.OFFSET_METADATA_TOO_LARGE, *words)


@extended
@pytest.mark.parametrize("is_partition", [False, True], ids=["no topic", "no partition"])
async def test_offsets_of_a_topic_that_is_not_there(
    kafka1: KafkaCluster, topic_name: str, is_partition: bool
) -> None:
    kafka1.create_topic(topic_name)
    place = (topic_name, 7) if is_partition else (f"{topic_name}-none", 0)
    begun = time.monotonic()
    error = await refused_offsets(kafka1, topic_name, {place: 1}, "g", max_block_ms=3_000)
    print(f"after {time.monotonic() - begun:.1f} s")
    words = ("abort", "name a partition that exists", f"{place[0]}-{place[1]}")
    assert_told(error, "abort", codes.UNKNOWN_TOPIC_OR_PARTITION, *words)


def member(cluster: KafkaCluster, topic: str, group: str, **settings: Any) -> tuple[Consumer, GroupMetadata]:
    """A consumer that has its partitions, and who it is in its group."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
        | settings
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    return consumer, read_group(consumer.consumer_group_metadata())


@extended
@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"generation_id": 999}, codes.ILLEGAL_GENERATION, "rebalanced"),
        ({"member_id": "nobody"}, codes.UNKNOWN_MEMBER_ID, "left its group"),
        (
            {"group_instance_id": "instance", "member_id": "nobody"},
            codes.FENCED_INSTANCE_ID,
            "group.instance.id",
        ),
    ],
    ids=["another generation", "no member", "another instance"],
)
async def test_offsets_of_a_group_that_has_moved(
    kafka1: KafkaCluster, topic_name: str, changes: dict[str, Any], code: int, word: str
) -> None:
    kafka1.create_topic(topic_name)
    group = f"{topic_name}-group"
    consumer, who = await asyncio.to_thread(
        member, kafka1, topic_name, group, **{"group.instance.id": "instance"}
    )
    try:
        identity: dict[str, Any] = {
            "group_id": who.group_id,
            "generation_id": who.generation_id,
            "member_id": who.member_id,
            "group_instance_id": who.group_instance_id if "member_id" not in changes else None,
        } | changes
        moved = GroupMetadata(**identity)
        error = await refused_offsets(kafka1, topic_name, {(topic_name, 0): 1}, moved)
        assert_told(error, "abort", code, "abort", word, repr(group))
        async with (
            Producer(kafka1.bootstrap_servers, transactional_id=topic_name) as producer,
            producer.transaction() as txn,
        ):
            await txn.send_offsets({(topic_name, 0): 1}, who)
    finally:
        await asyncio.to_thread(consumer.close)


@extended
async def test_offsets_of_a_group_of_the_new_protocol_that_has_moved(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    """KIP-848: an epoch that is over. Kafka 4.3 answers a TxnOffsetCommit as if it were a generation."""
    kafka1.create_topic(topic_name)
    group = f"{topic_name}-group"
    consumer, who = await asyncio.to_thread(
        member, kafka1, topic_name, group, **{"group.protocol": "consumer"}
    )
    try:
        stale = GroupMetadata(group, who.generation_id - 1, who.member_id)
        error = await refused_offsets(kafka1, topic_name, {(topic_name, 0): 1}, stale)
        assert_told(error, "abort", codes.ILLEGAL_GENERATION, "abort", "rebalanced", repr(group))
    finally:
        await asyncio.to_thread(consumer.close)


# -- settings ---


@extended
async def test_a_time_out_above_the_brokers_maximum(kafka1: KafkaCluster, topic_name: str) -> None:
    settings: dict[str, Any] = {"transactional_id": topic_name, "transaction_timeout_ms": 900_001}
    producer = Producer(kafka1.bootstrap_servers, **settings)
    with pytest.raises(TransactionsUnavailableError) as raised:
        await producer.start()
    await producer.close()
    words = ("transaction.timeout.ms", "transaction.max.timeout.ms", "Make another producer")
    assert_told(raised.value, "new producer", codes.INVALID_TRANSACTION_TIMEOUT, *words)
    kafka1.create_topic(topic_name)
    async with Producer(
        kafka1.bootstrap_servers, **settings | {"transaction_timeout_ms": 900_000}
    ) as producer:
        await assert_goes_on(producer, topic_name)


@extended
def test_two_phase_commit_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="brokers do not support it yet") as raised:
        Producer({"transactional.id": "t", "transaction.two.phase.commit.enable": "true"})
    assert "transaction.two.phase.commit.enable" in str(raised.value)
    assert "prepare()" in str(raised.value)


# -- brokers without transactions ---


@extended
@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.FIND_COORDINATOR], ids=lambda api: api.name)
async def test_a_broker_without_transactions(api: ApiKey) -> None:
    async with FakeCluster() as cluster:
        cluster.set_api_versions({api: None})
        producer = Producer(cluster.bootstrap_servers, transactional_id="t")
        with pytest.raises(TransactionsUnavailableError) as raised:
            await producer.start()
        await producer.close()
    assert_told(raised.value, "new producer", codes.UNSUPPORTED_VERSION, "Kafka 0.11", "transactional.id")


@extended
async def test_librdkafkas_mock_without_transactions(mock_cluster: MockCluster) -> None:
    mock_cluster.set_api_version(ApiKey.INIT_PRODUCER_ID, -1, -1)
    producer = Producer(mock_cluster.bootstrap_servers, transactional_id="t")
    with pytest.raises(TransactionsUnavailableError) as raised:
        await producer.start()
    await producer.close()
    assert_told(raised.value, "new producer", codes.UNSUPPORTED_VERSION, "Kafka 0.11", "transactional.id")


# -- permissions ---


@pytest.fixture(scope="module")
def guarded(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that asks who may: alice logs in at `USERS`, the harness is a super user."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="alice-secret" user_bob="bob-secret";'
        ),
    }
    with KafkaCluster(
        kafka_tools,
        tmp_path_factory.mktemp("guarded"),
        properties=properties,
        listeners={"USERS": "SASL_PLAINTEXT"},
    ) as cluster:
        yield cluster


class Rights:
    """What alice may do, with one topic, its transactional id and its group, all of one name."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def _binding(self, kind: ResourceType, operation: AclOperation) -> AclBinding:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return AclBinding(kind, self._name, literal, "User:alice", "*", operation, allow)

    async def grant(self, kind: ResourceType, *operations: AclOperation) -> None:
        for future in self._cluster.admin.create_acls(
            [self._binding(kind, operation) for operation in operations]
        ).values():
            await asyncio.to_thread(future.result, 30)


@asynccontextmanager
async def alice(cluster: KafkaCluster, name: str, **settings: Any) -> AsyncIterator[Producer]:
    """A producer that logs in and is not started."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.listener("USERS"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="alice" password="alice-secret";'
            ),
            "transactional.id": name,
            "linger.ms": 0,
            **settings,
        }
    )
    try:
        yield producer
    finally:
        await producer.close()


async def committed(cluster: KafkaCluster, topic: str) -> list[bytes]:
    return await asyncio.to_thread(read, cluster.bootstrap_servers, topic)


@extended
async def test_no_permission_for_the_transactional_id(guarded: KafkaCluster, topic_name: str) -> None:
    """Without Describe its coordinator is not told; without Write there is no producer id."""
    guarded.create_topic(topic_name)
    rights = Rights(guarded, topic_name)
    words = (f"transactional.id {topic_name!r}", "grant Write and Describe")
    async with alice(guarded, topic_name) as producer:
        with pytest.raises(TransactionsUnavailableError) as raised:
            await producer.start()
        code = codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert_told(raised.value, "new producer", code, *words, "Make another producer")

    await rights.grant(ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE)
    async with alice(guarded, topic_name) as producer:
        with pytest.raises(TransactionsUnavailableError) as raised:
            await producer.start()
        assert_told(raised.value, "init", code, *words, "init_transactions()")

    await rights.grant(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE)
    await rights.grant(ResourceType.TOPIC, AclOperation.WRITE)
    async with alice(guarded, topic_name) as producer:
        await producer.start()
        async with producer.transaction() as txn:
            await txn.send(topic_name, b"allowed")
    assert await committed(guarded, topic_name) == [b"allowed"]


@extended
async def test_no_permission_for_the_topic(guarded: KafkaCluster, topic_name: str) -> None:
    guarded.create_topic(topic_name)
    rights = Rights(guarded, topic_name)
    await rights.grant(ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, AclOperation.WRITE)
    await rights.grant(ResourceType.TOPIC, AclOperation.DESCRIBE)
    async with alice(guarded, topic_name) as producer:
        await producer.start()
        txn = await producer.begin_transaction()
        await txn.send(topic_name, b"no")
        with pytest.raises(TransactionFailedError) as raised:
            await txn.commit()
        assert_told(raised.value, "abort", None, "abort it", "TOPIC_AUTHORIZATION_FAILED", topic_name)
        await txn.abort()
        assert txn.outcome is ABORTED
        await rights.grant(ResourceType.TOPIC, AclOperation.WRITE)
        async with producer.transaction() as txn:
            await txn.send(topic_name, b"allowed")
    assert await committed(guarded, topic_name) == [b"allowed"]


@extended
async def test_no_permission_for_the_group(guarded: KafkaCluster, topic_name: str) -> None:
    """Without Describe its coordinator is not told, without Read no offset is taken, of the topic neither."""
    guarded.create_topic(topic_name)
    rights = Rights(guarded, topic_name)
    await rights.grant(ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, AclOperation.WRITE)
    await rights.grant(ResourceType.TOPIC, AclOperation.WRITE)
    offsets = {(topic_name, 0): 1}
    group = f"the group {topic_name!r}"
    steps = [
        (
            ResourceType.GROUP,
            AclOperation.DESCRIBE,
            codes.GROUP_AUTHORIZATION_FAILED,
            "grant Describe and Read",
        ),
        (
            ResourceType.GROUP,
            AclOperation.READ,
            codes.GROUP_AUTHORIZATION_FAILED,
            "grant Read on the consumer group",
        ),
        (ResourceType.TOPIC, AclOperation.READ, codes.TOPIC_AUTHORIZATION_FAILED, "grant Read on the topic"),
    ]
    async with alice(guarded, topic_name) as producer:
        await producer.start()
        for kind, missing, code, remedy in steps:
            txn = await producer.begin_transaction()
            await txn.send_and_wait(topic_name, b"no")
            with pytest.raises(TransactionFailedError) as raised:
                await txn.send_offsets(offsets, topic_name)
            assert_told(raised.value, "abort", code, "abort the transaction", group, remedy)
            await txn.abort()
            assert txn.outcome is ABORTED
            await rights.grant(kind, missing)
        async with producer.transaction() as txn:
            await txn.send(topic_name, b"allowed")
            await txn.send_offsets(offsets, topic_name)
    assert await committed(guarded, topic_name) == [b"allowed"]
