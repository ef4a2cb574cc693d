"""What other clients hang on or never recover from: lost connections, moved leaders, restarts, a sender that dies.

aiokafka#1039 (the sender task cancelled from outside), #1133, #517, #267 (never again after a restart or a leader's
move), #1038 (uvloop's closed transports), #710. Scenarios of Kafka's own tests: BaseProducerSend
`sendToPartitionWithFollowerShutdownShouldNotTimeout`, ProducerFailureHandling `notEnoughReplicas`,
`notEnoughReplicasAfterBrokerShutdown`; ProducerRebootstrap.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aioproduce import DeliveryFuture, Producer
from aioproduce.errors import (
    BrokerRejectedError,
    DeliveryError,
    DeliveryTimeoutError,
    DisconnectedError,
    SenderDiedError,
)
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.breaking import break_core
from tests.drivers.concurrency import (
    KILLED,
    assert_in_order,
    at_brokers,
    fake_cluster,
    gather,
    kill_sender,
    senders,
    sleep,
    spawn,
    within,
)
from tests.drivers.producing import FOREVER_MS, PATIENCE, assert_still_works, read_back, until, values

EAGER: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


class Traffic:
    """Numbered records, keyed over every partition, sent without pause until told to stop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._stop = False
        self.deliveries: list[DeliveryFuture] = []
        self._task = spawn(self._run())

    async def _run(self) -> None:
        for n in itertools.count():
            self.deliveries.append(await self._producer.send("t", b"%d" % n, key=b"key %d" % (n % 7)))
            await sleep(0)
            if self._stop:
                return

    async def go_on_for(self, count: int) -> None:
        """Until this many more records are acknowledged."""
        target = len(self.deliveries) + count
        await until(lambda: len(self.deliveries) > target and self.deliveries[target].done())

    async def end(self) -> int:
        """Stop, and wait for every record to be acknowledged; how many there are."""
        self._stop = True
        async with within(PATIENCE):
            await self._task
            await self._producer.flush()
            await gather(*self.deliveries)
        return len(self.deliveries)


async def assert_once_and_in_order(cluster: FakeCluster, count: int) -> None:
    """Each record is there once, and those of a key in the order in which they were sent (aiokafka reads)."""
    by_key: dict[bytes, list[int]] = {b"key %d" % key: [] for key in range(7)}
    for record in await read_back(cluster, "t", count):
        by_key[record.key].append(int(record.value))
    assert by_key == {b"key %d" % key: list(range(key, count, 7)) for key in range(7)}
    assert len(values(cluster)) == count


# Brokers that go and leaders that move


async def reset_all(cluster: FakeCluster) -> None:
    cluster.faults.reset_connections()


async def move_leaders(cluster: FakeCluster) -> None:
    for partition in range(3):
        cluster.move_leader("t", partition, (cluster.leader("t", partition) + 1) % 3)


async def restart_one_after_the_other(cluster: FakeCluster) -> None:
    for broker in range(3):
        await cluster.stop_broker(broker)
        asked = cluster.requests.count(ApiKey.PRODUCE)
        await until(lambda: cluster.requests.count(ApiKey.PRODUCE) > asked)  # noqa: B023  # awaited in the loop
        await cluster.start_broker(broker)


async def restart_all_at_once(cluster: FakeCluster) -> None:
    for broker in range(3):
        await cluster.stop_broker(broker)
    for broker in range(3):
        await cluster.start_broker(broker)


async def leave_without_leaders_for_a_while(cluster: FakeCluster) -> None:
    asked = cluster.requests.count(ApiKey.METADATA)
    for partition in range(3):
        cluster.take_leader("t", partition)
    await until(lambda: cluster.requests.count(ApiKey.METADATA) > asked)
    for partition in range(3):
        cluster.elect_leader("t", partition)


async def lose_answers(cluster: FakeCluster) -> None:
    fault = cluster.faults.reset_connections_on(ApiKey.PRODUCE, times=3)
    await until(lambda: fault.is_spent)


async def lose_requests(cluster: FakeCluster) -> None:
    fault = cluster.faults.reset_connections_on(ApiKey.PRODUCE, times=3, after_processing=False)
    await until(lambda: fault.is_spent)


