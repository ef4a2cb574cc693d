"""`SpooledProducer` on each loop: what is on disk when `send()` returns reaches the cluster."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from aioproduce import RecordMetadata
from aioproduce.audit import Auditor
from aioproduce.errors import (
    BrokerRejectedError,
    ConfigError,
    FlushTimeoutError,
    InvalidRecordError,
    ProducerClosedError,
    ProducerStateError,
    SpoolDirectoryError,
    SpoolFullError,
    SpoolInUseError,
    SpoolStorageError,
    StillSpooledError,
    TopicAuthorizationError,
)
from aioproduce.spool import SpooledProducer
from aioproduce.spool.batch_head import read_sealed
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.local_broker import SMALL
from aioproduce.spool.writer import SpoolWriter
from aioproduce.spool.writer_messages import Append
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import gather, spawn
from tests.drivers.producing import until
from tests.drivers.spool_disks import HeldDisk, broken, held

__all__ = ["broken", "held"]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A directory that the producer makes."""
    return tmp_path / "spool"


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def _values(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def _ids(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    return [dict(record.headers)["ap.id"] for record in cluster.records(topic)]


def _describe(spool: Path, description: str) -> None:
    (spool / "queue-0").mkdir(parents=True, exist_ok=True)
    (spool / "queue-0" / "spool.json").write_text(description)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_flush_does_not_wait_for_the_next_time_that_the_position_is_moved(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    monkeypatch.setattr("aioproduce.spool.topic_queue._MOVE_EVERY", 1e9)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, exactly_once=exactly_once
    ) as producer:
        for number in range(3):
            await producer.send("one", b"%d" % number)
            await producer.flush()
            await (await producer.send("one", b"%d again" % number))
        await producer.flush()
    assert len(cluster.records("one")) == 6


async def test_a_record_is_on_disk_and_then_in_the_cluster(cluster: FakeCluster, spool: Path) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        delivery = await producer.send("one", b"value", b"key", headers=[("name", b"1")], timestamp=12345)
        assert (spool / "queue-0" / "logs" / "one-0" / "00000000000000000000.log").stat().st_size > 0
        metadata = await delivery
    (record,) = cluster.records("one")
    assert metadata == RecordMetadata("one", 0, 0, 12345, 3, 5)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 12345)
    assert record.headers[0] == ("name", b"1")
    assert record.headers[1][0] == "ap.id"
    assert (await delivery, delivery.result(), delivery.done()) == (metadata, metadata, True)


async def test_tombstones_and_empty_values_arrive_as_they_are(cluster: FakeCluster, spool: Path) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.send("one", None, b"gone")
        await producer.send("one", b"", b"")
        await producer.flush()
    assert [(record.key, record.value) for record in cluster.records("one")] == [(b"gone", None), (b"", b"")]


async def test_many_at_once_keep_their_order_and_their_own_outcomes(
    cluster: FakeCluster, spool: Path
) -> None:
    values = [b"%d" % number for number in range(5_000)]
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        deliveries = await producer.send_many("one", values)
        metadata = await deliveries
        assert [each.offset for each in metadata] == list(range(5_000))
        assert [each.spool_offset for each in deliveries[:3]] == [0, 1, 2]
        assert len(deliveries) == 5_000
    assert _values(cluster, "one") == values
    assert len(set(_ids(cluster, "one"))) == 5_000


async def test_tasks_share_a_group_and_each_has_its_own_outcome(cluster: FakeCluster, spool: Path) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:

        async def one(number: int) -> int:
            delivery = await producer.send("one", b"%d" % number)
            return (await delivery).offset

        offsets = await gather(*(one(number) for number in range(200)))
    stored = _values(cluster, "one")
    assert [stored[offset] for offset in offsets] == [b"%d" % number for number in range(200)]


async def test_thousands_of_tasks_find_their_group_however_late_the_loop_wakes_them(
    spool: Path, nobody: str
) -> None:
    """Those that are woken first store many small batches before the last of a large batch is woken."""
    async with SpooledProducer(nobody, directory=spool, sync="os") as producer:
        await producer.send("one", b"")  # the topic is known, so all tasks share a batch

        async def two() -> list[int]:
            return [(await producer.send("one", b"")).spool_offset for _ in range(2)]

        offsets = await gather(*(two() for _ in range(5_200)))
        await producer.close(0)
    assert sorted(offset for pair in offsets for offset in pair) == list(range(1, 10_401))


async def test_without_a_cluster_records_are_stored_and_the_next_process_sends_them(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool) as producer:
        first = await producer.send("one", b"1")
        await producer.send_many("one", [b"2", b"3"])
        with pytest.raises(FlushTimeoutError):
            await producer.flush(0.05)
        await producer.close(0)
    with pytest.raises(StillSpooledError) as caught:
        await first
    assert caught.value.stored
    assert "next producer" in str(caught.value)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.send("one", b"4")
        await producer.flush()
    assert _values(cluster, "one") == [b"1", b"2", b"3", b"4"]
    assert len(set(_ids(cluster, "one"))) == 4


async def test_what_is_settled_is_not_sent_by_the_next_process(cluster: FakeCluster, spool: Path) -> None:
    for number in range(3):
        async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
            await producer.send("one", b"%d" % number)
    assert _values(cluster, "one") == [b"0", b"1", b"2"]


async def test_a_full_queue_rejects_or_waits_in_turn(cluster: FakeCluster, spool: Path, nobody: str) -> None:
    value = bytes(2_000)
    async with SpooledProducer(nobody, directory=spool, max_bytes=10_000, when_full="reject") as producer:
        await producer.send("one", value)
        with pytest.raises(SpoolFullError, match="nothing was stored"):
            await gather(*(producer.send("one", value) for _ in range(20)))
        await producer.close(0)
    async with SpooledProducer(
        nobody, directory=spool, max_bytes=10_000, max_block_ms=50, delivery_timeout_ms=40_000
    ) as producer:
        with pytest.raises(SpoolFullError):
            await gather(*(producer.send("one", value) for _ in range(20)))
        await producer.close(0)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, max_bytes=10_000, segment_bytes=4_000
    ) as producer:
        await producer.send("one", value)  # from here on the topic is known, and tasks keep their order
        waiting = [spawn(producer.send("one", b"%d" % number + value)) for number in range(30)]
        await until(lambda: all(task.done() for task in waiting))
        await producer.flush()
    numbers = [record.value for record in cluster.records("one") if record.value != value]
    assert numbers == [b"%d" % number + value for number in range(30)]


