"""What threads send is in the log where their futures say, in order for each thread; bad input is refused."""

from __future__ import annotations

import sys
import threading
import weakref
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import aioproduce
from aioproduce import BlockingProducer, ProducerRecord
from aioproduce.errors import (
    BrokerRejectedError,
    ConfigError,
    InvalidHeadersError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    MetadataTimeoutError,
    NotStartedError,
    PartialSendError,
    PartitionerError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
)
from tests.blocking.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.blocking.threads import ThreadedCluster


def test_its_fields_are_in_slots_and_users_may_add_theirs() -> None:
    producer = BlockingProducer("localhost:9092")
    # Interpreted, the base has no slots, and one field of its own.
    assert not vars(producer).keys() - {"_hand_over"}
    producer.remark = "kept"  # type: ignore[attr-defined]
    assert vars(producer)["remark"] == "kept"
    assert weakref.ref(producer)() is producer


def test_each_record_is_where_its_future_says(cluster: ThreadedCluster) -> None:
    with BlockingProducer(cluster.bootstrap_servers, linger_ms=0) as producer:
        plain = producer.send("t", b"plain")
        full = producer.send(
            "t", b"full", b"key", partition=2, timestamp=1234, headers=[("h", b"x"), ("n", None)]
        )
        dated = producer.send("t", None, key=b"key", timestamp=datetime(2001, 2, 3, tzinfo=UTC))
        whole = producer.send(ProducerRecord(topic="t", value=b"whole", partition=1))
        copied = producer.send("t", bytearray(b"copied"))
        told = [each.result() for each in (plain, full, dated, whole, copied)]

    found = {(record.partition, record.offset): record for record in cluster.records()}
    assert len(found) == 5
    records = [found[metadata.partition, metadata.offset] for metadata in told]
    assert [record.value for record in records] == [b"plain", b"full", None, b"whole", b"copied"]
    assert records[1].key == b"key"
    assert list(records[1].headers) == [("h", b"x"), ("n", None)]
    assert (told[1].partition, told[1].timestamp, records[1].timestamp) == (2, 1234, 1234)
    assert told[2].timestamp == records[2].timestamp == 981_158_400_000
    assert (told[1].serialized_key_size, told[1].serialized_value_size) == (3, 4)
    assert (told[2].serialized_value_size, told[0].serialized_key_size) == (-1, -1)
    assert told[3].partition == 1
    assert told[0].timestamp == records[0].timestamp


def test_threads_at_once_keep_their_order(cluster: ThreadedCluster) -> None:
    count, threads = 3_000, 6
    called: list[int] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        assert error is None
        called.append(metadata.offset)

    with BlockingProducer(cluster.bootstrap_servers, batch_size=4096, buffer_memory=65_536) as producer:

        def work(thread: int) -> list[Any]:
            deliveries = [
                producer.send("t", b"%d %d" % (thread, number), partition=thread % 3, on_delivery=on_delivery)
                for number in range(count)
            ]
            return [each.result() for each in deliveries]

        told = in_threads([partial(work, thread) for thread in range(threads)])

    assert len(called) == count * threads
    for partition in range(3):
        records = cluster.records("t", partition)
        assert [record.offset for record in records] == list(range(count * 2))
        for thread in (partition, partition + 3):
            mine = [record for record in records if record.value.startswith(b"%d " % thread)]
            assert [record.value for record in mine] == [
                b"%d %d" % (thread, number) for number in range(count)
            ]
            assert [metadata.offset for metadata in told[thread]] == [record.offset for record in mine]


def test_callbacks_run_in_the_loop_thread_once_each(cluster: ThreadedCluster) -> None:
    threads: set[str] = set()
    offsets: list[int] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        threads.add(threading.current_thread().name)
        offsets.append(metadata.offset)

    with BlockingProducer(cluster.bootstrap_servers, client_id="mine") as producer:
        for _ in range(500):
            producer.send("one", b"v", on_delivery=on_delivery)
        producer.flush()
        assert offsets == list(range(500))

    assert threads == {"aioproduce loop mine"}


