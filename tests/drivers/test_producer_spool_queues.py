"""A service's queues, on each loop: workers, orphans, limits that drop, chosen partitions, ids of copies."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from math import inf
from pathlib import Path

import anyio
import pytest

from aioproduce.errors import (
    BrokerRejectedError,
    InvalidRecordError,
    InvalidTopicError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
    SpoolDroppedError,
)
from aioproduce.spool import SpooledProducer
from aioproduce.spool.dead_letter_table import count_dead_letters
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.service_directory import ServiceDirectory, queue_paths
from aioproduce.testing import FakeCluster
from tests.drivers.producing import until
from tests.drivers.test_producer_spooled import _ids, _values, nobody, spool

__all__ = ["nobody", "spool"]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for queues of dead workers without a pause that a test would wait for."""
    monkeypatch.setattr("aioproduce.spool.adoption._LOOK_EVERY", 0.01)


async def test_each_worker_has_a_queue_and_the_next_one_takes_the_lowest(
    cluster: FakeCluster, spool: Path
) -> None:
    servers = cluster.bootstrap_servers
    async with SpooledProducer(servers, directory=spool) as first:
        async with SpooledProducer(servers, directory=spool) as second:
            await second.send("one", b"second")
        await first.send("one", b"first")
        assert [Path(path).name for path in queue_paths(str(spool))] == ["queue-0", "queue-1"]
    async with SpooledProducer(servers, directory=spool) as third:
        await third.send("one", b"third")
    assert len(queue_paths(str(spool))) == 2
    assert sorted(str(value) for value in _values(cluster, "one")) == ["b'first'", "b'second'", "b'third'"]


async def test_a_worker_forwards_the_queue_of_one_that_is_gone(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool) as first:
        async with SpooledProducer(nobody, directory=spool) as second:
            await first.send_many("one", [b"1", b"2"])
            await second.send_many("t", [b"3", b"4"])
            await second.close(0)
        await first.close(0)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as worker:
        await until(lambda: len(cluster.records("one")) + len(cluster.records("t")) == 4)
        await worker.flush()
    assert (_values(cluster, "one"), _values(cluster, "t")) == ([b"1", b"2"], [b"3", b"4"])
    for path in queue_paths(str(spool)):
        SpoolDirectory(path).close()  # nobody holds it any more


