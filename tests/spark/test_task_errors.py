"""Rows that cannot be sent: which are a matter of `on.error`, what dead letters say, and what always fails."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aioproduce.audit.mark import Mark
from aioproduce.errors import BrokerRejectedError, RecordTooLargeError
from aioproduce.producer.producer import Producer
from aioproduce.spark import marks
from aioproduce.spark.errors import RowError, StampHeaderError, TopicError, WriteError
from aioproduce.spark.runtime import Runtime
from aioproduce.testing import ClusterThread
from tests.spark.task_bench import AUDIT, by_value, cluster, identity, options_for, rows, write

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_LEADER, INVALID_RECORD, TOPIC_DENIED, TOO_LARGE = 6, 87, 29, 10
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
SMALL = {"kafka_max_request_size": "2000", "kafka_batch_size": "1000"}


@contextmanager
def bare_cluster(**topics: int) -> Iterator[ClusterThread]:
    """As `cluster()`, without an audit topic."""
    with ClusterThread(brokers=1, topics=topics, auto_create_topics=False) as found:
        try:
            yield found
        finally:
            Runtime.here().close()


def with_large_row(count: int, at: int, size: int = 100_000) -> list[pa.RecordBatch]:
    values = [b"row-%d" % row for row in range(count)]
    values[at] = b"x" * size
    return [pa.record_batch({"key": [b"k" * 2000] * count, "value": values}).slice(0, count)]


def test_a_row_that_is_too_large_fails_the_write_and_is_named() -> None:
    with (
        cluster(t=1) as found,
        pytest.raises(RowError, match=r"row 7 can never be sent.*max\.request\.size") as caught,
    ):
        write(options_for(found, **SMALL), [pa.record_batch({"value": [b"x"] * 7 + [b"x" * 5000]})])
    assert (caught.value.row, caught.value.topic) == (7, "t")
    assert isinstance(caught.value.__cause__, RecordTooLargeError)


def test_a_dead_letter_says_why_and_whence_and_is_cut() -> None:
    headers = pa.array(
        [[{"key": "kind", "value": b"a"}], None, []],
        pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    )
    batch = pa.record_batch(
        {
            "key": [b"a", b"b" * 3000, None],
            "value": [b"x" * 70_000, b"small", b"y" * 70_000],
            "headers": headers,
        }
    )
    with cluster(t=1, dead=1) as found:
        options = options_for(
            found,
            on_error="dead_letter",
            dead_letter_topic="dead",
            **{**SMALL, "kafka_max_request_size": "69000"},
        )
        report = write(options, [batch], identity(batch=4, partition=2, attempt=1))
        dead = found.records("dead")
        sent = found.records("t")
        [mark] = [Mark.from_json(record.value) for record in found.records(AUDIT)]
    assert [record.value for record in sent] == [b"small"]
    assert (report.rows, report.dead_letters, report.dropped, report.next_row) == (1, 2, 0, 3)
    assert report.bytes == 3000 + 5
    assert (mark.failed, mark.next, mark.acknowledged) == (((0, 0), (2, 2)), 3, 1)
    first = dict(dead[0].headers)
    assert [(record.key, len(record.value or b"")) for record in dead] == [(b"a", 65_536), (None, 65_536)]
    assert first["ap.dead.error"] == b"RecordTooLargeError"
    assert (first["ap.dead.topic"], first["ap.dead.row"], first["ap.dead.batch"]) == (b"t", b"0", b"4")
    assert (first["ap.dead.task"], first["ap.dead.attempt"]) == (b"2", b"1")
    assert first["ap.dead.id"] == bytes.fromhex(report.producer_id) + bytes(8)
    assert first["ap.dead.cut"] == b"value: the first 65536 of 70000 bytes; headers: none of 1"
    assert "ap.id" not in first
    assert "ap.dead.cut" in dict(dead[1].headers)


@pytest.mark.parametrize("is_by_broker", [False, True])
def test_a_dead_letter_is_cut_where_it_alone_is_too_large(is_by_broker: bool) -> None:
    """A row that has no topic, and with the headers of a dead letter takes more than a request or the topic may."""
    batch = pa.record_batch({"value": [b"x" * 1900, b"ok"], "topic": pa.array([None, "t"])})
    with cluster(t=1, dead=1) as found:
        if is_by_broker:
            found.faults.fail_produce(TOO_LARGE, topic="dead")
        options = options_for(
            found,
            topic=None,
            on_error="dead_letter",
            dead_letter_topic="dead",
            kafka_batch_size="1000",
            kafka_max_request_size="100000" if is_by_broker else "2000",
        )
        report = write(options, [batch])
        [record] = found.records("dead")
    cut = dict(record.headers).get("ap.dead.cut")
    assert (report.rows, report.dead_letters) == (1, 1)
    assert (record.value, cut) == (
        (b"x" * 1900, None) if is_by_broker else (b"x" * 1000, b"value: the first 1000 of 1900 bytes")
    )


def test_dropped_rows_are_counted_and_told_as_failed() -> None:
    with cluster(t=1) as found:
        batch = pa.record_batch(
            {"value": [b"x" * 5000 if row in (2, 3, 9) else b"v%d" % row for row in range(10)]}
        )
        report = write(options_for(found, on_error="drop", **SMALL), [batch])
        kept = by_value(found)
        [mark] = [Mark.from_json(record.value) for record in found.records(AUDIT)]
    assert set(kept) == {b"v%d" % row for row in range(10) if row not in (2, 3, 9)}
    # The others keep the numbers that they would have without.
    assert all(
        int.from_bytes((kept[b"v%d" % row]["ap.id"] or b"")[16:], "big") == row for row in (0, 1, 4, 8)
    )
    assert (report.rows, report.dropped, report.dead_letters) == (7, 3, 0)
    assert mark.failed == ((2, 3), (9, 9))


def test_rows_without_a_topic_and_with_one_that_is_not_there() -> None:
    topics = ["t", None, "missing", "u", "missing", "not a topic!", "t"]
    batch = pa.record_batch({"value": [b"v%d" % row for row in range(7)], "topic": pa.array(topics)})
    with cluster(t=1, u=2, dead=1) as found:
        options = options_for(
            found,
            topic=None,
            on_error="dead_letter",
            dead_letter_topic="dead",
            kafka_max_block_ms="300",
        )
        report = write(options, [batch])
        dead = {record.value: dict(record.headers) for record in found.records("dead")}
    assert report.topics == {"t": 2, "u": 1}
    assert set(dead) == {b"v1", b"v2", b"v4", b"v5"}
    assert "ap.dead.topic" not in dead[b"v1"]
    assert dead[b"v2"]["ap.dead.topic"] == b"missing"
    assert dead[b"v4"]["ap.dead.error"] == b"MetadataTimeoutError"


def test_many_topics_that_are_not_there_take_no_longer_than_one() -> None:
    topics = pa.array([f"missing-{row % 10}" if row % 2 else "t" for row in range(40)])
    batch = pa.record_batch({"value": [b"v%d" % row for row in range(40)], "topic": topics})
    with cluster(t=1) as found:
        options = options_for(
            found,
            topic=None,
            on_error="drop",
            kafka_max_block_ms="500",
            kafka_request_timeout_ms="500",
            kafka_delivery_timeout_ms="2000",
        )
        report = write(options, [batch])
    assert (report.topics, report.dropped) == ({"t": 20}, 20)


def test_a_partition_that_is_not_there_is_a_row_of_its_own() -> None:
    batch = pa.record_batch({"value": [b"a", b"b", b"c"], "partition": pa.array([0, 99, None], pa.int32())})
    with cluster(t=2) as found:
        assert write(options_for(found, on_error="drop"), [batch]).dropped == 1
        assert {record.value for record in found.records("t")} == {b"a", b"c"}


def test_many_partitions_that_are_not_there_are_asked_for_once() -> None:
    """Each asked for by itself takes a second, for the back-off: more than the write may take."""
    names = ["t", "u", "u", None]
    partitions = [row % 5 if row % 3 else None for row in range(60)]
    topics = [names[row % 4] for row in range(60)]
    batch = pa.record_batch(
        {
            "value": [b"v%d" % row for row in range(60)],
            "topic": topics,
            "partition": pa.array(partitions, pa.int32()),
        }
    )
    bad = {
        row
        for row in range(60)
        if topics[row] is None or (partitions[row] or 0) >= {"t": 2, "u": 4}[topics[row] or "u"]
    }
    with cluster(t=2, u=4, dead=1) as found:
        options = options_for(
            found,
            topic=None,
            on_error="dead_letter",
            dead_letter_topic="dead",
            kafka_request_timeout_ms="1000",
            kafka_delivery_timeout_ms="12000",
        )
        report = write(options, [batch])
        kept = {record.value for topic in "tu" for record in found.records(topic)}
        told = {record.value: dict(record.headers) for record in found.records("dead")}
    assert kept == {b"v%d" % row for row in range(60) if row not in bad}
    assert report.dead_letters == len(bad) == len(told) > 20
    assert b"no partition 4" in (told[b"v4"]["ap.dead.message"] or b"")


def test_rows_that_shared_a_batch_with_a_bad_one_are_sent_again() -> None:
    with cluster(t=1) as found:
        found.faults.fail_produce(INVALID_RECORD, topic="t", record_errors=((3, "no good"), (5, "nor this")))
        report = write(options_for(found, on_error="drop"), rows(10))
        kept = by_value(found)
    assert set(kept) == {b"row-%d" % row for row in range(10) if row not in (3, 5)}
    assert (report.rows, report.dropped) == (8, 2)


@pytest.mark.parametrize("batch_size", [5, 2])
def test_rows_of_other_arrow_batches_that_shared_a_batch_with_a_bad_one_are_sent_again(
    batch_size: int,
) -> None:
    with cluster(t=1) as found:
        found.faults.fail_produce(INVALID_RECORD, topic="t", record_errors=((3, "no good"),))
        options = options_for(found, on_error="drop", kafka_linger_ms="500")
        report = write(options, rows(10, batch_size))
        kept = by_value(found)
    assert set(kept) == {b"row-%d" % row for row in range(10) if row != 3}
    assert (report.rows, report.dropped) == (9, 1)


def test_a_batch_that_the_broker_refuses_whole() -> None:
    with cluster(t=1, dead=1) as found:
        found.faults.fail_produce(INVALID_RECORD, topic="t")
        options = options_for(found, on_error="dead_letter", dead_letter_topic="dead")
        report = write(options, rows(3))
        reasons = [dict(record.headers)["ap.dead.message"] for record in found.records("dead")]
    assert (report.rows, report.dead_letters) == (0, 3)
    assert all(b"INVALID_RECORD" in (reason or b"") for reason in reasons)


@pytest.mark.parametrize("policy", ["fail", "drop"])
def test_a_missing_permission_fails_under_each_policy(policy: str) -> None:
    with cluster(t=1) as found:
        found.faults.fail_produce(TOPIC_DENIED, topic="t")
        with pytest.raises(WriteError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            write(options_for(found, on_error=policy), rows(3), identity(partition=5))
        assert isinstance(caught.value.__cause__, BrokerRejectedError)
        assert (caught.value.partition, caught.value.acknowledged) == (5, 0)


@pytest.mark.parametrize("policy", ["fail", "drop"])
def test_brokers_that_do_not_answer_fail_the_write_in_time(policy: str) -> None:
    with cluster(t=1) as found:
        options = options_for(
            found,
            on_error=policy,
            kafka_delivery_timeout_ms="600",
            kafka_request_timeout_ms="200",
            kafka_max_block_ms="300",
        )
        write(options, rows(1))
        found.faults.stall(0)
        with pytest.raises(WriteError, match=r"delivery\.timeout\.ms|acknowledged") as caught:
            write(options, rows(50, batch_size=5))
        found.faults.resume(0)
        assert caught.value.acknowledged == 0
        assert write(options, rows(2)).rows == 2


def test_a_dead_letter_topic_that_is_not_there_fails_the_write() -> None:
    with cluster(t=1) as found:
        options = options_for(
            found, on_error="dead_letter", dead_letter_topic="nowhere", kafka_max_block_ms="300", **SMALL
        )
        with pytest.raises(WriteError, match="dead-letter topic 'nowhere'"):
            write(options, with_large_row(3, 1))


def test_a_header_of_the_stamps_name_is_refused() -> None:
    headers = pa.array(
        [[{"key": "ap.id", "value": b"mine"}]],
        pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    )
    batch = pa.record_batch({"value": [b"v"], "headers": headers})
    with cluster(t=1) as found:
        with pytest.raises(StampHeaderError, match=r"ap\.id.*stamp"):
            write(options_for(found), [batch])
        write(options_for(found, stamp="off"), [batch])
        assert [record.headers for record in found.records("t")] == [(("ap.id", b"mine"),)]


def test_an_audit_topic_that_was_named_must_be_there() -> None:
    with cluster(t=1) as found, pytest.raises(TopicError, match=r"'gone'.*audit\.topic") as caught:
        write(options_for(found, audit_topic="gone"), rows(1))
    assert caught.value.is_missing


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long each call waits for the audit topic."""
    waits: list[float | None] = []
    send = Producer.send

    async def told(self: Producer, topic: str, *args: Any, timeout: float | None = None, **more: Any) -> Any:
        if topic == AUDIT:
            waits.append(timeout)
        return await send(self, topic, *args, timeout=timeout, **more)

    monkeypatch.setattr(Producer, "send", told)
    monkeypatch.setattr(marks, "_PATIENCE", 0.5)
    return waits