def test_a_callback_that_raises_is_logged(cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    def on_delivery(metadata: Any, error: Any) -> None:
        raise ZeroDivisionError("mine")

    with BlockingProducer(cluster.bootstrap_servers) as producer:
        producer.send("one", b"1", on_delivery=on_delivery)
        producer.flush()
        assert producer.send_and_wait("one", b"2").offset == 1
    assert "a delivery callback for one-0 failed" in caplog.text
    assert "mine" in caplog.text


def test_many_records_at_once(cluster: ThreadedCluster) -> None:
    values = [b"%d" % number for number in range(10_000)]
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        producer.send("one", b"before")
        deliveries = producer.send_many("one", iter(values), (b"k" for _ in values))
        told = deliveries.result()
        deliveries.wait()
        assert deliveries.failed() == {}
    assert len(deliveries) == len(told) == 10_000
    assert [metadata.offset for metadata in told] == list(range(1, 10_001))
    assert [record.value for record in cluster.records("one")] == [b"before", *values]
    assert {record.key for record in cluster.records("one")[1:]} == {b"k"}
    # After the close there is no loop thread to ask; everything is settled.
    assert deliveries.result() == told


def test_many_records_up_to_the_one_that_cannot_be_sent(cluster: ThreadedCluster) -> None:
    values: list[Any] = [b"v"] * 5_000 + [3.5] + [b"v"]
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        with pytest.raises(PartialSendError) as caught:
            producer.send_many("one", values)
        assert caught.value.index == 5_000
        assert isinstance(caught.value.__cause__, SerializationError)
        accepted: Any = caught.value.deliveries
        assert len(accepted.result()) == 5_000
    assert len(cluster.records("one")) == 5_000


def test_serializers_and_interceptors(cluster: ThreadedCluster) -> None:
    told: list[Any] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return replace(record, headers=[("seen", b"1")])

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            told.append((metadata.offset, type(error)))

    called: list[Any] = []
    with BlockingProducer[Any, Any](
        cluster.bootstrap_servers,
        key_serializer=str.encode,
        value_serializer=lambda value: b"%d" % value,
        interceptors=[Interceptor()],
    ) as producer:
        delivery = producer.send("one", 42, "k", on_delivery=lambda metadata, error: called.append(metadata))
        assert delivery.result().offset == 0
        with pytest.raises(SerializationError, match="value serializer failed"):
            producer.send("one", "no number", "k")
        producer.flush()
    [record] = cluster.records("one")
    assert (record.key, record.value, list(record.headers)) == (b"k", b"42", [("seen", b"1")])
    assert told == [(0, type(None)), (-1, SerializationError)]
    assert len(called) == 1


@pytest.mark.parametrize(
    ("error", "arguments", "settings"),
    [
        (SerializationError, ("t", "text"), {}),
        (SerializationError, ("t", b"v", 7), {}),
        (InvalidTopicError, ("no topic", b"v"), {}),
        (InvalidTopicError, (7, b"v"), {}),
        (InvalidHeadersError, ("t", b"v"), {"headers": [("h", 7)]}),
        (InvalidHeadersError, ("t", b"v"), {"headers": {"h": b"v"}}),
        (InvalidTimestampError, ("t", b"v"), {"timestamp": -1}),
        (InvalidTimestampError, ("t", b"v"), {"timestamp": 1.5}),
        (InvalidRecordError, ("t", b"v"), {"partition": -1}),
        (InvalidRecordError, ("t", b"v"), {"partition": "0"}),
        (PartitionOutOfRangeError, ("t", b"v"), {"partition": 3}),
        (RecordTooLargeError, ("t", b"v" * 2_000_000), {}),
        (ValueError, ("unknown", b"v"), {"timeout": -1}),
        (MetadataTimeoutError, ("unknown", b"v"), {"timeout": 0}),
        (TypeError, (ProducerRecord(topic="t", value=b"v"), b"again"), {}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_bad_input_is_refused_at_send(
    cluster: ThreadedCluster, error: type[Exception], arguments: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    called: list[Any] = []
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        with pytest.raises(error):
            producer.send(*arguments, **settings, on_delivery=lambda *told: called.append(told))
        assert producer.send_and_wait("t", b"good").offset == 0
        assert producer.metrics().value("record-error-total") == (
            0 if error in (TypeError, ValueError) else 1
        )
    assert [record.value for record in cluster.records()] == [b"good"]
    assert called == []


def test_a_topic_that_the_cluster_denies(cluster: ThreadedCluster) -> None:
    cluster.call(lambda fake: fake.deny_topic("t"))
    with BlockingProducer(cluster.bootstrap_servers) as producer, pytest.raises(TopicAuthorizationError):
        producer.send("t", b"v")


def test_a_record_that_the_broker_refuses_fails_its_future_and_its_callback(cluster: ThreadedCluster) -> None:
    called: list[Any] = []
    with BlockingProducer(cluster.bootstrap_servers, linger_ms=0, enable_idempotence=False) as producer:
        producer.send_and_wait("one", b"good")
        cluster.call(lambda fake: fake.configure_topic("one", max_message_bytes=100))
        delivery = producer.send("one", b"v" * 1_000, on_delivery=lambda *told: called.append(told))
        with pytest.raises(BrokerRejectedError) as caught:
            delivery.result()
        assert caught.value.name == "MESSAGE_TOO_LARGE"
        assert caught.value is not delivery.exception()
        [(metadata, error)] = called
        assert (metadata.offset, error.name) == (-1, "MESSAGE_TOO_LARGE")
        assert producer.send_and_wait("one", b"good").offset == 1
        assert producer.unobserved_failures == 0


def test_calls_at_the_wrong_time(cluster: ThreadedCluster) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers)
    early: tuple[Callable[[], object], ...] = (
        lambda: producer.send("t", b"v"),
        producer.flush,
        lambda: producer.partitions_for("t"),
    )
    for call in early:
        with pytest.raises(NotStartedError):
            call()
    with producer:
        with pytest.raises(ProducerStateError, match="started only once"):
            producer.start()
        assert [each.partition for each in producer.partitions_for("t")] == [0, 1, 2]
    late: tuple[Callable[[], object], ...] = (
        lambda: producer.send("t", b"v"),
        lambda: producer.send_many("t", [b"v"]),
        producer.flush,
        lambda: producer.partitions_for("t"),
    )
    for call in late:
        with pytest.raises(ProducerClosedError):
            call()
    producer.close()
    assert producer.metrics().value("record-send-total") == 0
    with pytest.raises(ProducerStateError):
        producer.start()


def test_options_are_those_of_the_producer() -> None:
    assert aioproduce.BlockingProducer is BlockingProducer
    with pytest.raises(ConfigError, match="linger_ms"):
        BlockingProducer("localhost:9092", linger_mss=1)  # type: ignore[call-arg]  # that is the error
    producer = BlockingProducer({"bootstrap.servers": "h:1", "linger.ms": 7})
    assert producer.config.linger == 0.007
    assert BlockingProducer(producer.config).config is producer.config
    assert repr(producer).endswith("-> h:1, new>")
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        producer.__reduce__()


def test_without_uvloop(cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        told = in_threads([partial(producer.send_and_wait, "one", b"v") for _ in range(4)])
        session: Any = producer._session
        assert type(session._thread.loop).__module__.startswith("asyncio")
    assert sorted(metadata.offset for metadata in told) == [0, 1, 2, 3]


def test_records_above_a_batch_keep_their_turn(cluster: ThreadedCluster) -> None:
    sizes = [10, 5_000, 10, 100_000, 10, 20_000, 10]
    with BlockingProducer(cluster.bootstrap_servers, batch_size=1_000) as producer:
        producer.send_and_wait("one", b"")
        deliveries = [producer.send("one", b"v" * size) for size in sizes]
        assert [delivery.result().offset for delivery in deliveries] == list(range(1, 8))
    assert [len(record.value) for record in cluster.records("one")] == [0, *sizes]


def test_a_partitioner_of_ones_own(cluster: ThreadedCluster) -> None:
    """It is asked in the loop thread, so what it raises comes by the future."""

    class ByValue:
        def partition(self, topic: str, key: Any, value: Any, view: Any) -> int:
            return int(value) if value.isdigit() else 1 // 0

    called: list[Any] = []
    with BlockingProducer(cluster.bootstrap_servers, partitioner_class=ByValue()) as producer:
        producer.send_and_wait("t", b"0")
        good = [producer.send("t", b"%d" % (number % 3)) for number in range(30)]
        bad = producer.send("t", b"x", on_delivery=lambda *told: called.append(told))
        assert [delivery.result().partition for delivery in good] == [number % 3 for number in range(30)]
        with pytest.raises(PartitionerError):
            bad.result()
        producer.flush()
        [(metadata, error)] = called
        assert (metadata.offset, type(error)) == (-1, PartitionerError)
        assert producer.metrics().value("record-error-total") == 1
        assert producer.outstanding_bytes == 0
    assert len(cluster.records()) == 31


def test_flush_covers_what_is_not_in_a_batch_yet(cluster: ThreadedCluster) -> None:
    with BlockingProducer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        for count in range(1, 20):
            delivery = producer.send("one", b"v")
            producer.flush()
            assert delivery.done()
            assert delivery.result(0).offset == count - 1


def test_many_threads_that_wait_for_one_record_each(cluster: ThreadedCluster) -> None:
    """Asked at every stage: handed over, in a batch, settled; nobody is forgotten."""
    with BlockingProducer(cluster.bootstrap_servers, linger_ms=0) as producer:

        def work(_: int) -> int:
            deliveries = []
            for _ in range(200):
                delivery = producer.send("t", b"v")
                deliveries.append(delivery)
                assert delivery.result().offset >= 0
            return sum(delivery.done() for delivery in deliveries)

        assert in_threads([partial(work, number) for number in range(8)]) == [200] * 8
