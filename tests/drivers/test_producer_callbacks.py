"""Who is told what became of a record: `on_delivery`, interceptors, `on_delivery_error`; nothing they do is fatal.

Scenarios of Kafka's own tests: KafkaProducerTest `interceptorPartitionSetOnTooLargeRecord`,
`callbackAndInterceptorHandleError`, `interceptorConstructClose`; ProducerInterceptorsTest `onSendChain`,
`onAcknowledgementChain`, `onAcknowledgementWithErrorChain`; SenderTest `appendInExpiryCallback`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
from typing import Any

import pytest

from aioproduce import DeliveryFuture, Producer, ProducerRecord, RecordMetadata
from aioproduce.errors import (
    BrokerRejectedError,
    BufferExhaustedError,
    ConfigError,
    DeliveryTimeoutError,
    InvalidRecordError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
)
from aioproduce.testing import FakeCluster
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import HANDLE_CANCELLED, gather, loop_here, sleep, spawn, within
from tests.drivers.producing import FOREVER_MS, PATIENCE, assert_still_works, know_topic, until, values


class Told:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[RecordMetadata, BaseException | None]] = []

    def __call__(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.outcomes.append((metadata, error))


# on_delivery


async def test_once_per_record_in_order_with_the_metadata_of_its_future(cluster: FakeCluster) -> None:
    told = Told()
    async with Producer(cluster.bootstrap_servers, batch_size=500) as producer:
        deliveries = [await producer.send("one", b"%d" % n, on_delivery=told) for n in range(200)]
        deliveries.append(producer.try_send("one", b"200", on_delivery=told))
        deliveries += list(await producer.send_many("one", [b"201", b"202"], on_delivery=told))
        deliveries.append(await producer.send(ProducerRecord(topic="one"), on_delivery=told))
        metadata = await gather(*deliveries)
        waited = await producer.send_and_wait("one", None, on_delivery=told)
    assert told.outcomes == [(each, None) for each in [*metadata, waited]]
    assert [each.offset for each in metadata] == list(range(204))


async def test_it_is_called_on_the_loop_after_acceptance(cluster: FakeCluster) -> None:
    seen: list[object] = []
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send("one", b"v", on_delivery=lambda *_: seen.append(loop_here()))
        seen.append("accepted")
        await producer.flush()
    assert seen == ["accepted", loop_here()]


async def test_a_failure_is_told_with_no_offset_and_the_error_of_the_future(cluster: FakeCluster) -> None:
    told = Told()
    cluster.faults.fail_produce(87, message="no", topic="one")  # INVALID_RECORD
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        deliveries = [
            await producer.send("one", b"xyz", key=b"k", timestamp=5, on_delivery=told) for _ in range(3)
        ]
        await producer.flush()
        for delivery, (metadata, error) in zip(deliveries, told.outcomes, strict=True):
            assert metadata == RecordMetadata("one", 0, -1, 5, 1, 3)
            assert isinstance(error, BrokerRejectedError)
            assert error.code == 87
            assert (type(error), str(error)) == (
                type(delivery.exception()),
                str(delivery.exception()),
            )
        await assert_still_works(producer, cluster, "one")


async def test_a_record_that_was_refused_is_told_by_the_exception_only(cluster: FakeCluster) -> None:
    told = Told()
    async with Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(InvalidRecordError):
            await producer.send("t", b"v", partition=3, on_delivery=told)
        with pytest.raises(InvalidRecordError):
            await producer.send("a b", b"v", on_delivery=told)
        await assert_still_works(producer, cluster)
    assert told.outcomes == []


async def test_with_acks_0_it_is_told_no_offset(cluster: FakeCluster) -> None:
    told = Told()
    async with Producer(cluster.bootstrap_servers, acks=0) as producer:
        await producer.send_and_wait("one", b"v", timestamp=9, on_delivery=told)
        await producer.flush()
    assert told.outcomes == [(RecordMetadata("one", 0, -1, 9, -1, 1), None)]


async def test_an_error_in_it_is_logged_and_nothing_else(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    def fails(metadata: RecordMetadata, error: BaseException | None) -> None:
        told(metadata, error)
        raise KeyError(f"of offset {metadata.offset}")

    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        deliveries = [await producer.send("one", b"v", on_delivery=fails) for _ in range(3)]
        deliveries.append(await producer.send("one", b"v", on_delivery=told))
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2, 3]
        await assert_still_works(producer, cluster, "one")
    assert len(told.outcomes) == 4
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 3
    for offset, record in enumerate(logged):
        assert record.name.startswith("aioproduce")
        assert "callback" in record.getMessage()
        assert "one-0" in record.getMessage()
        assert record.exc_info is not None
        assert f"of offset {offset}" in str(record.exc_info[1])


async def test_a_callback_that_is_none_is_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: Any = "not a callable"
    async with Producer(cluster.bootstrap_servers) as producer:
        assert (await producer.send_and_wait("one", b"v", on_delivery=wrong)).offset == 0
        await producer.flush()
        await assert_still_works(producer, cluster, "one")
    assert any("callback" in record.getMessage() for record in caplog.records)


async def test_it_may_send_again(cluster: FakeCluster) -> None:
    """SenderTest `appendInExpiryCallback`: a chain of records, each sent by the callback of the one before."""
    async with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        deliveries: list[DeliveryFuture] = []

        def send_next(metadata: RecordMetadata, error: BaseException | None) -> None:
            if metadata.offset < 20:
                value = b"%d" % (metadata.offset + 1)
                deliveries.append(producer.try_send("one", value, on_delivery=send_next))

        deliveries.append(await producer.send("one", b"0", on_delivery=send_next))
        async with within(PATIENCE):
            await until(lambda: len(deliveries) == 21)
            await gather(*deliveries)
    assert values(cluster, "one") == [b"%d" % n for n in range(21)]


async def test_a_failed_record_may_be_sent_again_from_its_callback(cluster: FakeCluster) -> None:
    async with Producer(
        cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=500
    ) as producer:
        await producer.send_and_wait("one", b"first")
        again: list[DeliveryFuture] = []
        for broker in range(3):
            cluster.faults.stall(broker)

        def resend(metadata: RecordMetadata, error: BaseException | None) -> None:
            assert isinstance(error, DeliveryTimeoutError)
            for broker in range(3):
                cluster.faults.resume(broker)
            again.append(producer.try_send("one", b"again"))

        delivery = await producer.send("one", b"v", on_delivery=resend)
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        async with within(PATIENCE):
            await until(lambda: again)
            await again[0]
    assert values(cluster, "one")[-1] == b"again"


async def test_it_may_start_tasks_that_wait(cluster: FakeCluster) -> None:
    """With the buffer full, the task waits for the very memory that the settled batches give back."""
    async with Producer(
        cluster.bootstrap_servers, buffer_memory=20_000, batch_size=5_000, linger_ms=0
    ) as producer:
        tasks: list[asyncio.Task[RecordMetadata]] = []

        def send_two(metadata: RecordMetadata, error: BaseException | None) -> None:
            sends = [producer.send_and_wait("one", b"y" * 4_000) for _ in range(2)]
            tasks.extend(spawn(send) for send in sends)

        deliveries = [await producer.send("one", b"x" * 4_000, on_delivery=send_two) for _ in range(10)]
        async with within(PATIENCE):
            await gather(*deliveries)
            await until(lambda: len(tasks) == 20)
            await gather(*tasks)
        await until(lambda: producer.outstanding_bytes == 0)
    assert len(values(cluster, "one")) == 30


async def test_it_follows_a_record_through_the_split_of_its_batch(cluster: FakeCluster) -> None:
    told = Told()
    cluster.configure_topic("one", max_message_bytes=1_000)
    async with Producer(cluster.bootstrap_servers, batch_size=100_000, linger_ms=FOREVER_MS) as producer:
        deliveries = [
            await producer.send("one", b"%02d" % n + b"x" * 98, on_delivery=told) for n in range(50)
        ]
        await producer.flush()
        metadata = await gather(*deliveries)
    assert told.outcomes == [(each, None) for each in metadata]
    assert [each.offset for each in metadata] == list(range(50))
    assert [value[:2] for value in values(cluster, "one") if value] == [b"%02d" % n for n in range(50)]


# Failures that nobody asked about


async def test_failures_that_nobody_awaits_are_counted_logged_and_offered(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    offered: list[BaseException] = []

    def offer(error: BaseException) -> None:
        offered.append(error)
        raise KeyError("of on_delivery_error itself")

    cluster.faults.fail_produce(87, topic="one", times=None)
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS, on_delivery_error=offer) as producer:
        watched = [await producer.send("one", b"v") for _ in range(10)]
        kept = watched[0]
        watched.clear()
        await producer.flush()
        assert isinstance(kept.exception(), BrokerRejectedError)
        del kept
        gc.collect()
        await until(lambda: producer.unobserved_failures == 9)
        for _ in range(20):
            await producer.send("one", b"v")
            await producer.flush()
        gc.collect()
        await until(lambda: producer.unobserved_failures == 29)
        told = Told()
        await producer.send("one", b"v", on_delivery=told)
        await producer.flush()
        gc.collect()
        assert len(told.outcomes) == 1
    assert producer.unobserved_failures == 29, "a callback is told of the failure: that is somebody"
    assert len(offered) == 21
    assert all(isinstance(error, BrokerRejectedError) and error.code == 87 for error in offered)
    warnings = [record for record in caplog.records if "nobody awaited" in record.getMessage()]
    assert len(warnings) == 1, "once per topic and error, at a bounded rate"
    assert "9 record(s) for one-0" in warnings[0].getMessage()
    assert any("on_delivery_error failed" in record.getMessage() for record in caplog.records)


async def test_a_cancelled_handle_says_nothing_of_the_record(cluster: FakeCluster) -> None:
    told = Told()
    async with Producer(cluster.bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        delivery = await producer.send("one", b"v", on_delivery=told)
        waiting = spawn(_wait_for(delivery))
        await sleep(0)
        delivery.cancel()
        with pytest.raises(HANDLE_CANCELLED):
            await waiting
        await producer.flush()
    assert delivery.cancelled()
    assert [metadata.offset for metadata, _ in told.outcomes] == [0]
    assert values(cluster, "one") == [b"v"]


async def _wait_for(delivery: DeliveryFuture) -> RecordMetadata:
    return await delivery


# Interceptors


class Marks:
    """Appends a header to each record, and remembers what it saw."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[ProducerRecord] = []
        self.told = Told()

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return dataclasses.replace(record, headers=[*(record.headers or ()), (self.name, b"")])

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.told(metadata, error)


