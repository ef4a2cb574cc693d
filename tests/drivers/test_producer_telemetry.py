"""Client telemetry (KIP-714) of a whole producer: what arrives, the id, and a close that is never held up.

What is sent is counted by the cluster's own log; payloads are decoded by OpenTelemetry's classes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from aioproduce import Producer
from aioproduce.errors import ClientInstanceIdError, NotStartedError, ProducerClosedError
from aioproduce.testing import FakeCluster
from aioproduce.testing.simulation import Simulation
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import sleep, spawn, within
from tests.drivers.producing import FOREVER_MS, PATIENCE, assert_still_works, until, values

if TYPE_CHECKING:
    from aioproduce.testing import TelemetryPush

pytest.importorskip("opentelemetry.proto", reason="needs the extra aioproduce[telemetry]")

SENT = "org.apache.kafka.producer.record.send.total"


def sent(push: TelemetryPush) -> float:
    """What the push says of records sent."""
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    (resource,) = MetricsData.FromString(push.metrics).resource_metrics
    (metric,) = (metric for metric in resource.scope_metrics[0].metrics if metric.name == SENT)
    (point,) = metric.sum.data_points
    return point.as_double


def asked(cluster: FakeCluster, api: ApiKey) -> int:
    return cluster.requests.count(api)


@pytest.mark.parametrize("is_delta", [True, False])
@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip", "snappy", "none"])
async def test_what_arrives_is_what_was_sent(cluster: FakeCluster, is_delta: bool, codec: str) -> None:
    cluster.subscribe_metrics(interval=0.1, is_delta=is_delta, codecs=(codec,))
    async with Producer(cluster.bootstrap_servers, client_id="orders") as producer:
        for round_ in range(3):
            for number in range(10 + round_):
                await producer.send("t", b"%d" % number)
            await producer.flush()
            seen = len(cluster.pushed_metrics)
            await until(lambda seen=seen: len(cluster.pushed_metrics) > seen)  # type: ignore[misc]
        for number in range(5):
            await producer.send("t", b"late %d" % number)
        instance_id = await producer.client_instance_id()
    pushes = cluster.pushed_metrics
    counts = [sent(push) for push in pushes]
    assert len(values(cluster)) == 38
    assert (sum(counts) if is_delta else counts[-1]) == 38
    assert is_delta or counts == sorted(counts)
    assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert {push.client_instance_id for push in pushes} == {instance_id}
    assert {push.client_id for push in pushes} == {"orders"}


async def test_a_producer_that_lives_shortly_pushes_once(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics(interval=3600.0)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.client_instance_id()
        await producer.send_and_wait("t", b"v")
    (push,) = cluster.pushed_metrics
    assert push.is_last
    assert sent(push) == 1


async def test_another_subscription_is_followed(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics(("org.apache.kafka.producer.batch",), interval=0.1)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"v")
        await until(lambda: cluster.pushed_metrics)
        assert SENT.encode() not in cluster.pushed_metrics[-1].metrics
        cluster.subscribe_metrics((SENT,), interval=0.1)
        await until(lambda: SENT.encode() in cluster.pushed_metrics[-1].metrics)
        assert sent(cluster.pushed_metrics[-1]) == 1
    assert asked(cluster, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 2


# -- the id ---


async def test_two_producers_have_two_ids(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics(())
    async with Producer(cluster.bootstrap_servers) as one, Producer(cluster.bootstrap_servers) as other:
        first, second = await one.client_instance_id(), await other.client_instance_id()
        assert first != second
        assert await one.client_instance_id(0) == first


async def test_brokers_without_telemetry_give_no_id(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"v")
        with pytest.raises(ClientInstanceIdError, match=r"within 0\.05 s.*Kafka 3\.7") as caught:
            await producer.client_instance_id(0.05)
        assert isinstance(caught.value, TimeoutError)
        await assert_still_works(producer, cluster)
    assert asked(cluster, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 0


async def test_switched_off_there_is_no_id_and_no_question(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics(interval=0.1)
    async with Producer(cluster.bootstrap_servers, enable_metrics_push=False) as producer:
        await producer.send_and_wait("t", b"v")
        with pytest.raises(ClientInstanceIdError, match=r"enable\.metrics\.push=true"):
            await producer.client_instance_id()
    assert asked(cluster, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 0
    assert cluster.pushed_metrics == []


async def test_a_cluster_that_refuses_gives_no_id_ever(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics()
    cluster.faults.fail(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 42)
    async with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(2):  # before the answer, and after it
            with pytest.raises(ClientInstanceIdError, match="no broker will assign"):
                await producer.client_instance_id(PATIENCE)
        await assert_still_works(producer, cluster)


async def test_close_wakes_who_waits_for_the_id(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    with pytest.raises(NotStartedError):
        await producer.client_instance_id()
    await producer.start()
    waiting = spawn(producer.client_instance_id(3600))
    await producer.send_and_wait("t", b"v")
    assert not waiting.done()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await waiting


async def test_a_cancelled_wait_leaves_nothing(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TimeoutError):
            async with within(0.01):
                await producer.client_instance_id(3600)
        telemetry = producer._life.sender.telemetry
        assert telemetry is not None
        assert telemetry._waiters == {}


# -- bad brokers ---


async def test_a_push_that_fails_is_no_harm_to_records(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics(interval=0.1)
    cluster.faults.fail(ApiKey.PUSH_TELEMETRY, 118)
    cluster.faults.reset_connections_on(ApiKey.PUSH_TELEMETRY)
    async with Producer(cluster.bootstrap_servers) as producer:
        async with within(PATIENCE):
            while not cluster.pushed_metrics:
                await producer.send_and_wait("t", b"v")
                await sleep(0.01)
        await assert_still_works(producer, cluster)
    assert 1 <= sent(cluster.pushed_metrics[0]) <= len(values(cluster))


async def test_close_is_not_held_up_by_brokers_that_have_stopped_to_answer(cluster: FakeCluster) -> None:
    cluster.subscribe_metrics(interval=3600.0)
    # What waits for the answer, or for its time-out, waits for ever.
    producer = Producer(
        cluster.bootstrap_servers, request_timeout_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS
    )
    await producer.start()
    await producer.client_instance_id()
    await producer.send_and_wait("t", b"v")
    for broker in cluster.ports:
        cluster.faults.stall(broker)
    async with within(PATIENCE):
        await producer.close()
    assert cluster.pushed_metrics == []
    for broker in cluster.ports:
        cluster.faults.resume(broker)


async def test_without_the_extra_it_says_so_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1.metrics_pb2", None)
    cluster.subscribe_metrics(interval=0.1)
    async with Producer(cluster.bootstrap_servers) as producer:
        instance_id = await producer.client_instance_id()
        await assert_still_works(producer, cluster)
    assert instance_id.int
    assert cluster.pushed_metrics == []
    (message,) = [one.getMessage() for one in caplog.records if one.name == "aioproduce.telemetry"]
    assert "pip install 'aioproduce[telemetry]'" in message


# -- in virtual time ---


def _simulated() -> list[tuple[float, bytes]]:
    simulation = Simulation(seed=714, brokers=2, topics={"t": 2})
    model = simulation.cluster.model
    model.telemetry.subscribe(("*",), 60.0, is_delta=True, codecs=("zstd",), max_bytes=10**6)
    model.set_api_versions({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)})

    async def main() -> None:
        async with Producer(simulation.bootstrap_servers, client_id="c") as producer:
            for number in range(60):
                await producer.send("t", b"%d" % number)
                await sleep(10)

    simulation.run(main())
    return [(push.at, push.metrics) for push in model.telemetry.pushes]


def test_the_same_seed_pushes_the_same_at_the_same_time() -> None:
    first, again = _simulated(), _simulated()
    # Ten minutes: between half and one and a half intervals to the first push, and the one of the close.
    assert 9 <= len(first) <= 11
    assert first == again
