"""`close()`: it sends what was accepted, is bounded, may come at any moment and twice, and leaves nothing behind.

Scenarios of Kafka's own tests: KafkaProducerTest `closeShouldBeIdempotent`,
`shouldCloseProperlyAndThrowIfInterrupted`, `closeIsForcedOnPendingInitProducerId`;
BaseProducerSend `close`, `closeWithZeroTimeoutFromCallerThread`, `closeWithZeroTimeoutFromSenderThread`;
aiokafka#1101 (`stop()` hangs with the broker down).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aioproduce import DeliveryFuture, Producer, RecordMetadata
from aioproduce.errors import (
    DeliveryError,
    DeliveryTimeoutError,
    ForcedCloseError,
    ProducerClosedError,
)
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import all_tasks, gather, kill_sender, senders, sleep, spawn, wait_for, within
from tests.drivers.producing import FOREVER_MS, PATIENCE, closed_port, silent_port, until, values


def assert_told_once(told: list[Any], delivery: DeliveryFuture) -> None:
    """The delivery's callback was called once, with the delivery's own error."""
    [(metadata, error)] = told
    assert (metadata.topic, metadata.partition, metadata.offset) == (delivery.topic, delivery.partition, -1)
    assert (type(error), str(error)) == (type(delivery.exception()), str(delivery.exception()))


async def test_close_sends_what_was_accepted(cluster: FakeCluster) -> None:
    """Though it would linger for an hour."""
    producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    await producer.start()
    deliveries = [await producer.send("t", b"%d" % n) for n in range(1000)]
    assert not any(delivery.done() for delivery in deliveries)
    await wait_for(producer.close(), PATIENCE)
    assert all(delivery.done() and delivery.exception() is None for delivery in deliveries)
    assert len(values(cluster)) == 1000
    assert producer.outstanding_bytes == 0


async def test_who_gave_the_loop_its_turn_finds_it_closed(cluster: FakeCluster) -> None:
    """A task that sends and sends lets others have their turn now and then; what it sends next is refused."""
    producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    await producer.start()
    await producer.partitions_for("one")
    accepted: list[DeliveryFuture] = []
    at_close: list[int] = []

    async def close() -> None:
        at_close.append(len(accepted))
        await producer.close()

    async def send() -> None:
        while True:
            accepted.append(await producer.send("one", b"v"))

    closing = spawn(close())
    with pytest.raises(ProducerClosedError):
        await send()
    assert at_close == [len(accepted)]
    await closing
    assert len(values(cluster, "one")) == len(accepted)


async def test_twice_and_at_the_same_time(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    await producer.start()
    delivery = await producer.send("one", b"v")
    await gather(*[producer.close() for _ in range(5)])
    assert delivery.result().offset == 0
    await producer.close()
    await producer.close(0)
    assert "closed" in repr(producer)


async def test_a_second_close_may_be_less_patient(cluster: FakeCluster) -> None:
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    producer = Producer(cluster.bootstrap_servers, linger_ms=0)
    await producer.start()
    delivery = await producer.send("one", b"v")
    await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
    patient = spawn(producer.close())
    await sleep(0)
    assert not patient.done()
    await producer.close(0)
    await patient
    assert isinstance(delivery.exception(), ForcedCloseError)


@pytest.mark.parametrize("turns", range(0, 48, 3))
@pytest.mark.parametrize("timeout", [None, 0])
async def test_at_any_moment_of_the_start(cluster: FakeCluster, turns: int, timeout: float | None) -> None:
    """Sockets on their way up are where loops differ: uvloop closes some of them without telling anyone."""
    for extra in range(3):
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        sending = spawn(producer.send("t", b"v"))
        for _ in range(turns + extra):
            await sleep(0)
        async with within(PATIENCE):
            await producer.close(timeout)
        [outcome] = await gather(sending, return_exceptions=True)
        if isinstance(outcome, DeliveryFuture):
            assert outcome.done()
            outcome.exception()
        else:
            assert isinstance(outcome, ProducerClosedError)
        assert producer.outstanding_bytes == 0


async def test_right_after_metadata_many_times(cluster: FakeCluster) -> None:
    for _ in range(20):
        async with within(PATIENCE), Producer(cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")


# Bounded


@pytest.mark.parametrize("timeout", [0, 0.05])
@pytest.mark.parametrize("stage", ["producer id", "produce", "linger"])
async def test_what_is_not_acknowledged_in_time_fails(
    cluster: FakeCluster, timeout: float, stage: str
) -> None:
    """The brokers' sockets stay open and nothing is answered any more."""
    producer = Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS if stage == "linger" else 0)
    if stage == "producer id":
        cluster.faults.drop_answers(api=ApiKey.INIT_PRODUCER_ID, times=None)
    await producer.start()
    await producer.partitions_for("one")
    if stage == "produce":
        await producer.send_and_wait("one", b"before")
    if stage == "linger":
        await producer.send("one", b"before")
        await producer.flush()
    asked = cluster.requests.count(ApiKey.PRODUCE)
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    told: list[tuple[RecordMetadata, BaseException | None]] = []
    delivery = await producer.send("one", b"v", on_delivery=lambda *outcome: told.append(outcome))
    if stage == "produce":
        await until(lambda: cluster.requests.count(ApiKey.PRODUCE) > asked)
    async with within(PATIENCE):
        await producer.close(timeout)
    error = delivery.exception()
    assert isinstance(error, ForcedCloseError)
    assert error.topic_partition == ("one", 0)
    # What was on the wire may be in the log; what was not is not. A patient close sends what lingers.
    was_on_the_wire = stage == "produce" or (stage == "linger" and timeout > 0)
    assert error.possibly_written == was_on_the_wire
    assert (b"v" in values(cluster, "one")) == was_on_the_wire
    assert_told_once(told, delivery)
    assert (producer.outstanding_bytes, producer.outstanding_records, producer.abandoned_records) == (0, 0, 1)


