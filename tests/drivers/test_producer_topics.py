"""What the producer knows of topics: asked once, kept, refreshed, forgotten; unknown, denied and leaderless ones.

Scenarios of Kafka's own tests: KafkaProducerTest `metadataFetch`, `metadataExpiry`,
`metadataTimeoutWithMissingTopic`, `metadataWithPartitionOutOfRange`, `metadataTimeoutWithPartitionOutOfRange`,
`topicRefreshInMetadata`, `topicNotExistingInMetadata`, `partitionsForWithNullTopic`,
`sendToInvalidTopic`, `closeWhenWaitingForMetadataUpdate`; ProducerFailureHandling `nonExistentTopic`,
`invalidPartition`, `internalTopic`; PlaintextProducerSend `nonBlockingProducer`; ProducerSendWhileDeletion.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from aioproduce import DeliveryFuture, PartitionInfo, Producer
from aioproduce.errors import (
    BrokerRejectedError,
    BufferExhaustedError,
    DeliveryError,
    InvalidTopicError,
    MetadataTimeoutError,
    PartialSendError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    TopicAuthorizationError,
)
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import assert_in_order, gather, spawn, wait_for, within
from tests.drivers.producing import (
    FOREVER_MS,
    PATIENCE,
    assert_still_works,
    know_topic,
    let_the_sender_rest,
    until,
    values,
)

EAGER: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


# Asking, keeping, refreshing


async def test_metadata_is_asked_for_once_and_kept(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        # The first may be answered before a broker is asked for its leaders again; from then on it is known.
        await producer.send_and_wait("t", b"v")
        await producer.partitions_for("t")
        asked = cluster.requests.count(ApiKey.METADATA)
        for n in range(50):
            await producer.send_and_wait("t", b"v", partition=n % 3)
            await producer.partitions_for("t")
        assert cluster.requests.count(ApiKey.METADATA) == asked


async def test_many_who_wait_for_one_topic_ask_once(cluster: FakeCluster) -> None:
    for broker in range(3):
        cluster.faults.stall(broker)
    async with Producer(cluster.bootstrap_servers) as producer:
        tasks = [spawn(producer.send("t", b"%d" % n)) for n in range(200)]
        await until(lambda: cluster.connections)
        for broker in range(3):
            cluster.faults.resume(broker)
        await gather(*await gather(*tasks))
        assert cluster.requests.count(ApiKey.METADATA) <= 2
    assert sorted(values(cluster), key=lambda value: int(value or b"")) == [b"%d" % n for n in range(200)]


async def test_sends_that_waited_for_metadata_keep_their_order(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        tasks = [spawn(producer.send("one", b"%d" % n)) for n in range(200)]
        await gather(*await gather(*tasks))
    assert_in_order(values(cluster, "one"), [b"%d" % n for n in range(200)])


async def test_metadata_that_is_too_old_is_refreshed_while_sends_go_on(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, metadata_max_age_ms=50, **EAGER) as producer:
        await producer.send_and_wait("t", b"v")
        asked = cluster.requests.count(ApiKey.METADATA)
        cluster.add_partitions("t", 5)
        await until(lambda: cluster.requests.count(ApiKey.METADATA) >= asked + 3)
        assert len(await producer.partitions_for("t")) == 5
        assert (await producer.send_and_wait("t", b"v", partition=4)).partition == 4


@pytest.mark.parametrize("call", ["send", "partitions_for"])
async def test_a_topic_that_is_created_while_someone_waits(cluster: FakeCluster, call: str) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS, **EAGER) as producer:
        if call == "send":
            waiting: asyncio.Future[Any] = spawn(producer.send_and_wait("late", b"v"))
        else:
            waiting = spawn(producer.partitions_for("late"))
        asked = cluster.requests.count(ApiKey.METADATA)
        await until(lambda: cluster.requests.count(ApiKey.METADATA) >= asked + 3)
        assert not waiting.done()
        cluster.create_topic("late", 2)
        await wait_for(waiting, PATIENCE)
        await assert_still_works(producer, cluster, "late")


# Unknown


async def test_a_topic_that_does_not_exist(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=250, **EAGER) as producer:
        await producer.check(PATIENCE)
        for call in (
            lambda: producer.send("nowhere", b"v"),
            lambda: producer.send_and_wait("nowhere", b"v"),
            lambda: producer.partitions_for("nowhere"),
            lambda: producer.send("nowhere", b"v", partition=0),
        ):
            with pytest.raises(MetadataTimeoutError) as caught:
                await call()
            assert caught.value.topic == "nowhere"
            assert caught.value.waited == pytest.approx(0.25, rel=0.01) or caught.value.waited > 0.25
            for word in ("'nowhere'", "no such topic", "Create it", "max.block.ms"):
                assert word in str(caught.value)
        assert producer.outstanding_bytes == 0
        await assert_still_works(producer, cluster)
    assert "nowhere" not in cluster.topics


async def test_a_timeout_of_ones_own_is_shorter_and_never_longer(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS, **EAGER) as producer:
        for timeout in (0, 0.05):
            with pytest.raises(MetadataTimeoutError) as caught:
                await producer.send("nowhere", b"v", timeout=timeout)
            assert caught.value.waited == pytest.approx(timeout, rel=0.01) or caught.value.waited > timeout
            with pytest.raises(MetadataTimeoutError):
                await producer.partitions_for("nowhere", timeout=timeout)
    async with Producer(cluster.bootstrap_servers, max_block_ms=50, **EAGER) as producer:
        with pytest.raises(MetadataTimeoutError):
            await wait_for(producer.send("nowhere", b"v", timeout=1e9), PATIENCE)


async def test_a_timeout_bounds_the_waiting_and_not_the_record(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.partitions_for("one")
        delay = cluster.faults.delay_answers(0.2, api=ApiKey.PRODUCE)
        delivery = await producer.send("one", b"v", timeout=0)
        assert (await delivery).offset == 0
        assert delay.hits >= 1


async def test_no_max_block_means_no_waiting(cluster: FakeCluster) -> None:
    """PlaintextProducerSend `nonBlockingProducer`: unknown topic and full buffer are told without waiting."""
    async with Producer(
        cluster.bootstrap_servers, max_block_ms=0, buffer_memory=40_000, batch_size=10_000, **EAGER
    ) as producer:
        for refused in (producer.send("one", b"v"), producer.partitions_for("one")):
            with pytest.raises(MetadataTimeoutError):
                await refused
        await until(lambda: producer._life.sender.metadata.topic("one"))
        for broker in range(3):
            cluster.faults.stall(broker)
        accepted: list[DeliveryFuture] = []

        async def fill() -> None:
            while len(accepted) < 1000:
                accepted.append(await producer.send("one", b"x" * 1000))

        with pytest.raises(BufferExhaustedError) as caught:
            await fill()
        assert caught.value.needed == 10_000
        assert caught.value.available < 10_000
        assert "buffer.memory=40000" in str(caught.value)
        assert len(accepted) >= 30, "four batches of nine records or so"
        for broker in range(3):
            cluster.faults.resume(broker)
        await gather(*accepted)
        await assert_still_works(producer, cluster, "one")
    assert len(values(cluster, "one")) == len(accepted) + 1


# Wrong partitions


async def test_a_partition_out_of_range_is_told_after_asking_again(cluster: FakeCluster) -> None:
    """Java waits for max.block.ms; here a fresh answer that still lacks the partition is enough."""
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS) as producer:
        for _ in range(2):
            asked = cluster.requests.count(ApiKey.METADATA)
            with pytest.raises(PartitionOutOfRangeError) as caught:
                await wait_for(producer.send("t", b"v", partition=3), PATIENCE)
            assert (caught.value.topic, caught.value.partition, caught.value.partition_count) == ("t", 3, 3)
            assert cluster.requests.count(ApiKey.METADATA) > asked
        assert producer.outstanding_bytes == 0
        await assert_still_works(producer, cluster)


async def test_a_partition_out_of_range_without_an_answer(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=100) as producer:
        await know_topic(producer, "t")
        await producer.send_and_wait("t", b"v", partition=0)
        for broker in range(3):
            cluster.faults.stall(broker)
        with pytest.raises(MetadataTimeoutError) as caught:
            await producer.send("t", b"v", partition=3)
        assert caught.value.topic == "t"
        assert "more than the 3 known partitions of 't' did not become known within" in str(caught.value)
        for broker in range(3):
            cluster.faults.resume(broker)
        await assert_still_works(producer, cluster)


# Denied and invalid


async def test_a_denied_topic_is_told_at_once_and_works_when_granted(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS, **EAGER) as producer:
        await producer.send_and_wait("one", b"v")
        cluster.deny_topic("t")
        for call in (lambda: producer.send("t", b"v"), lambda: producer.partitions_for("t")):
            for _ in range(2):
                with pytest.raises(TopicAuthorizationError) as caught:
                    await wait_for(call(), PATIENCE)
                assert caught.value.topic == "t"
                for word in ("'t'", "grant", "Write"):
                    assert word in str(caught.value)
        with pytest.raises((TopicAuthorizationError, MetadataTimeoutError)):
            producer.try_send("t", b"v")
        assert producer.outstanding_bytes == 0
        await assert_still_works(producer, cluster, "one")
        cluster.deny_topic("t", False)
        await assert_still_works(producer, cluster)


async def test_scripted_denial_in_metadata(cluster: FakeCluster) -> None:
    cluster.faults.fail_metadata(29, topic="t")
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS, **EAGER) as producer:
        with pytest.raises(TopicAuthorizationError, match="denies"):
            await producer.send("t", b"v")
        await assert_still_works(producer, cluster)


async def test_denied_when_it_is_written(cluster: FakeCluster) -> None:
    cluster.faults.fail_produce(29)
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(BrokerRejectedError) as caught:
            await producer.send_and_wait("t", b"v", partition=1)
        assert (caught.value.code, caught.value.name) == (29, "TOPIC_AUTHORIZATION_FAILED")
        assert (caught.value.possibly_written, caught.value.retriable) == (False, False)
        assert caught.value.topic_partition == ("t", 1)
        await assert_still_works(producer, cluster)


async def test_a_name_that_only_the_cluster_refuses(cluster: FakeCluster) -> None:
    """KafkaProducerTest `sendToInvalidTopic`: INVALID_TOPIC_EXCEPTION (17) ends the waiting, not max.block.ms."""
    cluster.faults.fail_metadata(17, topic="t", times=2)
    async with Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS, **EAGER) as producer:
        with pytest.raises(InvalidTopicError) as caught:
            await wait_for(producer.send("t", b"v"), PATIENCE)
        assert caught.value.topic == "t"
        with pytest.raises(InvalidTopicError):
            await producer.partitions_for("t")
        await assert_still_works(producer, cluster)


async def test_an_internal_topic_is_the_brokers_to_refuse(cluster: FakeCluster) -> None:
    cluster.create_topic("__consumer_offsets", 1)
    cluster.faults.fail_produce(17, topic="__consumer_offsets")
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(BrokerRejectedError) as caught:
            await producer.send_and_wait("__consumer_offsets", b"v")
        assert caught.value.name == "INVALID_TOPIC_EXCEPTION"
        assert not caught.value.possibly_written


@pytest.mark.parametrize("topic", [None, "", "a b", 5], ids=repr)
async def test_partitions_of_no_topic(cluster: FakeCluster, topic: Any) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(InvalidTopicError):
            await producer.partitions_for(topic)
        await assert_still_works(producer, cluster)


# Asking on purpose


async def test_partitions_for(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        found = await producer.partitions_for("t")
        assert [each.leader for each in found] == [cluster.leader("t", partition) for partition in range(3)]
        for partition, info in enumerate(found):
            assert isinstance(info, PartitionInfo)
            assert (info.topic, info.partition) == ("t", partition)
            assert sorted(info.replicas) == sorted(info.in_sync_replicas) == [0, 1, 2]


async def test_partitions_for_tells_of_a_partition_without_leader(cluster: FakeCluster) -> None:
    cluster.take_leader("t", 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        assert [each.leader for each in await producer.partitions_for("t")][1] == -1


async def test_check(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(2):
            asked = cluster.requests.count(ApiKey.METADATA)
            found = await producer.check()
            assert cluster.requests.count(ApiKey.METADATA) > asked, "an answer, not a memory"
            assert found.brokers == {id_: f"127.0.0.1:{port}" for id_, port in cluster.ports.items()}
            assert found.cluster_id


# Waiting


@pytest.mark.parametrize("call", ["send", "send_and_wait", "partitions_for", "check", "send_many"])
async def test_close_wakes_whoever_waits_for_metadata(cluster: FakeCluster, call: str) -> None:
    for broker in range(3):
        cluster.faults.stall(broker)
    producer = Producer(cluster.bootstrap_servers, max_block_ms=FOREVER_MS)
    await producer.start()
    arguments: dict[str, tuple[Any, ...]] = {"check": (PATIENCE * 10,), "partitions_for": ("t",)}
    coroutine = getattr(producer, call)(*arguments.get(call, ("t", [b"v"] if call == "send_many" else b"v")))
    waiting = spawn(coroutine)
    await until(lambda: cluster.connections)
    await let_the_sender_rest()
    assert not waiting.done()
    await producer.close()
    expected = PartialSendError if call == "send_many" else ProducerClosedError
    with pytest.raises(expected) as caught:
        await waiting
    assert isinstance(caught.value.__cause__ if call == "send_many" else caught.value, ProducerClosedError)


async def test_a_cancelled_send_that_waited_for_metadata_leaves_nothing(cluster: FakeCluster) -> None:
    for broker in range(3):
        cluster.faults.stall(broker)
    async with Producer(cluster.bootstrap_servers) as producer:
        tasks = [spawn(producer.send("one", b"%d" % n)) for n in range(20)]
        await until(lambda: cluster.connections)
        for task in tasks[::2]:
            task.cancel()
        await gather(*tasks[::2], return_exceptions=True)
        for broker in range(3):
            cluster.faults.resume(broker)
        await gather(*await gather(*tasks[1::2]))
        await until(lambda: producer.outstanding_bytes == 0)
    assert_in_order(values(cluster, "one"), [b"%d" % n for n in range(1, 20, 2)])


# Topics that go


async def test_a_topic_that_is_deleted_and_made_again(cluster: FakeCluster) -> None:
    """ProducerSendWhileDeletion: the new topic has another id, and sequences and epochs start again."""
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        for turn in range(3):
            for n in range(10):
                metadata = await producer.send_and_wait("one", b"%d-%d" % (turn, n))
                assert metadata.offset == n
            cluster.delete_topic("one")
            cluster.create_topic("one", 1)
        await assert_still_works(producer, cluster, "one")


async def test_a_topic_that_is_gone_fails_in_its_time_and_others_go_on(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers,
        max_block_ms=200,
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=500,
        **EAGER,
    ) as producer:
        await know_topic(producer, "one", "t")
        await producer.send_and_wait("one", b"v")
        cluster.delete_topic("one")

        async def send_until_it_is_known_to_be_gone() -> None:
            while True:
                # Records that were accepted before that fail by their own time-out, or by the broker's word.
                with contextlib.suppress(DeliveryError):
                    await producer.send_and_wait("one", b"v")

        with pytest.raises(MetadataTimeoutError, match="no such topic"):
            await send_until_it_is_known_to_be_gone()
        await assert_still_works(producer, cluster)


@pytest.mark.parametrize("call", ["send", "send_batch"])
async def test_a_topic_made_again_with_fewer_partitions_while_someone_waits_for_memory(
    cluster: FakeCluster, call: str
) -> None:
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=10_000, batch_size=10_000, linger_ms=0, **EAGER
    ) as producer:
        await producer.partitions_for("t")
        await producer.send_and_wait("one", b"v")
        cluster.take_leader("one", 0)
        holder = await producer.send("one", b"v")
        sender, driver = producer._life.sender, producer._life.driver
        batch = producer.create_batch()
        batch.append(b"v")
        waiting = spawn(
            producer.send("t", b"v", partition=2)
            if call == "send"
            else producer.send_batch(batch, "t", partition=2)
        )
        await until(lambda: sender.pool.waiting)
        cluster.delete_topic("t")
        cluster.create_topic("t", 2)
        sender.metadata_requests.request(driver.now())
        driver.wake()
        await until(lambda: (view := sender.metadata.topic("t")) is not None and view.partition_count == 2)
        cluster.elect_leader("one", 0)
        with pytest.raises(PartitionOutOfRangeError):
            async with within(PATIENCE):
                await waiting
        await holder
        await assert_still_works(producer, cluster)
