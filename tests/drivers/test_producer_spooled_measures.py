"""Backlog, health and metrics of a `SpooledProducer`, on each loop."""

from __future__ import annotations

import errno
import math
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from aioproduce.errors import SpoolFullError, SpoolStorageError
from aioproduce.spool import SpooledProducer, SpoolState
from aioproduce.spool.disk import Buffer, File, FileSystem
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from tests.drivers.producing import until


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


async def test_a_backlog_is_counted_across_processes_and_goes_away(
    cluster: FakeCluster, spool: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SpooledProducer(nobody, directory=spool) as producer:
        assert producer.health().state is SpoolState.EMPTY
        await producer.send_many("one", [b"%d" % number for number in range(100)], timestamp=5_000)
        await producer.send("one", b"last", timestamp=9_000)
        (log,) = (spool / "queue-0" / "logs" / "one-0").glob("*.log")
        monkeypatch.setattr(producer._measures, "wall", lambda: 35.0)
        backlog = producer.backlog()["one"]
        assert (backlog.records, backlog.is_estimate) == (101, False)
        assert (backlog.oldest_at, backlog.oldest_age) == (5.0, 30.0)
        waiting = backlog.bytes_waiting
        health = producer.health()
        assert (health.state, health.backlog_records, health.drain_seconds) == (SpoolState.WAITING, 101, None)
        assert health.full_ratio == backlog.stored_bytes / (10 * 1024**3)
        await producer.close(0)
        assert producer.health().state is SpoolState.CLOSED
    assert log.stat().st_size == waiting
    async with SpooledProducer(nobody, directory=spool) as producer:
        await until(lambda: producer.backlog()["one"].records is not None)
        await producer.send("one", b"of this process")
        await until(lambda: not producer.backlog()["one"].is_estimate)
        backlog = producer.backlog()["one"]
        assert (backlog.records, backlog.oldest_at) == (102, 5.0)
        assert backlog.bytes_waiting > waiting
        await producer.close(0)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.flush()
        backlog = producer.backlog()["one"]
        assert (backlog.records, backlog.bytes_waiting, backlog.oldest_age) == (0, 0, None)
        assert backlog.forwarded == 102
        health = producer.health()
        assert (health.state, health.drain_seconds) == (SpoolState.EMPTY, 0)
        assert health.forwarding_rate > 0
    assert len(cluster.records("one")) == 102


async def test_metrics_are_those_of_the_queue_and_of_the_producer_behind_it(
    cluster: FakeCluster, spool: Path
) -> None:
    producer = SpooledProducer(cluster.bootstrap_servers, directory=spool, client_id="shop")
    assert producer.metrics().value("spool-takes-records") == 0
    async with producer:
        await producer.send_many("one", [bytes(100)] * 50)
        await producer.send("t", b"1")
        await producer.flush()
        snapshot = producer.metrics()
    value = snapshot.value
    assert value("record-send-total") == 51
    assert (value("spool-append-total"), value("spool-append-total", topic="one")) == (51, 50)
    assert (value("spool-forward-total"), value("spool-forward-total", topic="t")) == (51, 1)
    sizes = [len(path.read_bytes()) for path in (spool / "queue-0" / "logs").glob("*/*.log")]
    assert value("spool-append-byte-total") == sum(sizes)
    assert value("spool-sync-total") == snapshot.histogram("spool-sync-time").count >= 2
    assert 0 < value("spool-sync-time-avg") <= value("spool-sync-time-max")
    assert 1 <= value("spool-group-size-max") <= 51
    assert (value("spool-backlog-records"), value("spool-oldest-age"), value("spool-drain-time")) == (0, 0, 0)
    assert (value("spool-resend-total"), value("spool-damage-total"), value("spool-full-wait-total")) == (
        0,
        0,
        0,
    )
    assert (value("spool-takes-records"), value("spool-is-blocked", topic="one")) == (1, 0)
    free = os.statvfs(spool)
    assert value("spool-free-bytes") == pytest.approx(free.f_bavail * free.f_frsize, rel=0.5)
    assert value("count") == len(snapshot)
    assert {metric.tags["client-id"] for metric in snapshot} == {"shop"}


async def test_a_blocked_topic_and_what_is_sent_again_are_seen(cluster: FakeCluster, spool: Path) -> None:
    denied = cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="t", times=None)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, reconnect_backoff_ms=10
    ) as producer:
        await producer.send("t", b"waits")
        await until(lambda: producer.health().blocked_topics == ("t",))
        assert producer.health().takes_records
        snapshot = producer.metrics()
        assert snapshot.value("spool-is-blocked", topic="t") == 1
        assert snapshot.value("spool-backlog-records", topic="t") == 1
        denied.cancel()
        await producer.flush()
        assert producer.health().blocked_topics == ()