@pytest.mark.parametrize("takes_connections", [True, False], ids=["connects", "does not connect"])
@pytest.mark.parametrize("timeout", [None, 0, 0.05])
async def test_in_a_black_hole(nothing_left: None, takes_connections: bool, timeout: float | None) -> None:
    with silent_port(takes_connections=takes_connections) as address:
        producer = Producer(address)
        await producer.start()
        waiting = spawn(producer.send("t", b"v"))
        await sleep(0.02)  # into the midst of connecting; whatever is there by then must go
        async with within(PATIENCE):
            await producer.close(timeout)
        with pytest.raises(ProducerClosedError):
            await waiting


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
async def test_with_every_broker_gone(cluster: FakeCluster, idempotent: bool) -> None:
    """aiokafka#1101. Without a time-out of its own, `delivery.timeout.ms` is the bound."""
    producer = Producer(
        cluster.bootstrap_servers,
        enable_idempotence=idempotent,
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=500,
    )
    await producer.start()
    await producer.send_and_wait("one", b"before")
    for broker in range(3):
        await cluster.stop_broker(broker)
    deliveries = [await producer.send("one", b"%d" % n) for n in range(100)]
    async with within(PATIENCE):
        await producer.close()
    for delivery in deliveries:
        assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert values(cluster, "one") == [b"before"]
    assert producer.outstanding_bytes == 0


async def test_stalled_brokers_with_bytes_still_unsent(cluster: FakeCluster) -> None:
    """More than the kernel takes: a polite close of the transport would wait for the peer for ever."""
    producer = Producer(
        cluster.bootstrap_servers, batch_size=1_000_000, linger_ms=0, max_request_size=10_000_000
    )
    await producer.start()
    await producer.send_and_wait("one", b"before")
    for broker in range(3):
        cluster.faults.stall(broker)
    deliveries = [await producer.send("one", b"x" * 900_000) for _ in range(30)]
    async with within(PATIENCE):
        await producer.close(0.05)
    assert {type(delivery.exception()) for delivery in deliveries} == {ForcedCloseError}
    assert producer.outstanding_bytes == 0


# From within