async def test_a_queue_that_is_in_use_cannot_be_opened(cluster: FakeCluster, spool: Path) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        with pytest.raises(SpoolInUseError, match="in use by process"):
            SpoolDirectory(spool / "queue-0")
        await producer.send("one", b"1")
    SpoolDirectory(spool / "queue-0").close()


async def test_directories_that_cannot_be_used_are_refused(
    cluster: FakeCluster, spool: Path, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    with pytest.raises(SpoolDirectoryError, match="parent that exists"):
        await SpooledProducer(servers, directory=tmp_path / "a" / "b").start()
    with pytest.raises(SpoolDirectoryError):
        await SpooledProducer(servers, directory=__file__).start()
    _describe(spool, '{"format": 2, "id": "5f1a0c0e-7a3e-4b0b-9a53-6d0f8f1f6f61"}')
    with pytest.raises(SpoolDirectoryError, match="format 2"):
        await SpooledProducer(servers, directory=spool).start()
    _describe(spool, "{")
    with pytest.raises(SpoolDirectoryError, match="damaged"):
        await SpooledProducer(servers, directory=spool).start()


def test_settings_are_checked(spool: Path) -> None:
    with pytest.raises(ConfigError, match="sync: 'never'"):
        SpooledProducer("a:1", directory=spool, sync="never")
    with pytest.raises(ConfigError, match="max_bytes"):
        SpooledProducer("a:1", directory=spool, max_bytes=0)
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        SpooledProducer("a:1", directory=spool, transactional_id="t")
    with pytest.raises(ConfigError, match="acks=0"):
        SpooledProducer("a:1", directory=spool, acks=0)
    with pytest.raises(ConfigError, match="interceptors"):
        SpooledProducer("a:1", directory=spool, interceptors=[Auditor()])


async def test_a_record_that_can_never_be_sent_is_refused_early(cluster: FakeCluster, spool: Path) -> None:
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, max_request_size=1_000
    ) as producer:
        with pytest.raises(InvalidRecordError):
            await producer.send("one", bytes(2_000))
        with pytest.raises(InvalidRecordError):
            await producer.send("bad topic", b"1")
        await (await producer.send("one", b"1"))


