"""An audited producer: numbers in records, and marks, on asyncio, uvloop and trio; held against the log."""

from __future__ import annotations

import json
import logging
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer, ProducerRecord
from aioproduce.audit import Auditor, Mark, MarkError
from aioproduce.errors import (
    BrokerRejectedError,
    ConfigError,
    DeliveryTimeoutError,
    ForcedCloseError,
    InvalidHeadersError,
    InvalidTopicError,
    MetadataTimeoutError,
    RecordTooLargeError,
)
from tests.drivers.concurrency import gather
from tests.drivers.producing import FOREVER_MS, assert_still_works, until

if TYPE_CHECKING:
    from aioproduce.testing import FakeCluster
    from aioproduce.testing.fake_cluster.cluster import FakeRecord

AUDIT = "aioproduce.audit"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def with_audit_topic(cluster: FakeCluster) -> FakeCluster:
    cluster.create_topic(AUDIT, partitions=2)
    return cluster


def stamp(record: FakeRecord) -> tuple[str, int]:
    """Who sent a record, and its number: its last header, read by hand."""
    name, value = record.headers[-1]
    assert (name, len(value or b"")) == ("ap.id", 24)
    producer_id, high, low = struct.unpack(">16s2I", value or b"")
    return producer_id.hex(), high << 32 | low


def numbers(cluster: FakeCluster, *topics: str) -> list[int]:
    """The numbers in the log, sorted, duplicates and all; of one producer."""
    stamps = [stamp(record) for topic in topics or ("t", "one") for record in cluster.records(topic)]
    assert len({producer_id for producer_id, _ in stamps}) <= 1
    return sorted(number for _, number in stamps)


def marks(cluster: FakeCluster) -> list[Mark]:
    """What the audit topic holds, in order."""
    records = cluster.records(AUDIT)
    assert len({record.partition for record in records}) <= 1  # of one producer, so they are in order
    for record in records:
        assert record.headers == ()
        assert record.key == json.loads(record.value or b"")["producer_id"].encode()
    return [Mark.from_json(record.value) for record in records]


def lost(cluster: FakeCluster, mark: Mark) -> set[int]:
    """What a mark promises and neither the log has nor the mark excuses."""
    excused = {number for first, last in mark.failed for number in range(first, last + 1)}
    return set(range(mark.next)) - excused - set(numbers(cluster))


@pytest.mark.parametrize("codec", CODECS)
async def test_every_way_of_sending_numbers_every_record(cluster: FakeCluster, codec: Any) -> None:
    audited = with_audit_topic(cluster)
    pa = pytest.importorskip("pyarrow")
    auditor = Auditor()
    rows = pa.table(
        {
            "value": pa.array([b"%d" % n for n in range(50)], pa.binary()),
            "headers": pa.array(
                [None if n % 3 == 0 else [("h", b"x" * n)] * (n % 5) for n in range(50)],
                pa.map_(pa.string(), pa.binary()),
            ),
        }
    )
    async with Producer(
        audited.bootstrap_servers, interceptors=[auditor], compression_type=codec, batch_size=2000
    ) as producer:
        first = await producer.send_and_wait("one", b"0")
        for n in range(1, 101):
            await producer.send("t", b"%d" % n, key=b"k%d" % n if n % 2 else None)
        producer.try_send("one", b"try", headers=[("a", b"1"), ("b", None)])
        await producer.send(ProducerRecord(topic="one", value=b"record", headers=[("c", b"")]))
        await producer.send_many("t", [b"%d" % n for n in range(100)], headers=(("same", b"each"),))
        await producer.send_many("t", (b"%d" % n for n in range(100)), [b"%d" % n for n in range(100)])
        await producer.send_arrow("one", rows)
        await producer.send_arrow("t", rows.select(["value"]), partition=2)
        assert first.serialized_value_size == 1
        assert producer.state.name == "RUNNING"
        await producer.flush()
        assert auditor.numbered == auditor.acknowledged == 403

    assert numbers(audited) == list(range(403))
    found = {record.value: record.headers[:-1] for record in audited.records("one")}
    assert found[b"try"] == (("a", b"1"), ("b", None))
    assert found[b"record"] == (("c", b""),)
    assert found[b"47"] == (("h", b"x" * 47),) * 2
    assert found[b"48"] == ()
    assert Counter(record.headers[:-1] for record in audited.records("t"))[(("same", b"each"),)] == 100
    assert {stamp(record)[0] for record in audited.records("t")} == {(auditor.producer_id or b"").hex()}
    [closing] = marks(audited)
    assert (closing.kind, closing.next, closing.acknowledged, closing.failed) == ("closing", 403, 403, ())
    assert closing.topics == {"one": 53, "t": 350}
    assert closing.producer_id == auditor.producer_id