async def refuse_for_a_while(cluster: FakeCluster) -> None:
    """NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, ..._AFTER_APPEND, LEADER_NOT_AVAILABLE, STORAGE_ERROR."""
    for code in (6, 19, 5, 56):
        cluster.faults.fail_produce(code, times=2)
    fault = cluster.faults.fail_produce(20, times=2, after_append=True)
    await until(lambda: fault.is_spent)


async def cut_answers_short(cluster: FakeCluster) -> None:
    fault = cluster.faults.cut_answers(times=4)
    await until(lambda: fault.is_spent)


async def throttle(cluster: FakeCluster) -> None:
    fault = cluster.faults.throttle(0.02, times=4)
    await until(lambda: fault.is_spent)


EVENTS = [
    reset_all,
    move_leaders,
    restart_one_after_the_other,
    restart_all_at_once,
    leave_without_leaders_for_a_while,
    lose_answers,
    lose_requests,
    refuse_for_a_while,
    cut_answers_short,
    throttle,
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
async def test_traffic_goes_on(cluster: FakeCluster, event: Callable[[FakeCluster], Any]) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=1, **EAGER) as producer:
        traffic = Traffic(producer)
        await traffic.go_on_for(50)
        for _ in range(3):
            await event(cluster)
            await traffic.go_on_for(50)
        count = await traffic.end()
        await until(lambda: producer.outstanding_bytes == 0)
        await assert_once_and_in_order(cluster, count)


async def test_one_after_the_other_with_one_request_in_flight(cluster: FakeCluster) -> None:
    """The other way to keep the order: no idempotence, no second request. Duplicates may be, disorder may not."""
    async with Producer(
        cluster.bootstrap_servers,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        linger_ms=1,
        **EAGER,
    ) as producer:
        traffic = Traffic(producer)
        for event in (move_leaders, lose_answers, restart_one_after_the_other):
            await traffic.go_on_for(50)
            await event(cluster)
        count = await traffic.end()
    seen: dict[bytes | None, list[int]] = {}
    for record in cluster.records("t"):
        seen.setdefault(record.key, []).append(int(record.value or b""))
    for key in range(7):
        firsts = list(dict.fromkeys(seen[b"key %d" % key]))
        assert firsts == list(range(key, count, 7))


async def test_idle_connections_that_were_lost_meanwhile(cluster: FakeCluster) -> None:
    """aiokafka#1038: a closed transport of uvloop raises RuntimeError where asyncio's does not."""
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        for turn in range(20):
            cluster.faults.reset_connections()
            # At once, in the turn in which the resets are on their way.
            delivery = await producer.send("one", b"%d" % turn)
            assert (await delivery).offset == turn
        await assert_still_works(producer, cluster, "one")


async def test_a_follower_that_stops_is_not_noticed(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **EAGER) as producer:
        await producer.send_and_wait("one", b"v")
        leader = cluster.leader("one", 0)
        for broker in range(3):
            if broker != leader:
                await cluster.stop_broker(broker)
        async with within(PATIENCE):
            await gather(*[await producer.send("one", b"%d" % n) for n in range(50)])
    assert len(values(cluster, "one")) == 51


@pytest.mark.parametrize("code", [19, 20])
async def test_not_enough_replicas(cluster: FakeCluster, code: int) -> None:
    """Retried as long as the record lives; the error then names what the broker said last.

    An answer that comes in the turn in which the time is over decides itself, as in Java.
    """
    fault = cluster.faults.fail_produce(code, times=None, after_append=code == 20)
    async with Producer(
        cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=250, delivery_timeout_ms=500, **EAGER
    ) as producer:
        with pytest.raises((DeliveryTimeoutError, BrokerRejectedError)) as caught:
            await producer.send_and_wait("one", b"v")
        assert caught.value.attempts > 1
        assert caught.value.retriable
        in_flight = "latest attempt is not answered" in str(caught.value)
        assert caught.value.possibly_written == (code == 20 or in_flight)
        assert "NOT_ENOUGH_REPLICAS" in str(caught.value)
        fault.cancel()
        await assert_still_works(producer, cluster, "one")
    assert values(cluster, "one") == ([b"v"] if code == 20 else []) + [b"good"]