async def test_a_topic_that_is_denied_holds_up_no_other_and_goes_on_later(
    cluster: FakeCluster, spool: Path
) -> None:
    denied = cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="t", times=None)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, reconnect_backoff_ms=10
    ) as producer:
        waiting = await producer.send("t", b"waits")
        metadata = await (await producer.send("one", b"goes"))
        assert metadata.offset == 0
        await until(lambda: producer.backlog()["t"].blocked_by is not None)
        assert isinstance(producer.backlog()["t"].blocked_by, TopicAuthorizationError)
        assert not waiting.done()
        denied.cancel()
        await waiting
        assert producer.backlog()["t"].blocked_by is None
    assert _values(cluster, "t") == [b"waits"]


async def test_what_the_cluster_never_accepts_goes_to_the_dead_letters(
    cluster: FakeCluster, spool: Path
) -> None:
    cluster.configure_topic("one", is_compacted=True)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        refused = await producer.send("one", b"no key", headers=[("name", b"1")], timestamp=7)
        with pytest.raises(BrokerRejectedError):
            await refused
        await (await producer.send("one", b"value", b"key"))
        await producer.flush()
    assert _values(cluster, "one") == [b"value"]
    with closing(sqlite3.connect(spool / "queue-0" / "dead-letters.db")) as table:
        rows = table.execute(
            "SELECT topic, key, value, headers, timestamp, reason FROM dead_letters"
        ).fetchall()
    assert [row[:5] for row in rows] == [("one", None, b"no key", '[["name", "MQ=="]]', 7)]
    assert "INVALID_RECORD" in rows[0][5]


async def test_records_that_share_a_batch_with_a_refused_one_are_sent_again(
    cluster: FakeCluster, spool: Path
) -> None:
    cluster.configure_topic("one", is_compacted=True)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        values = [b"0", b"1", b"2", b"3", b"4"]
        deliveries = await producer.send_many("one", values, [b"key", None, b"key", None, b"key"])
        for delivery, is_refused in zip(deliveries, (False, True, False, True, False), strict=True):
            if is_refused:
                with pytest.raises(BrokerRejectedError):
                    await delivery
            else:
                await delivery
        await producer.flush()
        assert producer.backlog()["one"].forwarded == 3
    assert _values(cluster, "one") == [b"0", b"2", b"4"]


async def test_an_answer_that_is_lost_costs_no_record(cluster: FakeCluster, spool: Path) -> None:
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=1)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, request_timeout_ms=200, delivery_timeout_ms=300
    ) as producer:
        await producer.send_many("one", [b"%d" % number for number in range(100)])
        await producer.flush()
    assert _values(cluster, "one") == [b"%d" % number for number in range(100)]


async def test_a_copy_of_a_queue_sends_with_the_same_ids(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool) as producer:
        await producer.send_many("one", [b"1", b"2"])
        await producer.close(0)
    copied = spool.with_name("copy")
    shutil.copytree(spool, copied)
    for directory in (spool, copied):
        async with SpooledProducer(cluster.bootstrap_servers, directory=directory) as producer:
            await producer.flush()
    assert _values(cluster, "one") == [b"1", b"2"] * 2
    ids = _ids(cluster, "one")
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2


async def test_damage_is_kept_and_what_is_behind_it_is_sent(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool) as producer:
        for number in range(3):
            await producer.send("one", b"%d" % number * 100)
        await producer.close(0)
    log = spool / "queue-0" / "logs" / "one-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"1" * 100) + 50] ^= 1
    log.write_bytes(content)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.flush()
    assert _values(cluster, "one") == [b"0" * 100, b"2" * 100]
    (report,) = (spool / "queue-0" / "quarantine").glob("*.json")
    assert json.loads(report.read_text())["first_offset"] == 1
    (kept,) = (spool / "queue-0" / "quarantine").glob("*.bytes")
    assert b"1" * 50 in kept.read_bytes()