async def test_a_queue_that_is_in_use_or_damaged_is_not_adopted(
    cluster: FakeCluster, spool: Path, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with SpooledProducer(nobody, directory=spool) as first:
        await first.send("one", b"kept")
        async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as second:
            await second.send("one", b"sent")
            await second.flush()
        assert _values(cluster, "one") == [b"sent"]
        await first.close(0)
    shutil.copytree(spool / "queue-0", spool / "queue-7")
    (spool / "queue-7" / "spool.json").write_text("{")
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as third:
        await third.flush()
        await until(lambda: "leaves a queue without a worker as it is" in caplog.text)
    assert _values(cluster, "one") == [b"sent", b"kept"]


async def test_a_close_that_comes_during_a_look_for_queues_does_not_wait_for_the_next_look(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.spool.adoption._LOOK_EVERY", inf)
    looks, may_end = threading.Event(), threading.Event()

    def slowly(service: ServiceDirectory, refused: set[str]) -> None:
        looks.set()
        assert may_end.wait(30)

    monkeypatch.setattr(ServiceDirectory, "next_orphan", slowly)
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    await producer.start()
    await until(looks.is_set)
    async with anyio.create_task_group() as group:
        group.start_soon(producer.close)
        await until(lambda: producer._is_ending)
        may_end.set()


async def test_a_copy_and_its_original_never_give_two_records_one_id(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool) as producer:
        await producer.send("one", b"before")
        await producer.close(0)
    copied = spool.with_name("copy")
    shutil.copytree(spool, copied)
    for directory in (spool, copied):
        async with SpooledProducer(cluster.bootstrap_servers, directory=directory) as producer:
            delivery = await producer.send("one", str(directory).encode())
            assert delivery.spool_offset == 2 * 10**9
            await producer.flush()
    before, _, again, _ = ids = _ids(cluster, "one")
    assert before == again
    assert len(set(ids)) == 3


async def test_the_oldest_records_make_room_and_are_counted_and_marked(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    values = [b"%03d" % number * 400 for number in range(40)]
    async with SpooledProducer(
        nobody, directory=spool, max_bytes=12_000, segment_bytes=4_000, when_full="drop_oldest"
    ) as producer:
        deliveries = [await producer.send("one", value) for value in values]
        with pytest.raises(SpoolDroppedError, match="had its 12000 bytes"):
            await deliveries[0]
        backlog = producer.backlog()["one"]
        assert backlog.stored_bytes <= 12_000
        await producer.close(0)
    kept = len(values) - backlog.dropped
    assert 0 < kept < 12
    with closing(sqlite3.connect(spool / "queue-0" / "dead-letters.db")) as table:
        (dropped,) = table.execute("SELECT SUM(records) FROM dropped WHERE topic = 'one'").fetchone()
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.flush()
    assert _values(cluster, "one") == values[-kept:]
    assert 0 < dropped <= backlog.dropped


async def test_records_that_are_too_old_are_dropped_and_newer_ones_sent(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool, max_age_ms=80) as producer:
        delivery = await producer.send("one", b"old")
        with pytest.raises(SpoolDroppedError, match="older than"):
            await delivery
        assert producer.backlog()["one"].dropped == 1
        await producer.close(0)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, max_age_ms=3_600_000) as producer:
        await (await producer.send("one", b"new"))
    assert _values(cluster, "one") == [b"new"]


async def test_a_chosen_partition_is_kept_and_the_cluster_sees_no_header_of_it(
    cluster: FakeCluster, spool: Path
) -> None:
    cluster.create_topic("many", 4)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        one = await producer.send("many", b"3", b"key", partition=3, headers=[("h", b"1")])
        some = await producer.send_many("many", [b"2", b"2"], partition=2)
        assert (await one).partition == 3
        assert [each.partition for each in await some] == [2, 2]
        nowhere = await producer.send("many", b"nowhere", partition=9)
        with pytest.raises(PartitionOutOfRangeError):
            await nowhere
        with pytest.raises(InvalidRecordError):
            await producer.send("many", b"1", partition=-1)
        await (await producer.send("many", b"after", partition=0))
    assert sorted(str(value) for value in _values(cluster, "many")) == ["b'2'", "b'2'", "b'3'", "b'after'"]
    (record,) = (each for each in cluster.records("many") if each.value == b"3")
    assert [name for name, _ in record.headers] == ["h", "ap.id"]
    with closing(sqlite3.connect(spool / "queue-0" / "dead-letters.db")) as table:
        assert table.execute("SELECT value FROM dead_letters").fetchall() == [(b"nowhere",)]


async def test_a_limit_that_was_lowered_below_a_stored_record_holds_nothing_up(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool) as producer:
        await producer.send("one", bytes(5_000))
        await producer.send("one", b"small")
        await producer.close(0)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, max_request_size=1_000
    ) as producer:
        await producer.flush()
    assert _values(cluster, "one") == [b"small"]
    with closing(sqlite3.connect(spool / "queue-0" / "dead-letters.db")) as table:
        ((value, reason),) = table.execute("SELECT value, reason FROM dead_letters").fetchall()
    assert value == bytes(5_000)
    assert "max.request.size" in reason
    assert issubclass(RecordTooLargeError, InvalidRecordError)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_records_of_a_topic_that_is_deleted_wait_and_go_to_the_new_one(
    cluster: FakeCluster, spool: Path, exactly_once: bool
) -> None:
    cluster.create_topic("again", 1)
    async with SpooledProducer(
        cluster.bootstrap_servers,
        directory=spool,
        exactly_once=exactly_once,
        max_block_ms=2_000,
        metadata_max_age_ms=50,
        retry_backoff_ms=10,
        request_timeout_ms=1_000,
    ) as producer:
        await (await producer.send("again", b"to the old one"))
        cluster.delete_topic("again")
        waiting = await producer.send("again", b"waits")
        await (await producer.send("one", b"goes"))
        assert not waiting.done()
        cluster.create_topic("again", 1)
        assert (await waiting).offset == 0
    assert _values(cluster, "again")[:1] == [b"waits"]


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_dead_letters_go_to_a_topic_of_theirs(
    cluster: FakeCluster, spool: Path, exactly_once: bool
) -> None:
    cluster.configure_topic("one", is_compacted=True)
    servers = cluster.bootstrap_servers
    async with SpooledProducer(servers, directory=spool) as producer:
        await producer.send("one", b"left from before", timestamp=7)
        await until(lambda: (spool / "queue-0" / "dead-letters.db").exists())
        await producer.flush()
    async with SpooledProducer(
        servers, directory=spool, dead_letter_topic="t", exactly_once=exactly_once
    ) as producer:
        await until(lambda: len(cluster.records("t")) == 1)
        refused = await producer.send("one", b"no key", headers=[("name", b"1")], timestamp=8)
        await producer.send("one", b"value", b"key")
        with pytest.raises(BrokerRejectedError):
            await refused
        await until(lambda: len(cluster.records("t")) == 2)
        await until(lambda: count_dead_letters(str(spool / "queue-0" / "dead-letters.db")) == {})
    found = {record.value: record for record in cluster.records("t")}
    assert {value: record.timestamp for value, record in found.items()} == {
        b"left from before": 7,
        b"no key": 8,
    }
    headers = dict(found[b"no key"].headers)
    assert (headers["name"], headers["ap.dead.topic"], len(headers["ap.id"] or b"")) == (b"1", b"one", 24)
    assert b"INVALID_RECORD" in (headers["ap.dead.reason"] or b"")
    assert _values(cluster, "one") == [b"value"]


async def test_a_dead_letter_that_its_topic_refuses_stays_in_the_table(
    cluster: FakeCluster, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("one", "t"):
        cluster.configure_topic(topic, is_compacted=True)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, dead_letter_topic="t") as producer:
        await producer.send("one", b"no key")
        await until(lambda: "stays a dead letter" in caplog.text)
        assert count_dead_letters(str(spool / "queue-0" / "dead-letters.db")) == {"one": 1}
        await (await producer.send("one", b"value", b"key"))
    assert cluster.records("t") == []


def test_a_name_that_is_none_is_refused(spool: Path) -> None:
    with pytest.raises(InvalidTopicError):
        SpooledProducer("localhost:1", directory=spool, dead_letter_topic="bad topic")


async def test_a_queue_that_the_cluster_does_not_take_gives_way_to_the_next(
    cluster: FakeCluster,
    spool: Path,
    nobody: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("aioproduce.spool.adoption._STUCK_AFTER", 0.05)
    async with (
        SpooledProducer(nobody, directory=spool) as first,
        SpooledProducer(nobody, directory=spool) as second,
        SpooledProducer(nobody, directory=spool) as third,
    ):
        await second.send("gone", b"waits for ever")
        await third.send("one", b"goes")
        for each in (third, second, first):
            await each.close(0)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as worker:
        await until(lambda: _values(cluster, "one") == [b"goes"])
        assert f"leaves {spool / 'queue-1'} for 60 s" in caplog.text
        await worker.close(0)
    for path in queue_paths(str(spool)):
        SpoolDirectory(path).close()  # nobody holds it any more


async def test_a_queue_has_settings_that_keep_the_order(spool: Path) -> None:
    for settings, in_flight in (({"acks": 1}, 1), ({"enable_idempotence": False}, 1), ({}, 5)):
        producer = SpooledProducer("localhost:1", directory=spool, retries=3, **settings)
        config = producer._template.config
        assert (config.max_in_flight, config.retries) == (in_flight, 2**31 - 1)
    many = SpooledProducer(
        "localhost:1",
        directory=spool,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=100,
    )
    assert many._front.config.max_in_flight == 5  # so many groups are kept for tasks that wake


async def test_a_start_that_stores_nothing_adds_no_life(spool: Path, nobody: str) -> None:
    """A queue that the cluster does not take is opened again and again."""
    async with SpooledProducer(nobody, directory=spool) as producer:
        await producer.send("one", b"1")
        await producer.close(0)
    for _ in range(4):
        async with SpooledProducer(nobody, directory=spool) as producer:
            await producer.close(0)
    directory = SpoolDirectory(str(spool / "queue-0"))
    lives = directory.description.lives
    directory.close()
    assert [life.begins_at for life in lives] == [0, 8 * 10**9]