async def test_no_retries(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, retries=0) as producer:
        cluster.faults.fail_produce(19)
        with pytest.raises(BrokerRejectedError) as refused:
            await producer.send_and_wait("one", b"refused")
        assert (refused.value.name, refused.value.attempts) == ("NOT_ENOUGH_REPLICAS", 1)
        assert refused.value.retriable
        cluster.faults.reset_connections_on(ApiKey.PRODUCE)
        with pytest.raises(DisconnectedError) as lost:
            await producer.send_and_wait("one", b"lost")
        assert lost.value.possibly_written
        assert "retries=0" in str(lost.value)
        await assert_still_works(producer, cluster, "one")
    assert values(cluster, "one") == [b"lost", b"good"]


async def test_known_brokers_are_gone_and_others_took_their_place(nothing_left: None) -> None:
    """ProducerRebootstrap: none of the brokers that metadata named answers; bootstrap.servers leads to the new."""
    async with fake_cluster(1, topics={"t": 1}) as old, fake_cluster(2, topics={"t": 1}) as new:
        for broker in range(2):
            await new.stop_broker(broker)
        servers = f"{old.bootstrap_servers},{new.bootstrap_servers}"
        async with Producer(servers, **EAGER) as producer, within(PATIENCE):
            await producer.send_and_wait("t", b"first")
            for broker in range(2):
                await new.start_broker(broker)
            await old.stop_broker(0)
            await producer.send_and_wait("t", b"second")
            assert len((await producer.check()).brokers) == 2
        assert values(old) == [b"first"]
        assert values(new) == [b"second"]


# The sender dies


async def assert_dead(
    producer: Producer, cause: type[BaseException] | tuple[type[BaseException], ...]
) -> None:
    """Nothing waits for a sender that is no more: every call says so, with the cause."""
    calls: list[Callable[[], Any]] = [
        lambda: producer.send("one", b"v"),
        lambda: producer.send_and_wait("one", b"v"),
        lambda: producer.send_many("one", [b"v"]),
        lambda: producer.flush(),
        lambda: producer.partitions_for("one"),
        lambda: producer.check(),
    ]
    for call in calls:
        with pytest.raises(SenderDiedError, match="make a new producer") as caught:
            await call()
        assert isinstance(caught.value.__cause__, cause)
    with pytest.raises(SenderDiedError):
        producer.try_send("one", b"v")
    async with within(PATIENCE):
        await producer.close()
        await producer.close()


@pytest.mark.parametrize("stage", ["linger", "in flight", "back-off", "settled"])
async def test_the_sender_task_is_cancelled_from_outside(cluster: FakeCluster, stage: str) -> None:
    """aiokafka#1039: test frameworks cancel every task; sends then hung silently."""
    producer = Producer(
        cluster.bootstrap_servers,
        linger_ms=FOREVER_MS if stage == "linger" else 0,
        retry_backoff_ms=FOREVER_MS if stage == "back-off" else 1,
        retry_backoff_max_ms=FOREVER_MS,
    )
    await producer.start()
    await producer.partitions_for("one")
    told: list[Any] = []
    if stage == "in flight":
        cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    if stage == "back-off":
        cluster.faults.fail_produce(19)
    deliveries = [
        await producer.send("one", b"%d" % n, on_delivery=lambda *outcome: told.append(outcome))
        for n in range(3)
    ]
    if stage in ("in flight", "back-off"):
        await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
    if stage == "settled":
        await gather(*deliveries)
    waiting = [spawn(_wait_for(delivery)) for delivery in deliveries]
    await sleep(0)
    kill_sender()
    async with within(PATIENCE):
        outcomes = await gather(*waiting, return_exceptions=True)
    if stage == "settled":
        assert [outcome.offset for outcome in outcomes if not isinstance(outcome, BaseException)] == [0, 1, 2]
    else:
        for outcome in outcomes:
            assert isinstance(outcome, DeliveryError)
            assert "before the producer was closed" in str(outcome)
            assert isinstance(outcome.__cause__, KILLED)
            # What was on the wire may be in the log, and what was not is not.
            assert outcome.possibly_written or stage != "in flight"
            assert not (outcome.possibly_written and stage == "linger")
    assert len(told) == 3
    # From Python 3.12 on gathering what is done takes no turn of the loop, in which alone the task can end.
    await until(lambda: not senders())
    await assert_dead(producer, KILLED)


async def _wait_for(delivery: DeliveryFuture) -> Any:
    return await delivery