def test_a_missing_default_topic_is_waited_for_once_and_found_when_it_is_made(
    asked: list[float | None], caplog: pytest.LogCaptureFixture
) -> None:
    with bare_cluster(t=1) as found:
        for _ in range(3):
            assert write(options_for(found), rows(1)).rows == 1
        assert asked == [0.5, 0.0, 0.0]
        assert [record.levelname for record in caplog.records if "create it" in record.message] == ["WARNING"]
        found.create_topic(AUDIT, partitions=1)
        while not found.records(AUDIT):
            write(options_for(found), rows(1))


def test_what_one_cluster_lacks_is_looked_for_in_another(asked: list[float | None]) -> None:
    with bare_cluster(t=1) as lacking:
        write(options_for(lacking), rows(1))
        with cluster(t=1) as found:
            write(options_for(found), rows(1))
            assert len(found.records(AUDIT)) == 1
    assert asked == [0.5, 0.5]


@pytest.mark.parametrize("is_by_broker", [False, True])
def test_a_default_topic_that_is_denied_is_a_warning_and_a_named_one_an_error(
    is_by_broker: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster(t=1) as found:
        if is_by_broker:
            found.faults.fail_produce(TOPIC_DENIED, topic=AUDIT, times=2)
        else:
            found.deny_topic(AUDIT)
        assert write(options_for(found), rows(3)).rows == 3
        assert [record.levelname for record in caplog.records if "is denied" in record.message] == ["WARNING"]
        with pytest.raises(TopicError, match=r"is denied.*audit\.topic") as caught:
            write(options_for(found, audit_topic=AUDIT), rows(1))
        assert not caught.value.is_missing
        assert len(found.records("t")) == 4