async def test_a_full_queue_takes_records_again_when_there_is_room(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool, max_bytes=10_000, when_full="reject") as producer:
        for _ in range(4):
            await producer.send("one", bytes(2_000))
        assert producer.health().takes_records
        with pytest.raises(SpoolFullError):
            await producer.send("one", bytes(2_000))
        health = producer.health()
        assert (health.state, health.takes_records) == (SpoolState.FULL, False)
        assert producer.metrics().value("spool-full-wait-total") == 1
        await producer.close(0)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, max_bytes=10_000, segment_bytes=3_000
    ) as producer:
        for _ in range(20):
            await producer.send("one", bytes(2_000))
        await producer.flush()
        assert producer.health().state is SpoolState.EMPTY


@pytest.mark.parametrize("when_full", ["block", "reject"])
async def test_a_queue_that_is_smaller_than_a_file_drops_what_is_forwarded(
    cluster: FakeCluster, spool: Path, when_full: str
) -> None:
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, max_bytes=10_000, when_full=when_full
    ) as producer:
        for _ in range(12):
            await producer.send("one", bytes(2_000))
            await producer.flush()
        assert producer.health().takes_records


async def test_dead_letters_and_damage_are_counted(cluster: FakeCluster, spool: Path, nobody: str) -> None:
    cluster.configure_topic("one", is_compacted=True)
    async with SpooledProducer(nobody, directory=spool) as producer:
        for number in range(3):
            await producer.send("one", b"%d" % number * 100, b"key")
        await producer.close(0)
    (log,) = (spool / "queue-0" / "logs" / "one-0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"1" * 100) + 50] ^= 1
    log.write_bytes(content)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.flush()
        await producer.send("one", b"no key")
        await producer.flush()
        health, snapshot = producer.health(), producer.metrics()
    (kept,) = (spool / "queue-0" / "quarantine").glob("*.bytes")
    assert (health.dead_letters, health.quarantined_bytes) == (1, kept.stat().st_size)
    assert snapshot.value("spool-dead-letter-total") == 1
    assert snapshot.value("spool-damage-total") == 1
    assert snapshot.value("spool-forward-total") == 2
    assert snapshot.value("spool-quarantined-bytes") == kept.stat().st_size
    assert not math.isnan(snapshot.value("spool-backlog-records"))


class _Failing(FileSystem):
    """A file system whose syncs fail while there is an error."""

    errors: ClassVar[list[int]] = []

    def create(self, path: str) -> File:
        return _FailingFile(super().create(path))


class _FailingFile:
    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Callable[..., object]:
        found: Callable[..., object] = getattr(self._file, name)
        return found

    @property
    def size(self) -> int:
        return self._file.size

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def read_cached(self, offset: int, size: int) -> Buffer:
        return self._file.read_cached(offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._file.write(offset, buffers)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def sync(self) -> None:
        if _Failing.errors:
            raise OSError(_Failing.errors[0], os.strerror(_Failing.errors[0]))
        self._file.sync()

    def close(self) -> None:
        self._file.close()


async def test_a_disk_that_fails_is_reported_until_it_works_or_some_time_has_passed(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.spool.spool_queue.FileSystem", _Failing)
    monkeypatch.setattr(_Failing, "errors", [])
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.send("one", b"1")
        await producer.flush()
        _Failing.errors.append(errno.EIO)
        with pytest.raises(SpoolStorageError):
            await producer.send("one", b"2")
        health = producer.health()
        assert (health.state, health.takes_records) == (SpoolState.FAILED, False)
        assert "Input/output error" in (health.failure or "")
        _Failing.errors.clear()
        with monkeypatch.context() as later:
            failed_at = producer._writer.failed_at
            later.setattr(producer._writer, "failed_at", failed_at - 31)
            assert producer.health().takes_records  # the next record tells
        await producer.send("one", b"3")
        assert producer.health().failure is None