async def test_every_task_is_cancelled(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    await producer.start()
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    tasks: list[asyncio.Future[Any]] = []
    tasks += [spawn(producer.send_and_wait("one", b"%d" % n)) for n in range(20)]
    await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
    tasks += [spawn(producer.flush()), spawn(producer.send("unknown", b"v"))]
    await sleep(0)
    for task in tasks:
        task.cancel()
    kill_sender()
    async with within(PATIENCE):
        await gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    await until(lambda: not cluster.connections)
    await assert_dead(producer, KILLED)


async def test_the_sender_task_ends_by_a_bug(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Bug(Exception):
        pass

    producer = Producer(cluster.bootstrap_servers, linger_ms=0)
    await producer.start()
    await producer.partitions_for("one")
    break_core(producer._life.sender, Bug("of the core"))
    delivery = await producer.send("one", b"v")
    async with within(PATIENCE):
        with pytest.raises(DeliveryError) as caught:
            await delivery
    assert isinstance(caught.value.__cause__, Bug)
    assert producer.abandoned_records == 1
    await assert_dead(producer, Bug)
    assert any("sender task died" in record.getMessage() for record in caplog.records)


async def test_a_bug_that_raises_stop_iteration_ends_it_too(cluster: FakeCluster) -> None:
    """No future can have it as its exception: it must not be lost, or everybody would wait for ever."""
    producer = Producer(cluster.bootstrap_servers, linger_ms=0)
    await producer.start()
    await producer.partitions_for("one")
    break_core(producer._life.sender, StopIteration())
    delivery = await producer.send("one", b"v")
    async with within(PATIENCE):
        with pytest.raises(DeliveryError) as caught:
            await delivery
    assert isinstance(caught.value.__cause__, RuntimeError)
    await assert_dead(producer, RuntimeError)


async def test_dead_while_it_closes(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    await producer.start()
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    delivery = await producer.send("one", b"v")
    closing = spawn(producer.close())
    await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
    kill_sender()
    async with within(PATIENCE):
        await closing
    assert isinstance(delivery.exception(), DeliveryError)


# Cancellation of those who send


async def test_cancelling_one_who_awaits_a_delivery_ends_only_that_wait(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        delivery = await producer.send("one", b"v")
        one, other = (spawn(_wait_for(delivery)) for _ in range(2))
        await sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        await producer.flush()
        assert (await other).offset == 0
        assert (await delivery).offset == 0


async def test_senders_that_wait_for_room_are_cancelled(cluster: FakeCluster) -> None:
    """aiokafka#710, and the memory: nobody's place in the line and nobody's bytes are lost."""
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=20_000, batch_size=5_000, linger_ms=0, **EAGER
    ) as producer:
        await producer.partitions_for("one")
        stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        accepted = [await producer.send("one", b"x" * 4_900) for _ in range(4)]
        waiting = [spawn(producer.send("one", b"%03d" % n + b"y" * 4_800)) for n in range(60)]
        await sleep(0)
        for task in waiting[::3]:
            task.cancel()
        await gather(*waiting[::3], return_exceptions=True)
        stuck.cancel()
        cluster.faults.reset_connections()
        async with within(PATIENCE):
            late = await gather(*[task for n, task in enumerate(waiting) if n % 3])
            await gather(*accepted, *late)
        await until(lambda: producer.outstanding_bytes == 0)
        await assert_still_works(producer, cluster, "one")
    sent = [value[:3] for value in values(cluster, "one")[len(accepted) : -1] if value]
    assert_in_order(sent, [b"%03d" % n for n in range(60) if n % 3])


def close_the_leaders(cluster: FakeCluster) -> None:
    """The one that records went over, and no other: what is asked over those when it is gone must not be lost."""
    server, leader = cluster._server, cluster.leader("one", 0)
    assert server is not None
    latest = max(each for each, there in server._connections.items() if there._broker_id == leader)
    server._connections[latest].close(is_reset=False)


async def test_a_broker_that_closes_what_is_idle_is_no_alarm(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker's own connections.max.idle.ms: told at INFO, and the next record connects again."""
    caplog.set_level(logging.INFO, "aioproduce")
    async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        await producer.send_and_wait("one", b"before")
        await until(lambda: producer.metrics().value("requests-in-flight") == 0)
        caplog.clear()
        at_brokers(cluster, close_the_leaders)
        await until(lambda: "closed its connection while no request was in flight" in caplog.text)
        await assert_still_works(producer, cluster, "one")
    assert values(cluster, "one") == [b"before", b"good"]
    assert {record.levelname for record in caplog.records} == {"INFO"}, caplog.text
