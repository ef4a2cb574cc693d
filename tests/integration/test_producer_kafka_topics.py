"""Our producer against one real broker: topics that come, go and change, and what the broker may forget or deny.

What is promised of the log (once, in order, at the reported offset) is asserted as a whole ``Verdict()``.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from aioproduce import Producer
from aioproduce.errors import (
    BrokerRejectedError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    TopicAuthorizationError,
)
from tests.integration.traffic import Traffic, Verdict, by_name
from tests.kafka_ask import active_producers
from tests.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_tools import KafkaTools

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("nothing_unhandled")]

KINDS: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "acks=all": {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
    "acks=1": {"enable_idempotence": False, "acks": "1", "max_in_flight_requests_per_connection": 1},
}


@pytest.fixture(scope="module")
def _strict_broker(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    properties = {
        "auto.create.topics.enable": "false",
        "connections.max.idle.ms": "2000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        # How often producers that were idle for producer.id.expiration.ms are looked for.
        "producer.id.expiration.check.interval.ms": "200",
    }
    with KafkaCluster(kafka_tools, tmp_path_factory.mktemp("strict"), properties=properties) as cluster:
        yield cluster


@pytest.fixture
def strict_broker(_strict_broker: KafkaCluster) -> KafkaCluster:
    """A broker that creates no topics by itself, closes connections that were idle for two seconds, and denies
    what an ACL denies.
    """
    return _strict_broker


def producer_of(cluster: KafkaCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, **settings)


# Topics that come, go and change


@pytest.mark.scenario(23, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_is_created_by_sending_to_it(kafka1: KafkaCluster, topic_name: str, kind: str) -> None:
    async with producer_of(kafka1, **KINDS[kind]) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(100)
        await traffic.settle()

    assert traffic.errors() == []
    assert traffic.judge(kafka1.console_consume(topic_name)) == Verdict()


@pytest.mark.scenario(24, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_topic_is_a_typed_error_until_it_exists(
    strict_broker: KafkaCluster, topic_name: str, kind: str
) -> None:
    async with producer_of(strict_broker, **KINDS[kind], max_block_ms=1500) as producer:
        with pytest.raises(MetadataTimeoutError, match="no such topic") as caught:
            await producer.send(topic_name, b"too early")
        assert (caught.value.topic, caught.value.waited >= 1.5) == (topic_name, True)
        assert producer.outstanding_bytes == 0

        await asyncio.to_thread(strict_broker.create_topic, topic_name)
        told = await producer.send_and_wait(topic_name, b"in time")

    assert told.offset == 0
    assert [record.value for record in strict_broker.console_consume(topic_name)] == [b"in time"]


@pytest.mark.scenario(26, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_partitions_are_added(strict_broker: KafkaCluster, topic_name: str, kind: str) -> None:
    """Keys move only when the new partitions are known, and explicit partitions find them at once."""
    strict_broker.create_topic(topic_name, partitions=2)
    async with producer_of(strict_broker, **KINDS[kind]) as producer:
        before = {(await producer.send_and_wait(topic_name, b"", b"%d" % key)).partition for key in range(50)}
        assert before == {0, 1}
        with pytest.raises(PartitionOutOfRangeError) as caught:
            await producer.send(topic_name, b"too early", partition=6)
        assert caught.value.partition_count == 2

        strict_broker.admin.create_partitions([NewPartitions(topic_name, 7)])[topic_name].result(60)
        await asyncio.to_thread(strict_broker.wait_until_led, topic_name, partitions=7)
        assert (await producer.send_and_wait(topic_name, b"", b"0")).partition in before

        told = await producer.send_and_wait(topic_name, b"explicit", partition=6)
        assert (told.partition, told.offset) == (6, 0)
        after = {(await producer.send_and_wait(topic_name, b"", b"%d" % key)).partition for key in range(50)}

    assert after == set(range(7))
    assert sum(end for _, end in strict_broker.offsets(topic_name).values()) == 102


@pytest.mark.scenario(25, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_is_deleted_and_made_again_while_sending(
    strict_broker: KafkaCluster, topic_name: str, kind: str
) -> None:
    """What the new topic acknowledged is there once and in order; the producer goes on."""
    strict_broker.create_topic(topic_name, partitions=2)
    async with (
        producer_of(strict_broker, **KINDS[kind], retry_backoff_max_ms=200, batch_size=500) as producer,
        Traffic(producer, topic_name) as traffic,
    ):
        await traffic.acknowledged(500)
        await asyncio.to_thread(strict_broker.delete_topic, topic_name)
        gone = traffic.sent
        await asyncio.to_thread(strict_broker.create_topic, topic_name, partitions=2)
        await traffic.acknowledged(2000)

    assert traffic.errors() == []
    verdict = traffic.judge(strict_broker.console_consume(topic_name))
    # The old log is gone with what it had acknowledged, and with nothing else.
    assert verdict.lost
    assert max(verdict.lost) < gone
    verdict.lost.clear()
    assert verdict == Verdict()


@pytest.mark.scenario(14, "K")
async def test_a_connection_that_the_broker_closes_when_idle_is_no_error(
    strict_broker: KafkaCluster, topic_name: str
) -> None:
    """Of each kind of producer, none of which would retry."""
    strict_broker.create_topic(topic_name)
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(producer_of(strict_broker, **settings, retries=0))
            for settings in KINDS.values()
        ]
        traffics = [
            Traffic(producer, topic_name, name=kind) for kind, producer in zip(KINDS, producers, strict=True)
        ]
        for _ in range(2):
            await send_and_settle(traffics)
            used = [producer._life.sender.connections.connection(1) for producer in producers]
            assert None not in used
            # It is the broker's time that passes.
            while any(  # noqa: ASYNC110
                producer._life.sender.connections.connection(1) is connection
                for producer, connection in zip(producers, used, strict=True)
            ):
                await asyncio.sleep(0.05)
        await send_and_settle(traffics)

    records = by_name(strict_broker.console_consume(topic_name))
    for kind, traffic in zip(KINDS, traffics, strict=True):
        assert (kind, traffic.errors()) == (kind, [])
        assert (kind, traffic.judge(records[kind])) == (kind, Verdict())


async def send_and_settle(traffics: list[Traffic]) -> None:
    for traffic in traffics:
        await traffic.send(10)
        await traffic.settle()


# What the broker denies or forgets


def add_acl(
    cluster: KafkaCluster, topic: str, operation: AclOperation, permission: AclPermissionType
) -> None:
    """Add an access rule, and wait until the broker goes by it."""
    rule = (
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        permission,
    )
    acl = AclBinding(*rule)
    cluster.admin.create_acls([acl])[acl].result(60)
    while not cluster.admin.describe_acls(AclBindingFilter(*rule)).result(60):
        time.sleep(0.05)


def grant(cluster: KafkaCluster, topic: str, operation: AclOperation) -> None:
    """Take a denial back, and wait until the broker has forgotten it."""
    rule = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation)
    found = AclBindingFilter(*rule, AclPermissionType.DENY)
    assert len(cluster.admin.delete_acls([found])[found].result(60)) == 1
    while cluster.admin.describe_acls(found).result(60):
        time.sleep(0.05)


@pytest.mark.scenario(44, "K")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_that_is_denied_is_written_when_granted(
    strict_broker: KafkaCluster, topic_name: str, kind: str
) -> None:
    """A topic whose metadata may be read and that may not be written; and one with neither permission."""
    strict_broker.create_topic(topic_name)
    # Once a topic has an ACL, what none allows is denied.
    add_acl(strict_broker, topic_name, AclOperation.ALL, AclPermissionType.ALLOW)
    add_acl(strict_broker, topic_name, AclOperation.WRITE, AclPermissionType.DENY)
    async with producer_of(strict_broker, **KINDS[kind]) as producer:
        traffic = Traffic(producer, topic_name)
        await traffic.send(10)
        await traffic.settle()
        errors = list(traffic.failed.values())
        assert len(errors) == 10
        for error in errors:
            assert isinstance(error, BrokerRejectedError)
            assert (error.name, error.possibly_written, error.retriable, error.attempts) == (
                *("TOPIC_AUTHORIZATION_FAILED", False),
                *(False, 1),
            )
        grant(strict_broker, topic_name, AclOperation.WRITE)
        await traffic.send(10)
        await traffic.settle()

    async with producer_of(strict_broker, **KINDS[kind]) as blind:
        add_acl(strict_broker, topic_name, AclOperation.ALL, AclPermissionType.DENY)
        with pytest.raises(TopicAuthorizationError) as caught:
            await blind.send(topic_name, b"denied")
        assert caught.value.topic == topic_name
        grant(strict_broker, topic_name, AclOperation.ALL)
        later = Traffic(blind, topic_name, name="later")
        await later.send(10)
        await later.settle()

    assert (len(traffic.acked), len(later.acked)) == (10, 10)
    records = by_name(strict_broker.console_consume(topic_name))
    assert traffic.judge(records["record"]) == Verdict()
    assert later.judge(records["later"]) == Verdict()


@pytest.mark.scenario(50, "K")
async def test_a_producer_that_the_broker_has_forgotten_goes_on(
    strict_broker: KafkaCluster, topic_name: str
) -> None:
    """Its id has expired; then the records that it wrote are deleted, and the broker starts without any of them.

    A broker of today takes any sequence of a producer that it does not know (KIP-360), where older ones answered
    UNKNOWN_PRODUCER_ID. Nothing may get lost or come twice.
    """
    strict_broker.create_topic(topic_name)
    port = strict_broker.nodes[1].port
    async with producer_of(strict_broker) as producer:
        traffic = Traffic(producer, topic_name)
        for _ in range(2):
            await traffic.send(10)
            await traffic.settle()
        assert len(await asyncio.to_thread(active_producers, port, topic_name)) == 1
        await asyncio.to_thread(expire_producers_after, strict_broker, 1)
        while await asyncio.to_thread(active_producers, port, topic_name):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.to_thread(expire_producers_after, strict_broker, 86_400_000)
        for _ in range(2):
            await traffic.send(10)
            await traffic.settle()
        before = await asyncio.to_thread(strict_broker.console_consume, topic_name)

        everything = TopicPartition(topic_name, 0, 40)
        deleted = strict_broker.admin.delete_records([everything])[everything].result(60)
        assert deleted.low_watermark == 40
        await asyncio.to_thread(strict_broker.bounce, 1)
        await traffic.send(10)
        await traffic.settle()

    assert traffic.errors() == []
    after = await asyncio.to_thread(strict_broker.console_consume, topic_name)
    assert [record.offset for record in after] == list(range(40, 50))
    assert traffic.judge([*before, *after]) == Verdict()


def expire_producers_after(cluster: KafkaCluster, milliseconds: int) -> None:
    entry = ConfigEntry(
        "producer.id.expiration.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result(60)