async def test_numbers_are_in_the_order_of_sending(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    async with Producer(audited.bootstrap_servers, interceptors=[Auditor()]) as producer:
        for n in range(200):
            await producer.send("t", b"%d" % n)
        await producer.send_many("t", [b"%d" % n for n in range(200, 400)])
    for record in audited.records("t"):
        assert stamp(record)[1] == int(record.value or b"")


async def test_what_is_refused_leaves_no_hole(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor()
    async with Producer(
        audited.bootstrap_servers, interceptors=[auditor], max_request_size=10_000
    ) as producer:
        await producer.send_and_wait("t", b"0")
        refused: list[tuple[type[Exception], dict[str, Any]]] = [
            (RecordTooLargeError, {"topic": "t", "value": b"x" * 9_990}),
            (InvalidHeadersError, {"topic": "t", "value": b"x", "headers": [("a", 7)]}),
            (InvalidTopicError, {"topic": "a b", "value": b"x"}),
            (MetadataTimeoutError, {"topic": "missing", "value": b"x", "timeout": 0.05}),
        ]
        for error, record in refused:
            with pytest.raises(error):
                await producer.send(**record)
        await producer.send_and_wait("t", b"1")
    assert numbers(audited) == [0, 1]
    assert marks(audited)[-1].next == 2


async def test_records_of_ready_made_batches_have_no_number_and_are_not_counted(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor()
    async with Producer(audited.bootstrap_servers, interceptors=[auditor]) as producer:
        batch = producer.create_batch()
        for n in range(10):
            batch.append(value=b"%d" % n, key=None, timestamp=None)
        await (await producer.send_batch(batch, "one", partition=0)).wait()
        await producer.send_and_wait("one", b"numbered")
    assert [record.headers for record in audited.records("one")[:10]] == [()] * 10
    assert stamp(audited.records("one")[10])[1] == 0
    assert marks(audited)[-1].topics == {"one": 1}


async def test_a_batch_that_is_split_keeps_its_numbers(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    audited.configure_topic("one", max_message_bytes=600)
    async with Producer(
        audited.bootstrap_servers,
        interceptors=[Auditor()],
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=FOREVER_MS * 2,
    ) as producer:
        await producer.send_many("one", [b"%d" % n for n in range(100)], headers=[("a", b"b")])
    assert [stamp(record)[1] for record in audited.records("one")] == list(range(100))
    assert marks(audited)[-1].acknowledged == 100


async def test_what_fails_is_told_by_its_numbers(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor()
    async with Producer(audited.bootstrap_servers, interceptors=[auditor], linger_ms=0) as producer:
        await producer.send_and_wait("one", b"0")
        audited.faults.fail_produce(87, times=1)  # INVALID_RECORD, for which there is no second attempt
        with pytest.raises(BrokerRejectedError):
            await producer.send_and_wait("one", b"1")
        await producer.send_and_wait("one", b"2")
        assert (auditor.numbered, auditor.acknowledged, auditor.failed) == (3, 2, 1)
        assert auditor.mark().failed == ((1, 1),)
    assert numbers(audited) == [0, 2]
    [closing] = marks(audited)
    assert (closing.next, closing.acknowledged, closing.failed, closing.failed_more) == (3, 2, ((1, 1),), 0)
    assert lost(audited, closing) == set()


async def test_a_heartbeat_tells_what_is_settled_and_comes_only_with_news(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor(heartbeat_ms=20, run={"job": "nightly"})
    async with Producer(
        audited.bootstrap_servers,
        interceptors=[auditor],
        linger_ms=0,
        client_id="shop",
        delivery_timeout_ms=FOREVER_MS,
    ) as producer:
        for n in range(10):
            await producer.send("one", b"%d" % n)
        await producer.flush()
        await until(lambda: marks(audited) and marks(audited)[-1].next == 10)
        count = len(marks(audited))
        # Partition 0 stands still: what comes after its first record is not told, though it is acknowledged.
        audited.take_leader("t", 0)
        await producer.send("t", b"stuck", partition=0)
        await producer.send_many("one", [b"after"] * 5)
        await until(lambda: len(marks(audited)) > count and auditor.acknowledged == 15)
        await until(lambda: marks(audited)[-1].acknowledged == 15)
        beat = marks(audited)[-1]
        assert (beat.kind, beat.next, beat.topics) == ("heartbeat", 10, {"one": 15})
        assert (beat.client_id, beat.run) == ("shop", {"job": "nightly"})
        assert abs(beat.at - audited.records(AUDIT)[-1].timestamp) < 1000
        count = len(marks(audited))
        audited.elect_leader("t", 0)
        await producer.flush()
        await until(lambda: marks(audited)[-1].next == 16)
        assert len(marks(audited)) == count + 1
    closing = marks(audited)[-1]
    assert (closing.kind, closing.next) == ("closing", 16)
    assert all(lost(audited, mark) == set() for mark in marks(audited))


async def test_a_producer_that_sends_nothing_publishes_nothing(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    async with Producer(audited.bootstrap_servers, interceptors=[Auditor(heartbeat_ms=1)]) as producer:
        await producer.partitions_for("t")
    assert marks(audited) == []


@pytest.mark.parametrize("heartbeat_ms", [20, 0])
async def test_a_missing_audit_topic_is_one_warning_and_records_go_on(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, heartbeat_ms: int
) -> None:
    monkeypatch.setattr("aioproduce.core.exchanges.audit_marks._PATIENCE", 0.05)
    caplog.set_level(logging.WARNING, "aioproduce.audit")
    auditor = Auditor(heartbeat_ms=heartbeat_ms)
    async with Producer(cluster.bootstrap_servers, interceptors=[auditor]) as producer:
        await producer.send_and_wait("t", b"0")
        if heartbeat_ms:
            await until(lambda: caplog.records)
        await assert_still_works(producer, cluster)
        assert producer.unobserved_failures == 0
    assert numbers(cluster) == [0, 1]
    [warning] = [record.getMessage() for record in caplog.records if record.name == "aioproduce.audit"]
    assert AUDIT in warning
    assert "UNKNOWN_TOPIC_OR_PARTITION" in warning
    assert "Auditor(topic=...)" in warning


async def test_marks_that_the_cluster_refuses_are_one_warning(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    audited = with_audit_topic(cluster)
    caplog.set_level(logging.WARNING, "aioproduce.audit")
    audited.configure_topic(AUDIT, max_message_bytes=100)
    async with Producer(audited.bootstrap_servers, interceptors=[Auditor(heartbeat_ms=5)]) as producer:
        for n in range(3):
            await producer.send_and_wait("t", b"%d" % n)
        await until(lambda: caplog.records)
        assert producer.unobserved_failures == 0
    assert len([record for record in caplog.records if record.name == "aioproduce.audit"]) == 1
    assert marks(audited) == []
    assert numbers(audited) == [0, 1, 2]


async def test_an_audit_topic_that_comes_later_gets_what_is_to_tell(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.core.exchanges.audit_marks._PATIENCE", 0.0)
    async with Producer(
        cluster.bootstrap_servers, interceptors=[Auditor(heartbeat_ms=10)], reconnect_backoff_ms=1
    ) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.create_topic(AUDIT, partitions=1)
        await until(lambda: marks(cluster))
        assert marks(cluster)[0].next == 1


async def test_a_close_that_gives_up_publishes_no_closing_mark(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor()
    producer = Producer(
        audited.bootstrap_servers,
        interceptors=[auditor],
        linger_ms=FOREVER_MS,
        delivery_timeout_ms=FOREVER_MS * 2,
    )
    await producer.start()
    deliveries = [await producer.send("t", b"%d" % n) for n in range(10)]
    await producer.close(0)
    errors = await gather(*deliveries, return_exceptions=True)
    assert {type(error) for error in errors} == {ForcedCloseError}
    assert marks(audited) == []
    assert (auditor.numbered, auditor.failed) == (10, 10)
    assert auditor.mark().failed == ((0, 9),)


async def test_records_that_time_out_are_excused(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor()
    async with Producer(
        audited.bootstrap_servers,
        interceptors=[auditor],
        linger_ms=0,
        request_timeout_ms=50,
        delivery_timeout_ms=100,
    ) as producer:
        await producer.send_and_wait("one", b"0")
        audited.take_leader("one", 0)
        with pytest.raises(DeliveryTimeoutError):
            await producer.send_and_wait("one", b"1")
    [closing] = marks(audited)
    assert (closing.next, closing.failed) == (2, ((1, 1),))
    assert lost(audited, closing) == set()


async def test_the_audit_topics_own_records_are_not_numbered(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    async with Producer(audited.bootstrap_servers, interceptors=[Auditor()]) as producer:
        await producer.send_and_wait(AUDIT, b"of a user", partition=0)
        await producer.send_and_wait("t", b"0")
    [record] = [each for each in audited.records(AUDIT) if each.value == b"of a user"]
    assert record.headers == ()
    assert numbers(audited) == [0]


async def test_each_start_has_an_id_of_its_own(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    auditor = Auditor()
    assert auditor.producer_id is None
    assert auditor.numbered == auditor.acknowledged == auditor.failed == 0
    with pytest.raises(MarkError, match="no producer"):
        auditor.mark()
    ids: set[bytes | None] = set()
    for _ in range(2):
        async with Producer(audited.bootstrap_servers, interceptors=[auditor]) as producer:
            await producer.send_and_wait("t", b"0")
            ids.add(auditor.producer_id)
    assert {stamp(record) for record in audited.records("t")} == {((each or b"").hex(), 0) for each in ids}
    assert len(ids) == 2


async def test_other_interceptors_see_records_without_the_number(cluster: FakeCluster) -> None:
    audited = with_audit_topic(cluster)
    seen: list[ProducerRecord] = []

    class Other:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record)
            return ProducerRecord(topic=record.topic, value=record.value, headers=[("other", b"1")])

    async with Producer(audited.bootstrap_servers, interceptors=[Other(), Auditor(), Other()]) as producer:
        await producer.send_and_wait("one", b"0")
        await producer.send_many("one", [b"1", b"2"])
    assert [record.headers for record in seen[:2]] == [None, [("other", b"1")]]
    assert [record.headers[0] for record in audited.records("one")] == [("other", b"1")] * 3
    assert numbers(audited) == [0, 1, 2]


def test_an_auditor_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="give one"):
        Producer("localhost:9", interceptors=[Auditor(), Auditor()])
    with pytest.raises(ConfigError, match="from 0 on"):
        Auditor(heartbeat_ms=-1)
    with pytest.raises(ConfigError, match="JSON"):
        Auditor(run={"a": b"bytes"})
    with pytest.raises(InvalidTopicError):
        Auditor("a b")
    assert repr(Auditor("a", heartbeat_ms=5)) == "<Auditor to a every 5 ms>"
