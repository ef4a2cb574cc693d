"""Direct mode on each loop: the cluster or the disk, whichever has a record first, ends its `send()`."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from aioproduce.errors import ConfigError, SpoolStorageError, StillSpooledError
from aioproduce.spool import SpooledProducer
from aioproduce.spool.queue_files import QueueFiles
from aioproduce.spool.record_reading import LogRecords, StoredRecord
from aioproduce.spool.verifying import Verification, verify
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from tests.drivers.concurrency import gather, spawn
from tests.drivers.producing import until
from tests.drivers.spool_disks import HeldDisk, broken, held
from tests.drivers.test_producer_spooled import _ids, _values, nobody, spool

__all__ = ["broken", "held", "nobody", "spool"]


def _stored(spool: Path) -> list[StoredRecord]:
    """Return the records that are on disk."""
    (log,) = QueueFiles(str(spool / "queue-0")).logs()
    return list(LogRecords(log, from_offset=0, waits=False, is_in_use=lambda: False).records())


def _verified(spool: Path) -> None:
    result = Verification(str(spool / "queue-0"), None)
    for _ in verify(QueueFiles(str(spool / "queue-0")), result):
        pass
    assert result.findings == []


async def _sent(producer: SpooledProducer, value: bytes) -> None:
    await (await producer.send("one", value))


async def test_what_the_cluster_has_first_is_not_written(
    cluster: FakeCluster, spool: Path, held: type[HeldDisk]
) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, direct=True) as producer:
        await _sent(producer, b"first")
        await producer.flush()
        with held.holding():
            for number in range(5):  # the first of them is being written all the while
                await _sent(producer, b"number %d" % number)
            assert held.is_waited_for.is_set()
        for broker in range(3):
            cluster.faults.stall(broker)
        await producer.send("one", b"last")  # the disk has it first
        for broker in range(3):
            cluster.faults.resume(broker)
        await producer.flush()
        assert producer.backlog()["one"].records == 0
    assert _values(cluster, "one") == [b"first", *(b"number %d" % number for number in range(5)), b"last"]
    assert len(set(_ids(cluster, "one"))) == 7
    stored = {record.value for record in _stored(spool)}
    assert b"last" in stored
    assert not stored & {b"number %d" % number for number in range(1, 5)}
    _verified(spool)


async def test_offsets_of_what_was_not_written_are_a_hole_that_every_reader_passes_over(
    cluster: FakeCluster, spool: Path, held: type[HeldDisk]
) -> None:
    async with SpooledProducer(
        cluster.bootstrap_servers,
        directory=spool,
        direct=True,
        reconnect_backoff_ms=10,
        request_timeout_ms=100,
    ) as producer:
        await _sent(producer, b"0")
        await producer.flush()  # the writer has nothing to do
        with held.holding():
            for number in range(1, 4):
                await _sent(producer, b"%d" % number)
            for broker in range(3):
                cluster.faults.stall(broker)
            waiting = spawn(producer.send_many("one", [b"4", b"5"]))
        deliveries = await waiting
        assert [delivery.spool_offset for delivery in deliveries] == [4, 5]
        await producer.close(0)
    _verified(spool)
    offsets = {record.offset: record.value for record in _stored(spool)}
    assert (offsets.get(4), offsets.get(5)) == (b"4", b"5")
    assert not offsets.keys() & {2, 3}  # 1 was being written when the cluster had it
    for broker in range(3):
        cluster.faults.resume(broker)
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, direct=True) as producer:
        await producer.flush()
    values = _values(cluster, "one")
    assert values[:4] == [b"0", b"1", b"2", b"3"]
    assert set(values[4:]) == {b"4", b"5"}
    assert len(set(_ids(cluster, "one"))) == 6


async def test_without_a_cluster_the_disk_ends_the_send(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with SpooledProducer(nobody, directory=spool, direct=True) as producer:
        first = await producer.send("one", b"1")
        await producer.send_many("one", [b"2", b"3"])
        await producer.close(0)
    with pytest.raises(StillSpooledError):
        await first
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, direct=True) as producer:
        await producer.send("one", b"4")
        await producer.flush()
    assert _values(cluster, "one") == [b"1", b"2", b"3", b"4"]
    assert len(set(_ids(cluster, "one"))) == 4


async def test_nothing_overtakes_when_the_cluster_is_away_for_a_while(
    cluster: FakeCluster, spool: Path
) -> None:
    async with SpooledProducer(
        cluster.bootstrap_servers,
        directory=spool,
        direct=True,
        sync="os",
        reconnect_backoff_ms=1,
        retry_backoff_ms=1,
        linger_ms=0,
    ) as producer:
        for number in range(300):
            if number == 100:
                for broker in range(3):
                    await cluster.stop_broker(broker)
            if number == 200:
                for broker in range(3):
                    await cluster.start_broker(broker)
            await producer.send("one", b"%d" % number)
        await producer.flush()
        assert producer.backlog()["one"].forwarded == 300
        assert producer.backlog()["one"].records == 0
    assert _values(cluster, "one") == [b"%d" % number for number in range(300)]


async def test_after_a_failure_everything_goes_by_the_log_and_then_directly_again(
    cluster: FakeCluster, spool: Path, held: type[HeldDisk]
) -> None:
    denied = cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="one", times=None)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, direct=True, reconnect_backoff_ms=1
    ) as producer:
        for number in range(5):
            await producer.send("one", b"%d" % number)
        await until(lambda: producer.backlog()["one"].blocked_by is not None)
        for number in range(5, 10):
            await producer.send("one", b"%d" % number)
        denied.cancel()
        await producer.flush()
        with held.holding():
            await _sent(producer, b"10")
    assert _values(cluster, "one") == [b"%d" % number for number in range(11)]
    assert len(set(_ids(cluster, "one"))) == 11


async def test_while_the_cluster_takes_records_a_broken_disk_fails_none(
    cluster: FakeCluster, spool: Path, broken: dict[str, list[int]]
) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool, direct=True) as producer:
        await _sent(producer, b"0")
        await producer.flush()
        broken["write"] = [errno.EIO] * 1_000
        broken["create"] = [errno.EIO] * 1_000
        await gather(*(_sent(producer, b"%d" % number) for number in range(1, 20)))
        broken.clear()
        await _sent(producer, b"20")
        await producer.flush()
    assert _values(cluster, "one")[0] == b"0"
    assert sorted(filter(None, _values(cluster, "one"))) == sorted(b"%d" % number for number in range(21))
    _verified(spool)


async def test_what_neither_takes_fails_and_may_be_stored(
    cluster: FakeCluster, spool: Path, broken: dict[str, list[int]]
) -> None:
    denied = cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="one", times=None)
    async with SpooledProducer(
        cluster.bootstrap_servers, directory=spool, direct=True, reconnect_backoff_ms=1
    ) as producer:
        broken["create"] = [errno.EIO] * 2
        with pytest.raises(SpoolStorageError, match="Input/output error") as caught:
            await producer.send("one", b"1")
        assert caught.value.possibly_stored
        broken.clear()
        await producer.send("one", b"2")
        denied.cancel()
        await producer.flush()
    assert _values(cluster, "one") == [b"2"]


async def test_it_is_refused_together_with_exactly_once(spool: Path) -> None:
    with pytest.raises(ConfigError, match="direct or exactly_once"):
        SpooledProducer("localhost:1", directory=spool, direct=True, exactly_once=True)
