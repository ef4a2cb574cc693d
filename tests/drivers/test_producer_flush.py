"""`flush()`, `try_send()`, `send_many()`, and waiting for room.

Scenarios of Kafka's own tests: KafkaProducerTest `flushCompleteSendOfInflightBatches`; BaseProducerSend `flush`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from aioproduce import DeliveryFuture, Producer, RecordMetadata
from aioproduce.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    MetadataTimeoutError,
    PartialSendError,
    ProducerError,
    SenderDiedError,
    SerializationError,
)
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import KILLED, assert_in_order, gather, kill_sender, sleep, spawn, within
from tests.drivers.producing import (
    FOREVER_MS,
    PATIENCE,
    assert_still_works,
    know_topic,
    let_the_sender_rest,
    until,
    values,
)

LINGERING: dict[str, Any] = {"linger_ms": FOREVER_MS, "delivery_timeout_ms": 2 * FOREVER_MS}


# flush()


async def test_flush_cuts_linger_short(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        for turn in range(3):
            deliveries = [await producer.send("t", b"%d" % n) for n in range(100)]
            assert not any(delivery.done() for delivery in deliveries)
            async with within(PATIENCE):
                await producer.flush()
            assert all(delivery.done() for delivery in deliveries)
            assert len(values(cluster)) == 100 * (turn + 1)


async def test_flush_of_nothing(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.flush()
        await producer.flush(0)
        await assert_still_works(producer, cluster)


async def test_flush_does_not_wait_for_what_came_after_it(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        before = await producer.send("one", b"before")
        flushing = spawn(producer.flush())
        await sleep(0)
        after = await producer.send("one", b"after")
        async with within(PATIENCE):
            await flushing
        assert before.done()
        if not after.done():  # else it went along in the same batch
            await producer.flush()
        assert (await after).offset == 1


async def test_what_is_sent_after_a_flush_lingers_again(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        await producer.send("one", b"first")
        await producer.flush()
        asked = cluster.requests.count(ApiKey.PRODUCE)
        delivery = await producer.send("one", b"second")
        await let_the_sender_rest()
        assert not delivery.done()
        assert cluster.requests.count(ApiKey.PRODUCE) == asked


async def test_flushes_at_the_same_time(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        await producer.send("t", b"v")
        async with within(PATIENCE):
            await gather(*[producer.flush() for _ in range(20)])
    assert values(cluster) == [b"v"]


@pytest.mark.parametrize("timeout", [0, 0.05])
async def test_a_flush_that_takes_too_long(cluster: FakeCluster, timeout: float) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        await producer.partitions_for("one")
        for broker in range(3):
            cluster.faults.stall(broker)
        delivery = await producer.send("one", b"v")
        for _ in range(3):
            with pytest.raises(FlushTimeoutError) as caught:
                await producer.flush(timeout)
            assert f"{timeout} s" in str(caught.value)
            assert "flush again" in str(caught.value)
            assert isinstance(caught.value, TimeoutError)
        assert not delivery.done()
        for broker in range(3):
            cluster.faults.resume(broker)
        async with within(PATIENCE):
            await producer.flush(PATIENCE)
        assert delivery.result().offset == 0
    assert values(cluster, "one") == [b"v"]


async def test_a_cancelled_flush_leaves_the_records_alone(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        delivery = await producer.send("one", b"v")
        flushing = spawn(producer.flush())
        await sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        async with within(PATIENCE):
            await producer.flush()
        assert delivery.result().offset == 0


async def test_flush_during_an_outage_ends_with_the_records(cluster: FakeCluster) -> None:
    """A failed record is settled: its own future has the error, `flush()` does not raise it."""
    async with Producer(
        cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=500
    ) as producer:
        await producer.send_and_wait("one", b"v")
        for broker in range(3):
            await cluster.stop_broker(broker)
        deliveries = [await producer.send("one", b"%d" % n) for n in range(10)]
        async with within(PATIENCE):
            await producer.flush()
        for delivery in deliveries:
            assert isinstance(delivery.exception(), DeliveryTimeoutError)


async def test_flush_during_an_outage_that_ends(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, reconnect_backoff_ms=1, retry_backoff_ms=1) as producer:
        await producer.send_and_wait("one", b"first")
        for broker in range(3):
            await cluster.stop_broker(broker)
        deliveries = [await producer.send("one", b"%d" % n) for n in range(10)]
        flushing = spawn(producer.flush())
        await let_the_sender_rest()
        assert not flushing.done()
        for broker in range(3):
            await cluster.start_broker(broker)
        async with within(PATIENCE):
            await flushing
        assert [delivery.result().offset for delivery in deliveries] == list(range(1, 11))


async def test_close_ends_a_flush(cluster: FakeCluster) -> None:
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    producer = Producer(cluster.bootstrap_servers)
    await producer.start()
    await producer.send("one", b"v")
    flushing = spawn(producer.flush())
    await until(lambda: cluster.requests.count(ApiKey.PRODUCE))
    assert not flushing.done()
    async with within(PATIENCE):
        await producer.close(0)
        await flushing


async def test_a_callback_may_flush_by_a_task(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        tasks: list[asyncio.Task[None]] = []

        def flush(metadata: RecordMetadata, error: BaseException | None) -> None:
            tasks.append(spawn(producer.flush()))

        await producer.send_and_wait("one", b"v", on_delivery=flush)
        await until(lambda: tasks)
        async with within(PATIENCE):
            await gather(*tasks)


async def test_what_is_flushed_has_had_its_callbacks(cluster: FakeCluster) -> None:
    """As in Java, where a batch counts as complete after its callbacks: the caller may look at what they did."""
    told: list[int] = []

    def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
        assert error is None
        told.append(metadata.offset)

    async with Producer(cluster.bootstrap_servers, linger_ms=1000) as producer:
        for round_of_ten in range(1, 20):
            for _ in range(10):
                await producer.send("one", b"v", on_delivery=on_delivery)
            await producer.flush()
            assert told == list(range(10 * round_of_ten))


# try_send()


async def test_try_send_asks_for_a_topic_that_it_does_not_know(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(MetadataTimeoutError) as caught:
            producer.try_send("one", b"too early")
        assert caught.value.topic == "one"
        assert caught.value.waited == 0
        assert "try again, or use send()" in str(caught.value)
        assert producer.outstanding_bytes == 0
        delivery: DeliveryFuture | None = None
        async with within(PATIENCE):
            while delivery is None:
                try:
                    delivery = producer.try_send("one", b"v", key=b"k", headers=[("h", b"1")], timestamp=5)
                except MetadataTimeoutError:
                    await sleep(0.001)
        assert await delivery == RecordMetadata("one", 0, 0, 5, 1, 1)
    assert [record[2:] for record in cluster.records("one")] == [(5, b"k", b"v", (("h", b"1"),))]


async def test_try_send_never_waits_for_room(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=40_000, batch_size=10_000, max_block_ms=FOREVER_MS
    ) as producer:
        await producer.partitions_for("one")
        cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        accepted: list[DeliveryFuture] = []

        def fill() -> None:
            while len(accepted) < 1000:
                accepted.append(producer.try_send("one", b"x" * 1000))

        for _ in range(3):
            with pytest.raises(BufferExhaustedError) as caught:
                fill()
            assert (caught.value.waited, caught.value.needed, caught.value.available) == (0, 10_000, 0)
            assert "use send()" in str(caught.value)
        assert producer.outstanding_bytes == 40_000
        assert 30 <= len(accepted) <= 40
        cluster.faults.clear()
        cluster.faults.reset_connections()
        async with within(PATIENCE):
            await gather(*accepted)
        await until(lambda: producer.outstanding_bytes == 0)
        await assert_still_works(producer, cluster, "one")
    assert len(values(cluster, "one")) == len(accepted) + 1


async def test_send_waits_for_room_in_line(cluster: FakeCluster) -> None:
    """More senders than the buffer has room for; each record is there once, in the order of the calls."""
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=20_000, batch_size=5_000, linger_ms=0
    ) as producer:
        tasks = [spawn(producer.send("one", b"%04d" % n + b"x" * 996)) for n in range(500)]
        async with within(PATIENCE):
            await gather(*await gather(*tasks))
        await until(lambda: producer.outstanding_bytes == 0)
    assert_in_order(
        [value[:4] for value in values(cluster, "one") if value], [b"%04d" % n for n in range(500)]
    )


async def test_no_room_in_time(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=20_000, batch_size=5_000, max_block_ms=100
    ) as producer:
        await know_topic(producer, "one")
        stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        accepted = [await producer.send("one", b"x" * 4_000) for _ in range(4)]
        with pytest.raises(BufferExhaustedError) as caught:
            await producer.send("one", b"x" * 4_000)
        assert caught.value.needed == 5_000
        assert caught.value.waited >= 0.09
        for word in ("buffer.memory=20000", "max.block.ms"):
            assert word in str(caught.value)
        with pytest.raises(BufferExhaustedError):
            await producer.send("one", b"x" * 4_000, timeout=0)
        stuck.cancel()
        cluster.faults.reset_connections()
        await gather(*accepted)
        await assert_still_works(producer, cluster, "one")
    assert len(values(cluster, "one")) == 5


# send_many()


async def test_many_with_and_without_keys(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        plain = await producer.send_many("one", [b"0", b"1"])
        keyed = await producer.send_many("one", (b"%d" % n for n in (2, 3)), keys=iter([b"a", None]))
        rest = await producer.send_many(
            "one", [None], partition=0, timestamp=7, headers=(pair for pair in [("h", b"1")])
        )
        assert [each.offset for each in await plain] == [0, 1]
        assert [each.offset for each in await keyed] == [2, 3]
        assert [each.timestamp for each in await rest] == [7]
        nothing = await producer.send_many("one", [])
        assert len(nothing) == 0
        assert await nothing == []
    assert [(record.key, record.value) for record in cluster.records("one")] == [
        (None, b"0"),
        (None, b"1"),
        (b"a", b"2"),
        (None, b"3"),
        (None, None),
    ]
    assert cluster.records("one")[-1].headers == (("h", b"1"),)


async def test_headers_of_many_are_those_of_each(cluster: FakeCluster) -> None:
    """An iterator of headers is read once, not by the first record."""
    async with Producer(cluster.bootstrap_servers) as producer:
        await (await producer.send_many("one", [b"0", b"1", b"2"], headers=iter([("h", b"1")])))
    assert [record.headers for record in cluster.records("one")] == [(("h", b"1"),)] * 3


async def test_the_handle_is_a_sequence_of_deliveries(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        told: list[RecordMetadata] = []
        many = await producer.send_many(
            "one", [b"%d" % n for n in range(5)], on_delivery=lambda metadata, _: told.append(metadata)
        )
        assert len(many) == 5
        assert "0 of 5" in repr(many)
        await producer.flush()
        metadata = await many
        assert await many == metadata, "as often as one likes"
        assert [await each for each in many] == metadata == told
        assert [await each for each in many[1:3]] == metadata[1:3]
        assert await many[-1] == metadata[-1]
        assert await many.outcomes() == metadata
        assert "5 of 5" in repr(many)


@pytest.mark.parametrize(
    ("keys", "sent"), [([], 0), ([b"k"], 1), ([b"k"] * 3, 2)], ids=["none", "fewer", "more"]
)
async def test_as_many_keys_as_values(cluster: FakeCluster, keys: list[bytes], sent: int) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("one", [b"0", b"1"], keys=keys)
        assert caught.value.index == len(caught.value.deliveries) == sent
        assert isinstance(caught.value.__cause__, ValueError)
        assert "as many keys as values" in str(caught.value)
        await gather(*caught.value.deliveries)
        await assert_still_works(producer, cluster, "one")
    assert values(cluster, "one") == [*[b"0", b"1"][:sent], b"good"]


async def test_an_iterable_that_raises(cluster: FakeCluster) -> None:
    def broken() -> Iterator[bytes]:
        yield b"0"
        yield b"1"
        raise OSError("the file is gone")

    sources: list[tuple[Iterable[Any], Iterable[Any] | None]] = [
        (broken(), None),
        (iter([b"0", b"1", b"2"]), broken()),
    ]
    async with Producer(cluster.bootstrap_servers, **LINGERING) as producer:
        for source, keys in sources:
            with pytest.raises(PartialSendError, match="the file is gone") as caught:
                await producer.send_many("one", source, keys=keys)
            assert isinstance(caught.value.__cause__, OSError)
            assert caught.value.index == len(caught.value.deliveries) == 2
        await producer.flush()
        assert [each.offset for each in await gather(*caught.value.deliveries)] == [2, 3]
    assert values(cluster, "one") == [b"0", b"1"] * 2


@pytest.mark.parametrize("wrong", [5, None], ids=repr)
async def test_what_cannot_be_iterated(cluster: FakeCluster, wrong: Any) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="not iterable"):
            await producer.send_many("one", wrong)
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("one", b"bytes are numbers to Python")  # type: ignore[arg-type]  # that is it
        assert isinstance(caught.value.__cause__, SerializationError)
        assert list(caught.value.deliveries) == []
        await assert_still_works(producer, cluster, "one")


async def test_no_room_in_the_middle_of_many(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=20_000, batch_size=5_000, max_block_ms=100
    ) as producer:
        await know_topic(producer, "one")
        stuck = cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        with pytest.raises(PartialSendError) as caught:
            await producer.send_many("one", [b"x" * 4_000] * 10)
        assert isinstance(caught.value.__cause__, BufferExhaustedError)
        assert caught.value.index == len(caught.value.deliveries) == 4
        stuck.cancel()
        cluster.faults.reset_connections()
        await gather(*caught.value.deliveries)
    assert len(values(cluster, "one")) == 4


async def test_some_of_many_fail(cluster: FakeCluster) -> None:
    """Awaiting the handle raises once every record is settled; `outcomes()` tells of each."""
    async with Producer(cluster.bootstrap_servers, batch_size=0) as producer:
        await producer.partitions_for("t")
        cluster.configure_topic("t", max_message_bytes=200)
        many = await producer.send_many("t", [b"0", b"x" * 500, b"2"])
        with pytest.raises(ProducerError, match="MESSAGE_TOO_LARGE"):
            await many
        assert all(each.done() for each in many)
        outcomes = await many.outcomes()
        assert [isinstance(each, RecordMetadata) for each in outcomes] == [True, False, True]
    assert sorted(values(cluster), key=str) == [b"0", b"2"]


# The sender's death is in test_producer_recovery.py; here, what it means for those who wait.


async def test_a_flush_and_a_send_that_wait_when_the_sender_dies(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap_servers, buffer_memory=20_000, batch_size=5_000)
    await producer.start()
    await producer.partitions_for("one")
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
    accepted = [await producer.send("one", b"x" * 4_000) for _ in range(4)]
    cluster.faults.drop_answers(api=ApiKey.METADATA, times=None)
    waiting = [
        spawn(producer.send("one", b"x" * 4_000)),
        spawn(producer.send("unknown", b"v")),
        spawn(producer.flush()),
        spawn(producer.check(PATIENCE)),
    ]
    await let_the_sender_rest()
    kill_sender()
    async with within(PATIENCE):
        outcomes = await gather(*waiting, return_exceptions=True)
        await producer.close()
    for outcome in outcomes:
        assert isinstance(outcome, SenderDiedError)
        assert isinstance(outcome.__cause__, KILLED)
    assert all(delivery.exception() is not None for delivery in accepted)