async def test_each_interceptor_sees_what_the_one_before_made(cluster: FakeCluster) -> None:
    first, second = Marks("first"), Marks("second")
    async with Producer(
        cluster.bootstrap_servers, interceptors=[first, second], value_serializer=str.encode
    ) as producer:
        told = Told()
        sent = [
            await (await producer.send("one", "0", key=b"k", timestamp=3, on_delivery=told)),
            await producer.try_send("one", "1", headers=[("own", b"1")]),
            await producer.send_and_wait(ProducerRecord(topic="one", value="2")),
            *(await (await producer.send_many("one", ["3"]))),
        ]
        await producer.flush()
    assert [record.value for record in first.sent] == ["0", "1", "2", "3"], "before the serializer"
    assert first.sent[0] == ProducerRecord(topic="one", value="0", key=b"k", timestamp=3)
    assert [list(record.headers or ()) for record in second.sent][1] == [("own", b"1"), ("first", b"")]
    assert [record.headers[-2:] for record in cluster.records("one")] == [
        (("first", b""), ("second", b""))
    ] * 4
    expected = [(metadata, None) for metadata in sent]
    assert first.told.outcomes == second.told.outcomes == expected
    assert told.outcomes == expected[:1]


async def test_an_interceptor_may_redirect_a_record(cluster: FakeCluster) -> None:
    class Redirects:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return dataclasses.replace(record, topic="one", partition=0)

    async with Producer(cluster.bootstrap_servers, interceptors=[Redirects()]) as producer:
        assert (await producer.send_and_wait("t", b"v", partition=2)).topic == "one"
    assert values(cluster, "one") == [b"v"]
    assert values(cluster) == []


