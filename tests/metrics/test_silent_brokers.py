"""A stalled broker on real sockets: metrics, the dashboard's samples and `producer.silent_brokers()` name it.

`tests/unit/test_silence_and_ages.py` has the same by the test's clock: when it begins, and what ends it.
"""

from __future__ import annotations

import asyncio
import time

from aioproduce import BlockingProducer, Producer
from aioproduce.dashboard import Feed
from aioproduce.testing import ClusterThread, FakeCluster
from tests.drivers.producing import until


async def test_a_stalled_broker_is_named_and_the_other_is_not() -> None:
    async with FakeCluster(2, topics={"t": 2}) as cluster:
        broker = cluster.leader("t", 0)
        async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            feed = Feed([producer])
            for partition in (0, 1):
                await producer.send_and_wait("t", b"first", partition=partition)
            cluster.faults.stall(broker)
            waiting = [await producer.send("t", b"%d" % number, partition=0) for number in range(20)]
            await until(producer.silent_brokers)
            await producer.send_and_wait("t", b"elsewhere", partition=1)

            [silent] = producer.silent_brokers()
            assert (silent.node_id, silent.host, silent.port) == (broker, "127.0.0.1", cluster.ports[broker])
            assert silent.seconds >= 1.0
            assert silent.requests >= 1
            assert silent.records == 20
            assert producer.oldest_record_age >= silent.seconds

            snapshot = producer.metrics()
            assert snapshot.value("silent-brokers") == 1
            assert snapshot.value("silent-time", node_id=f"node-{broker}") >= 1000
            assert snapshot.value("silent-time", node_id=f"node-{1 - broker}") == 0
            assert snapshot.value("oldest-record-age") >= 1000

            [warning] = feed.sample(time.monotonic(), time.time()).content["producers"][0]["warnings"]
            assert warning.startswith(
                f"Broker {broker} (127.0.0.1:{cluster.ports[broker]}) has not answered for 1 s: "
            )
            assert warning.endswith("requests and 20 records wait for it.")

            cluster.faults.resume(broker)
            await asyncio.gather(*waiting)
            assert producer.silent_brokers() == []
            assert producer.oldest_record_age == 0.0
            assert producer.metrics().value("silent-brokers") == 0
        assert producer.silent_brokers() == []


async def test_the_oldest_send_that_waits() -> None:
    """It waits for room; one that began later does not count, nor one that has ended."""
    settings = {"linger_ms": 0, "buffer_memory": 20_000, "batch_size": 16_384}
    async with (
        FakeCluster(1, topics={"t": 1}) as cluster,
        Producer(cluster.bootstrap_servers, **settings) as producer,
    ):
        await producer.send_and_wait("t", b"first")
        assert producer.oldest_send_wait == 0.0
        cluster.faults.stall(cluster.leader("t", 0))
        full = await producer.send("t", bytes(16_000))
        first = asyncio.ensure_future(producer.send("t", bytes(16_000)))
        await until(lambda: producer.oldest_send_wait > 0.02)
        second = asyncio.ensure_future(producer.send("t", bytes(16_000)))
        await until(lambda: producer.waiting_sends == 2)
        waited = producer.oldest_send_wait
        assert waited > 0.02
        assert producer.metrics().value("oldest-send-wait") >= waited * 1000
        first.cancel()
        await asyncio.wait([first])
        assert producer.oldest_send_wait < producer.oldest_record_age
        cluster.faults.resume(cluster.leader("t", 0))
        await full
        await (await second)
        assert producer.oldest_send_wait == 0.0


def test_a_blocking_producer_names_it_too() -> None:
    with (
        ClusterThread(1, topics={"t": 1}) as cluster,
        BlockingProducer(cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        producer.send_and_wait("t", b"first")
        assert producer.silent_brokers() == []
        cluster.faults.stall(0)
        delivery = producer.send("t", b"waits")
        while not producer.silent_brokers():
            pass
        assert [silent.node_id for silent in producer.silent_brokers()] == [0]
        cluster.faults.resume(0)
        delivery.result()
