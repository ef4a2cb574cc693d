"""A `SpooledProducer` when something fails, is dropped, or ends at a bad moment: nothing waits in vain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from aioproduce.errors import (
    FlushTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    SpoolDroppedError,
    SpoolInUseError,
    SpoolStorageError,
    StillSpooledError,
)
from aioproduce.spool import SpooledProducer
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.local_broker import SMALL
from aioproduce.spool.log_reader import LogReader
from aioproduce.spool.spool_queue import SpoolQueue
from aioproduce.spool.topic_log import TopicLog
from aioproduce.spool.topic_queue import TopicQueue
from aioproduce.spool.writer_messages import Dropped
from aioproduce.testing import FakeCluster
from tests.drivers.concurrency import is_trio, spawn
from tests.drivers.producing import until
from tests.drivers.spool_disks import HeldDisk, broken, held
from tests.drivers.test_producer_spooled import _values, nobody, spool

__all__ = ["broken", "held", "nobody", "spool"]


async def test_records_keep_their_order_although_the_disk_refused_the_first_of_them(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind it were under way to the writer before anybody knew. A small request would go alone."""
    values = [b"%d" % number * SMALL for number in range(5)]
    is_in, may_fail = threading.Event(), threading.Event()
    real = TopicLog.append

    def append(log: TopicLog, *arguments: Any) -> int:
        if not is_in.is_set():
            is_in.set()
            assert may_fail.wait(30)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(log, *arguments)

    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, linger_ms=0, retry_backoff_ms=1
    ) as producer:
        monkeypatch.setattr(TopicLog, "append", append)
        sends = [spawn(producer.send("one", values[0]))]
        await until(is_in.is_set)
        for value in values[1:]:
            waiting = len(producer._writer._appends)
            sends.append(spawn(producer.send("one", value)))
            await until(lambda: len(producer._writer._appends) > waiting)  # noqa: B023 - at once
        may_fail.set()
        offsets = [(await each).spool_offset for each in sends]
        await producer.flush()
    assert offsets == [0, 1, 2, 3, 4]
    assert _values(cluster, "one") == values


async def test_a_bug_that_ends_the_forwarding_during_a_close_ends_the_close(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def bug(*_: object) -> None:
        assert may_end.wait(30)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("aioproduce.spool.transactional_forwarder.committed_positions", bug)
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool, exactly_once=True)
    await producer.start()
    delivery = await producer.send("one", b"1")
    closing = spawn(producer.close(None))
    await until(lambda: producer._is_closed)
    may_end.set()
    with pytest.raises(ZeroDivisionError):
        await closing
    with pytest.raises(StillSpooledError):
        await delivery


async def test_a_close_leaves_a_file_that_a_thread_reads_to_that_thread(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that close it would close a descriptor that somebody else has got meanwhile."""
    is_in, may_go = threading.Event(), threading.Event()
    readers: list[LogReader] = []
    was_open: list[bool] = []
    real = LogReader._read

    def read(reader: LogReader, *arguments: Any, **more: Any) -> Any:
        found = real(reader, *arguments, **more)
        readers.append(reader)
        is_in.set()
        assert may_go.wait(30)
        was_open.append(reader._file is not None)
        return found

    monkeypatch.setattr(LogReader, "_read", read)
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    await producer.start()
    await producer.send("one", b"1")
    await until(is_in.is_set)
    await producer.close(0)
    may_go.set()
    await until(lambda: was_open)
    assert was_open == [True]
    await until(lambda: readers[0]._file is None)


async def test_a_flush_ends_with_the_producer(cluster: FakeCluster, spool: Path, nobody: str) -> None:
    producer = SpooledProducer(nobody, directory=spool)
    await producer.start()
    await producer.send("one", b"1")
    for _ in range(20):
        with pytest.raises(FlushTimeoutError):
            await producer.flush(0.001)
    assert len(producer._changes._waiters) == 0
    flushing = spawn(producer.flush())
    await until(lambda: producer._changes._waiters)
    await producer.close(0)
    with pytest.raises(ProducerClosedError, match="closed before its queue was empty"):
        await flushing
    with pytest.raises(ProducerClosedError):
        await producer.flush()


async def test_a_close_during_a_start_waits_for_its_end(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests' loops fail if a task is left."""
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    is_in, may_go = anyio.Event(), anyio.Event()
    real = SpoolQueue.start

    async def start(queue: SpoolQueue) -> None:
        is_in.set()
        await may_go.wait()
        await real(queue)

    monkeypatch.setattr(SpoolQueue, "start", start)
    starting = spawn(producer.start())
    await is_in.wait()
    with pytest.raises(ProducerStateError, match="started once"):
        await producer.start()
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.01):
            await producer.close()
    closing = spawn(producer.close())
    may_go.set()
    await closing
    await starting
    SpoolDirectory(str(spool / "queue-0")).close()  # nobody has its lock