async def test_a_bug_in_a_part_ends_the_whole_and_leaves_no_delivery_open(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    await producer.start()
    monkeypatch.setattr("aioproduce.spool.topic_queue.BatchRows", bug)
    delivery = await producer.send("one", b"1")
    with pytest.raises(StillSpooledError) as caught:
        await delivery
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        await producer.send("one", b"2")
    with pytest.raises(ZeroDivisionError):
        await producer.close()
    monkeypatch.undo()
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as again:
        await again.flush()
    assert _values(cluster, "one") == [b"1"]


async def test_a_closed_one_takes_nothing_more(cluster: FakeCluster, spool: Path) -> None:
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    with pytest.raises(ProducerStateError):
        await producer.send("one", b"1")
    await producer.start()
    await producer.close()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await producer.send("one", b"1")
    with pytest.raises(ProducerStateError):
        await producer.start()


async def test_a_disk_that_is_full_for_a_while_costs_no_record(
    cluster: FakeCluster, spool: Path, broken: dict[str, list[int]]
) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, retry_backoff_ms=1) as producer:
        await producer.send("one", b"1")
        await producer.flush()  # no move of the position meets the errors
        broken["write"] = [errno.ENOSPC] * 3
        await producer.send("one", b"2")
        assert broken["write"] == []
        await producer.flush()
    assert _values(cluster, "one") == [b"1", b"2"]


async def test_a_sync_that_fails_is_not_tried_again_and_the_record_is_stored_elsewhere(
    cluster: FakeCluster, spool: Path, broken: dict[str, list[int]]
) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.send("one", b"1")
        await producer.flush()  # no move of the position meets the error
        broken["sync"] = [errno.EIO]
        await producer.send("one", b"2")
        await producer.send("one", b"3")
        await producer.flush()
        names = sorted(path.name for path in (spool / "queue-0" / "logs" / "one-0").glob("*.log"))
    assert _values(cluster, "one") == [b"1", b"2", b"3"]
    assert len(names) >= 1
    assert names[-1] > "00000000000000000000.log"


async def test_a_record_that_no_disk_takes_fails_and_says_whether_it_may_be_stored(
    cluster: FakeCluster, spool: Path, broken: dict[str, list[int]]
) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.send("one", b"1")
        await producer.flush()  # no move of the position meets the errors
        broken["sync"] = [errno.EIO] * 2
        with pytest.raises(SpoolStorageError, match="Input/output error") as caught:
            await producer.send("one", b"2")
        assert caught.value.possibly_stored
        await producer.send("one", b"3")
        await producer.flush()
    assert [value for value in _values(cluster, "one") if value != b"2"] == [b"1", b"3"]


@pytest.mark.parametrize(("size", "while_held", "at_last"), [(1, [1], [1, 4]), (SMALL, [1] * 5, [1] * 5)])
async def test_small_records_that_come_while_the_disk_works_are_written_together(
    cluster: FakeCluster,
    spool: Path,
    held: type[HeldDisk],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    while_held: list[int],
    at_last: list[int],
) -> None:
    counts: list[int] = []
    real = SpoolWriter.submit

    def submit(writer: SpoolWriter, appends: list[Append]) -> None:
        counts.extend(read_sealed(append.buffers[0])[1] for append in appends)
        real(writer, appends)

    values = [b"%d" % number * size for number in range(5)]
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, sync="os") as producer:
        await producer.send("one", b"")
        await producer.flush()  # no move of the position waits, too
        monkeypatch.setattr(SpoolWriter, "submit", submit)
        with held.holding():
            sends = [spawn(producer.send("one", values[0]))]
            await until(held.is_waited_for.is_set)
            sends += [spawn(producer.send("one", value)) for value in values[1:]]
            await until(lambda: producer._front.outstanding_records == 5)
            await until(lambda: counts == while_held)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert counts == while_held
        assert [(await each).spool_offset for each in sends] == [1, 2, 3, 4, 5]
        assert counts == at_last
        await producer.flush()
    assert _values(cluster, "one") == [b"", *values]


async def test_a_call_that_is_cancelled_ends_at_once_and_disturbs_no_other(
    cluster: FakeCluster, spool: Path, held: type[HeldDisk]
) -> None:
    may_write, is_waited_for = held.may_write, held.is_waited_for
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, sync="os") as producer:
        await producer.send("one", b"0")
        await producer.flush()  # no move of the position waits, too
        may_write.clear()
        try:
            cancelled = spawn(producer.send("one", b"1"))
            others = [spawn(producer.send("one", b"%d" % number)) for number in range(2, 5)]
            await until(is_waited_for.is_set)
            cancelled.cancel()
            await until(cancelled.done)
            assert not any(task.done() for task in others)
        finally:
            may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        for number, task in enumerate(others, 2):
            assert (await task).spool_offset == number
        await producer.flush()
    assert _values(cluster, "one") == [b"%d" % number for number in range(5)]