async def test_interceptors_that_fail_are_logged_and_passed_over(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyError("on_send")

        def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
            raise KeyError("on_acknowledgement")

    class Forgets:
        def on_send(self, record: ProducerRecord) -> None:
            return None

    last = Marks("last")
    async with Producer(cluster.bootstrap_servers, interceptors=[Raises(), Forgets(), last]) as producer:
        metadata = await producer.send_and_wait("one", b"v")
        await producer.flush()
    assert [record.value for record in last.sent] == [b"v"]
    assert last.told.outcomes == [(metadata, None)]
    assert values(cluster, "one") == [b"v"]
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any("on_send failed" in message for message in messages)
    assert any("NoneType, not a ProducerRecord" in message for message in messages)
    assert any("on_acknowledgement failed" in message for message in messages)


async def test_interceptors_hear_of_failures_and_of_refusals(cluster: FakeCluster) -> None:
    """A record that was never queued has partition -1, unless one was asked for (`interceptorPartitionSet...`)."""
    marks = Marks("m")
    async with Producer(
        cluster.bootstrap_servers,
        interceptors=[marks],
        max_block_ms=300,
        buffer_memory=20_000,
        batch_size=5_000,
        max_request_size=10_000,
        retry_backoff_ms=1,
        retry_backoff_max_ms=1,
    ) as producer:
        await know_topic(producer, "t")
        refusals: list[tuple[dict[str, Any], type[Exception], int]] = [
            ({"topic": "topic abc", "value": b"v"}, InvalidRecordError, -1),
            ({"topic": "t", "value": "text"}, InvalidRecordError, -1),
            ({"topic": "t", "value": b"x" * 20_000}, RecordTooLargeError, -1),
            ({"topic": "t", "value": b"x" * 20_000, "partition": 1}, RecordTooLargeError, 1),
            ({"topic": "t", "value": b"v", "partition": 3}, PartitionOutOfRangeError, 3),
            ({"topic": "unknown", "value": b"v"}, MetadataTimeoutError, -1),
        ]
        for arguments, error, partition in refusals:
            with pytest.raises(error) as caught:
                await producer.send(**arguments)
            metadata, told = marks.told.outcomes.pop()
            assert told is caught.value
            assert metadata == RecordMetadata(arguments["topic"], partition, -1, -1, -1, -1)
            with pytest.raises(error) as caught_at_once:
                producer.try_send(**arguments)
            assert marks.told.outcomes.pop()[1] is caught_at_once.value
        cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=None)
        accepted = [await producer.send("t", b"x" * 4_500, partition=0) for _ in range(4)]
        with pytest.raises(BufferExhaustedError):
            await producer.send("t", b"x" * 4_500, partition=0)
        assert isinstance(marks.told.outcomes.pop()[1], BufferExhaustedError)
        cluster.faults.clear()
        cluster.faults.reset_connections()
        await gather(*accepted)
        await producer.flush()
        assert [error for _, error in marks.told.outcomes] == [None] * 4
        cluster.faults.fail_produce(87)
        with pytest.raises(BrokerRejectedError):
            await producer.send_and_wait("t", b"v", partition=1)
        await producer.flush()
        metadata, told = marks.told.outcomes[-1]
        assert (metadata.partition, metadata.offset) == (1, -1)
        assert isinstance(told, BrokerRejectedError)


def test_what_is_no_interceptor() -> None:
    wrong: Any
    for wrong in ([object()], ["com.example.Interceptor"], 5):
        with pytest.raises(ConfigError):
            Producer("localhost:1", interceptors=wrong)