async def test_a_record_that_is_stored_during_a_close_is_told_so(
    cluster: FakeCluster, spool: Path, nobody: str, held: type[HeldDisk]
) -> None:
    producer = SpooledProducer(nobody, directory=spool)
    await producer.start()
    await producer.send("one", b"0")
    with held.holding():
        sending = spawn(producer.send("one", b"1"))
        await until(held.is_waited_for.is_set)
        closing = spawn(producer.close(0))
        await until(lambda: producer._is_closed)
    assert (await sending).spool_offset == 1
    await closing


async def test_a_close_that_is_cancelled_while_a_new_topic_is_written_leaves_nothing_running(
    cluster: FakeCluster, spool: Path, held: type[HeldDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.producer.life._ABORT_BOUND", 0.1)
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    await producer.start()
    with held.holding():
        sending = spawn(producer.send("one", b"1"))
        await until(held.is_waited_for.is_set)
        closing = spawn(producer.close())
        await until(lambda: producer._is_closed)
        closing.cancel()
        await until(lambda: producer._is_ending)
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(SpoolStorageError) as caught:
        await sending
    assert caught.value.possibly_stored
    SpoolDirectory(str(spool / "queue-0")).close()  # nobody holds it any more
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as again:
        await again.flush()
    assert _values(cluster, "one") == [b"1"]


async def test_a_record_that_is_dropped_before_it_was_answered_is_told_so(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    """Two topics in one turn of the writer, of which the second has no room."""
    async with SpooledProducer(
        nobody, directory=spool, max_bytes=100_000, when_full="drop_oldest", sync="os"
    ) as producer:
        for _ in range(3):
            found: dict[str, Sequence[Any]] = {}

            async def store(topic: str) -> None:
                found[topic] = await producer.send_many(topic, [b"x" * 6_000] * 10)  # noqa: B023 - at once

            async with anyio.create_task_group() as group:
                group.start_soon(store, "one")
                group.start_soon(store, "t")
        dropped = producer.backlog()["one"].dropped + producer.backlog()["t"].dropped
        assert dropped > 0
        await producer.close(0)
    outcomes = []
    for topic in ("one", "t"):
        for delivery in found[topic]:
            with pytest.raises((SpoolDroppedError, StillSpooledError)) as caught:
                await delivery
            outcomes.append(caught.type)
    waiting = sum(each is StillSpooledError for each in outcomes)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as again:
        await again.flush()
    assert len(_values(cluster, "one")) + len(_values(cluster, "t")) == waiting


async def test_a_start_that_is_cancelled_locks_nothing(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_in, may_go = threading.Event(), threading.Event()
    real = SpoolDirectory.__init__

    def slowly(directory: SpoolDirectory, path: str) -> None:
        is_in.set()
        assert may_go.wait(30)
        real(directory, path)

    monkeypatch.setattr(SpoolDirectory, "__init__", slowly)
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    starting = spawn(producer.start())
    await until(is_in.is_set)
    starting.cancel()
    may_go.set()
    if is_trio():  # which does not leave a thread alone
        await starting
        await producer.close()
    else:
        with pytest.raises(asyncio.CancelledError):
            await starting
    monkeypatch.undo()

    def is_free() -> bool:
        try:
            SpoolDirectory(str(spool / "queue-0")).close()
        except SpoolInUseError:
            return False
        return True

    await until(is_free)


async def test_a_queue_that_cannot_be_looked_at_disturbs_nobody(
    cluster: FakeCluster,
    spool: Path,
    nobody: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioproduce.spool.adoption._LOOK_EVERY", 0.01)
    async with (
        SpooledProducer(nobody, directory=spool) as first,
        SpooledProducer(nobody, directory=spool) as second,
    ):
        await second.send("one", b"of the second")
        await second.close(0)
        await first.close(0)
    (spool / "queue-1" / "logs" / "a stray file").write_text("")
    (spool / "queue-5").mkdir()
    (spool / "queue-5" / "logs").symlink_to("logs")
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await until(lambda: "leaves a queue without a worker as it is" in caplog.text)
        await producer.send("one", b"1")
        await until(lambda: len(cluster.records("one")) == 2)
        await producer.flush()
    assert set(_values(cluster, "one")) == {b"1", b"of the second"}
    assert caplog.text.count("leaves a queue") == 1


async def test_a_flush_ends_although_a_record_may_or_may_not_be_durable(
    cluster: FakeCluster, spool: Path, broken: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read together with the one before it, and then its sync failed, and its rescue."""
    is_in, may_read = threading.Event(), threading.Event()
    real = LogReader.read

    def read(reader: LogReader, segments: Any, most: int) -> Any:
        is_in.set()
        assert may_read.wait(30)
        return real(reader, segments, most)

    monkeypatch.setattr(LogReader, "read", read)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        first = await producer.send("one", b"0")
        await until(is_in.is_set)
        broken["sync"] = [errno.EIO] * 10
        with pytest.raises(SpoolStorageError):
            await producer.send("one", b"1")
        broken.clear()
        may_read.set()
        await first
        await producer.flush()
    assert _values(cluster, "one") == [b"0", b"1"]


async def test_a_topic_that_is_new_after_the_end_of_the_forwarding_keeps_nobody_waiting(
    cluster: FakeCluster, spool: Path, held: type[HeldDisk]
) -> None:
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    await producer.start()
    await (await producer.send("one", b"1"))
    with held.holding():
        sending = spawn(producer.send("t", b"2"))
        await until(held.is_waited_for.is_set)
        producer._has_failed(ZeroDivisionError("a bug"))
    delivery = await sending
    with pytest.raises(StillSpooledError):
        await delivery
    with pytest.raises(ZeroDivisionError):
        await producer.close()


async def test_a_start_that_fails_leaves_nothing_running(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)

    async def refuse(queue: SpoolQueue) -> None:
        await real(queue)
        raise RuntimeError("can't start new thread")

    real = SpoolQueue.start
    monkeypatch.setattr(SpoolQueue, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        await producer.start()
    SpoolDirectory(str(spool / "queue-0")).close()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await producer.send("one", b"1")


async def test_a_flush_before_the_start_is_refused(cluster: FakeCluster, spool: Path) -> None:
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool)
    with pytest.raises(ProducerStateError):
        await producer.flush(1)


async def test_a_drop_at_the_end_is_noted_in_the_table(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    producer = SpooledProducer(nobody, directory=spool)
    await producer.start()
    await producer.send("one", b"1")
    assert producer._queue is not None
    closing = spawn(producer.close(0))
    producer._queue._dropped(Dropped("one", 0, 1, 1, 70, "a test says so"))
    await closing
    with contextlib.closing(sqlite3.connect(spool / "queue-0" / "dead-letters.db")) as table:
        assert table.execute("SELECT records FROM dropped").fetchall() == [(1,)]


async def test_a_batch_that_was_dropped_meanwhile_is_told_so(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has moved the position, and the loop has not heard of it."""
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await (await producer.send("one", b"0"))
        await producer.flush()
        real = TopicQueue.send_next

        async def late(queue: TopicQueue, life: Any, settled_to: int) -> Any:
            return await real(queue, life, settled_to + 1)

        monkeypatch.setattr(TopicQueue, "send_next", late)
        delivery = await producer.send("one", b"1")
        assert producer._queue is not None
        await until(lambda: producer._writer.position("one") == 2)
        assert not delivery.done()
        producer._queue._dropped(Dropped("one", 1, 2, 1, 70, "a test says so"))
        with pytest.raises(SpoolDroppedError):
            await delivery