@pytest.mark.parametrize("timeout", [None, 0])
async def test_from_a_delivery_callback(cluster: FakeCluster, timeout: float | None) -> None:
    """BaseProducerSend `closeWithZeroTimeoutFromSenderThread`: the callback cannot wait, but its task can."""
    producer = Producer(cluster.bootstrap_servers, linger_ms=0, max_in_flight_requests_per_connection=1)
    await producer.start()
    tasks: list[asyncio.Task[None]] = []

    def close(metadata: RecordMetadata, error: BaseException | None) -> None:
        tasks.append(spawn(producer.close(timeout)))

    deliveries = [await producer.send("one", b"%d" % n, on_delivery=close) for n in range(3)]
    async with within(PATIENCE):
        await gather(*deliveries, return_exceptions=True)
        await until(lambda: len(tasks) == 3)
        await gather(*tasks)
    assert producer.outstanding_bytes == 0


async def test_the_body_of_async_with_raises(cluster: FakeCluster) -> None:
    deliveries: list[DeliveryFuture] = []

    async def body() -> None:
        async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            deliveries.append(await producer.send("one", b"v"))
            raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        await body()
    assert deliveries[0].result().offset == 0
    assert values(cluster, "one") == [b"v"]


async def test_leaving_async_with_after_close(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("one", b"v")
        await producer.close()
    assert values(cluster, "one") == [b"v"]


# Cancelled


async def closing_with_something_stuck(
    cluster: FakeCluster, told: list[Any]
) -> tuple[Producer, DeliveryFuture, asyncio.Task[None]]:
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    producer = Producer(cluster.bootstrap_servers, linger_ms=0)
    await producer.start()
    delivery = await producer.send("one", b"v", on_delivery=lambda *outcome: told.append(outcome))
    await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
    closing = spawn(producer.close())
    await sleep(0)
    assert not closing.done()
    return producer, delivery, closing


async def test_a_cancelled_close_gives_up_and_leaves_nothing(cluster: FakeCluster) -> None:
    told: list[Any] = []
    producer, delivery, closing = await closing_with_something_stuck(cluster, told)
    others = all_tasks()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert isinstance(delivery.exception(), ForcedCloseError)
    await producer.close()  # at once: there is nothing left to wait for
    await until(lambda: not senders())
    assert all_tasks() <= others
    await until(lambda: not cluster.connections)
    assert_told_once(told, delivery)
    assert (producer.outstanding_bytes, producer.abandoned_records) == (0, 1)


async def test_a_close_that_times_out_by_wait_for(cluster: FakeCluster) -> None:
    told: list[Any] = []
    _, delivery, closing = await closing_with_something_stuck(cluster, told)
    with pytest.raises(TimeoutError):
        await wait_for(closing, 0.02)
    assert isinstance(delivery.exception(), ForcedCloseError)
    await until(lambda: not cluster.connections)
    assert_told_once(told, delivery)


@pytest.mark.parametrize("is_sender_first", [True, False], ids=["sender first", "close first"])
async def test_everything_is_cancelled_while_it_closes(cluster: FakeCluster, is_sender_first: bool) -> None:
    """What asyncio.run() does at its end, to the sender task as to the one that closes: all is settled and told."""
    told: list[Any] = []
    producer, delivery, closing = await closing_with_something_stuck(cluster, told)
    ways: list[Callable[[], object]] = [kill_sender, closing.cancel]
    for cancel in ways if is_sender_first else reversed(ways):
        cancel()
    await gather(closing, return_exceptions=True)
    await until(lambda: not senders())
    await until(lambda: not cluster.connections)
    assert isinstance(delivery.exception(), DeliveryError)
    assert_told_once(told, delivery)
    with pytest.raises((ProducerClosedError, RuntimeError)):
        await producer.send("one", b"v")


def test_a_program_that_forgets_to_close() -> None:
    """asyncio.run() cancels what is left: no hang, and every delivery knows."""
    found: list[Any] = []

    async def main() -> None:
        with closed_port() as address:
            producer = Producer(address)
            await producer.start()
            found.append(spawn(producer.send("t", b"v")))
            await sleep(0)

    asyncio.run(main())
    assert found[0].cancelled()
