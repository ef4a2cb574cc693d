"""A `SpooledProducer` when something fails, is dropped, or ends at a bad moment: nothing waits in vain."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from aioproduce.errors import (
    FlushTimeoutError,
    ProducerClosedError,
    SpoolDroppedError,
    SpoolInUseError,
    SpoolStorageError,
    StillSpooledError,
)
from aioproduce.spool import SpooledProducer
from aioproduce.spool.directory import SpoolDirectory
from aioproduce.spool.topic_log import TopicLog
from aioproduce.testing import FakeCluster
from tests.drivers.concurrency import is_trio, spawn
from tests.drivers.producing import until
from tests.drivers.spool_disks import HeldDisk, held
from tests.drivers.test_producer_spooled import _values, nobody, spool

__all__ = ["held", "nobody", "spool"]


async def test_records_keep_their_order_although_the_disk_refused_the_first_of_them(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind it were under way to the writer before anybody knew."""
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
        sends = [spawn(producer.send("one", b"0"))]
        await until(is_in.is_set)
        for number in range(1, 5):
            waiting = len(producer._writer._appends)
            sends.append(spawn(producer.send("one", b"%d" % number)))
            await until(lambda: len(producer._writer._appends) > waiting)  # noqa: B023 - at once
        may_fail.set()
        offsets = [(await each).spool_offset for each in sends]
        await producer.flush()
    assert offsets == [0, 1, 2, 3, 4]
    assert _values(cluster, "one") == [b"0", b"1", b"2", b"3", b"4"]


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


async def test_a_flush_ends_with_the_producer(cluster: FakeCluster, spool: Path, nobody: str) -> None:
    producer = SpooledProducer(nobody, directory=spool)
    await producer.start()
    await producer.send("one", b"1")
    for _ in range(20):
        with pytest.raises(FlushTimeoutError):
            await producer.flush(0.001)
    assert len(producer._changes) == 0
    flushing = spawn(producer.flush())
    await until(lambda: producer._changes)
    await producer.close(0)
    with pytest.raises(ProducerClosedError, match="closed before its queue was empty"):
        await flushing
    with pytest.raises(ProducerClosedError):
        await producer.flush()


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
    monkeypatch.setattr("aioproduce.spool.producer._ADOPT_EVERY", 0.01)
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
