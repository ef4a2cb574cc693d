"""`SpooledProducer(exactly_once=True)` on each loop: each record is committed once, with the position behind it."""

from __future__ import annotations

import errno
import json
import shutil
import threading
import uuid
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

from aioproduce.config import ProducerConfig
from aioproduce.errors import (
    BrokerRejectedError,
    ProducerStateError,
    SpoolClonedError,
    SpoolDroppedError,
    SpoolPositionLostError,
    StillSpooledError,
    TopicAuthorizationError,
    TransactionsUnavailableError,
)
from aioproduce.producer.transactions import Transaction
from aioproduce.spool import SpooledProducer
from aioproduce.spool.committed_positions import CommittedPositions, committed_positions
from aioproduce.spool.log_reader import LogReader
from aioproduce.spool.transactional_forwarder import TransactionalForwarder
from aioproduce.testing import FakeCluster
from aioproduce.wire import error_codes as codes
from aioproduce.wire.api import ApiKey
from tests.drivers.concurrency import sleep
from tests.drivers.producing import until
from tests.drivers.test_producer_spooled import nobody, spool

__all__ = ["nobody", "spool"]

_LIFE = 2 * 10**9


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again without a pause that a test would wait for."""
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder.LONGEST_PAUSE", 0.02)
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder._LOOK", 0.2)


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the topics whose positions may not be read; a test adds to it."""
    topics: set[str] = set()

    def answer(
        config: ProducerConfig, group: str, asked: Sequence[str], timeout: float
    ) -> CommittedPositions:
        found = committed_positions(config, group, asked, timeout)
        return CommittedPositions(found.offsets, topics & set(asked))

    monkeypatch.setattr("aioproduce.spool.transactional_forwarder.committed_positions", answer)
    return topics


def _made(servers: str, directory: Path, **settings: Any) -> SpooledProducer:
    settings = {"max_block_ms": 2_000, "reconnect_backoff_ms": 10, "retry_backoff_ms": 10, **settings}
    return SpooledProducer(servers, directory=directory, exactly_once=True, **settings)


def _committed(cluster: FakeCluster, topic: str) -> list[bytes]:
    return [record.value or b"" for record in cluster.records(topic, isolation="read_committed")]


def _group(spool: Path) -> str:
    described = json.loads((spool / "queue-0" / "spool.json").read_text())
    return f"aioproduce.spool.{uuid.UUID(described['id'])}"


async def test_records_and_the_position_behind_them_are_committed_together(
    cluster: FakeCluster, spool: Path
) -> None:
    async with _made(cluster.bootstrap_servers, spool) as producer:
        delivery = await producer.send("one", b"1", b"key")
        metadata = await delivery
        some = await producer.send_many("t", [b"%d" % number for number in range(1_000)])
        assert len(await some) == 1_000
        await producer.flush()
    assert (metadata.topic, metadata.offset) == ("one", 0)
    assert _committed(cluster, "one") == [b"1"]
    assert sorted(_committed(cluster, "t")) == sorted(b"%d" % number for number in range(1_000))
    assert cluster.committed_offset(_group(spool), "one", 0) == 1
    assert cluster.committed_offset(_group(spool), "t", 0) == 1_000
    assert cluster.open_transactions == []


async def test_what_is_committed_is_not_sent_again_although_the_disk_does_not_know(
    cluster: FakeCluster, spool: Path
) -> None:
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.send("one", b"0")
        await producer.flush()
        before = spool.with_name("before")
        shutil.copytree(spool / "queue-0" / "logs" / "one-0", before)
        await producer.send_many("one", [b"1", b"2"])
        await producer.flush()
        log = next((spool / "queue-0" / "logs" / "one-0").glob("*.log"))
        content = log.read_bytes()
    # A kill after the commit, before the position on disk was moved: the records are there, and the old position.
    (spool / "queue-0" / "logs" / "one-0" / log.name).write_bytes(content)
    shutil.copy(before / "position", spool / "queue-0" / "logs" / "one-0" / "position")
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.send("one", b"3")
        await producer.flush()
    assert _committed(cluster, "one") == [b"0", b"1", b"2", b"3"]


async def test_a_transaction_of_a_killed_process_is_aborted_and_its_records_are_sent_once(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with _made(nobody, spool) as producer:
        await producer.send_many("one", [b"1", b"2"])
        await producer.close(0)
    held = cluster.faults.fail(ApiKey.END_TXN, codes.COORDINATOR_LOAD_IN_PROGRESS, times=None)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await until(lambda: len(cluster.records("one")) == 2)
        await producer.close(0)
    assert _committed(cluster, "one") == []
    held.cancel()
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.flush()
    assert _committed(cluster, "one") == [b"1", b"2"]


async def test_a_lost_answer_to_a_commit_costs_and_doubles_nothing(cluster: FakeCluster, spool: Path) -> None:
    cluster.faults.drop_answers(api=ApiKey.END_TXN, times=1)
    cluster.faults.drop_answers(api=ApiKey.PRODUCE, times=1)
    async with _made(
        cluster.bootstrap_servers, spool, request_timeout_ms=300, delivery_timeout_ms=2_000
    ) as producer:
        deliveries = await producer.send_many("one", [b"%d" % number for number in range(100)])
        assert len(await deliveries) == 100
        await producer.flush()
    assert _committed(cluster, "one") == [b"%d" % number for number in range(100)]


async def test_what_the_cluster_never_accepts_is_buried_and_the_rest_is_committed(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    cluster.configure_topic("one", is_compacted=True)
    async with _made(nobody, spool) as producer:
        await producer.send("one", b"1", b"key")
        await producer.send("one", b"no key")
        await producer.send("one", b"2", b"key")
        await producer.close(0)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.flush()
        refused = await producer.send("one", b"no key either")
        good = await producer.send("one", b"3", b"key")
        with pytest.raises(BrokerRejectedError):
            await refused
        assert (await good).topic == "one"
    assert _committed(cluster, "one") == [b"1", b"2", b"3"]


async def test_a_topic_that_is_denied_or_not_there_holds_up_no_other(
    cluster: FakeCluster, spool: Path
) -> None:
    denied = cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="t", times=None)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        waiting = await producer.send("t", b"waits")
        gone = await producer.send("gone", b"waits for ever")
        assert (await (await producer.send("one", b"goes"))).offset == 0
        await until(lambda: isinstance(producer.backlog()["t"].blocked_by, TopicAuthorizationError))
        denied.cancel()
        await waiting
        await producer.close(0)
    with pytest.raises(StillSpooledError):
        await gone
    assert (_committed(cluster, "one"), _committed(cluster, "t")) == ([b"goes"], [b"waits"])


async def test_a_topic_that_comes_while_the_position_of_another_is_learned_is_not_missed(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is denied: it gives the forwarder no further reason to look."""
    cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="t", times=None)
    is_learning, may_end = threading.Event(), threading.Event()

    def slowly(
        config: ProducerConfig, group: str, topics: Sequence[str], timeout: float
    ) -> CommittedPositions:
        if "t" in topics:
            is_learning.set()
            assert may_end.wait(30)
        return committed_positions(config, group, topics, timeout)

    monkeypatch.setattr("aioproduce.spool.transactional_forwarder.committed_positions", slowly)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        denied = await producer.send("t", b"waits")
        await until(is_learning.is_set)
        delivery = await producer.send("one", b"goes")
        may_end.set()
        assert (await delivery).offset == 0
        await producer.close(0)
    with pytest.raises(StillSpooledError):
        await denied


async def test_a_look_for_a_topic_that_is_not_there_holds_up_no_look_for_another(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder._LOOK", inf)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        gone = await producer.send("gone", b"waits for ever")
        await until(lambda: "gone" in producer._queue._transactional._looked_for)  # type: ignore[union-attr]
        assert (await (await producer.send("one", b"goes"))).offset == 0
        await producer.close(0)
    with pytest.raises(StillSpooledError):
        await gone


async def test_a_topic_whose_position_may_not_be_read_holds_up_no_other(
    cluster: FakeCluster, spool: Path, denied: set[str]
) -> None:
    denied.add("t")
    async with _made(cluster.bootstrap_servers, spool) as producer:
        waiting = await producer.send("t", b"waits")
        await until(lambda: isinstance(producer.backlog()["t"].blocked_by, TopicAuthorizationError))
        assert (await (await producer.send("one", b"goes"))).offset == 0
        denied.clear()
        await waiting
        await producer.flush()
    assert (_committed(cluster, "one"), _committed(cluster, "t")) == ([b"goes"], [b"waits"])


async def test_records_in_doubt_of_a_topic_that_is_denied_meanwhile_are_not_passed_over(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch, denied: set[str]
) -> None:
    """Its transaction was open when the producer had to be made anew; then its position may not be read."""
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder._RENEW_EVERY", 0.01)
    real = Transaction.send_offsets

    async def refuse(transaction: Any, offsets: Any, group: str) -> None:
        if any(topic == "t" and offset > 1 for (topic, _), offset in offsets.items()) and not denied:
            denied.add("t")
            raise TransactionsUnavailableError("all is taken away", recover="new producer", code=53)
        await real(transaction, offsets, group)

    async with _made(cluster.bootstrap_servers, spool) as producer:
        await (await producer.send("t", b"0"))
        await producer.flush()
        monkeypatch.setattr(Transaction, "send_offsets", refuse)
        doubtful = await producer.send_many("t", [b"%d" % number for number in range(1, 11)])
        await until(lambda: isinstance(producer.backlog()["t"].blocked_by, TopicAuthorizationError))
        assert (await (await producer.send("one", b"goes"))).offset == 0
        for _ in range(20):
            await sleep(0.005)
        assert producer._writer.position("t") == 1
        monkeypatch.setattr(Transaction, "send_offsets", real)
        denied.clear()
        for delivery in doubtful:
            await delivery
        await producer.flush()
    assert sorted(_committed(cluster, "t"), key=int) == [b"%d" % number for number in range(11)]


async def test_a_file_that_is_gone_holds_up_no_other_topic(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LogReader.read
    is_gone = True
    reads = 0

    def read(reader: LogReader, segments: Any, most: int) -> Any:
        nonlocal reads
        if is_gone and reader._directory.endswith("/t-0"):
            reads += 1
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return real(reader, segments, most)

    monkeypatch.setattr(LogReader, "read", read)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        waiting = await producer.send("t", b"waits")
        assert (await (await producer.send("one", b"goes"))).offset == 0
        await until(lambda: isinstance(producer.backlog()["t"].blocked_by, FileNotFoundError))
        reads = 0
        for _ in range(20):
            await sleep(0.005)
        assert reads < 50  # one in a pause of 20 ms or so
        is_gone = False
        await waiting
    assert _committed(cluster, "t") == [b"waits"]


async def test_a_topic_that_is_gone_and_has_nothing_stored_is_waited_for_by_nobody(
    cluster: FakeCluster, spool: Path
) -> None:
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.send_many("t", [b"1", b"2"])
        await producer.flush()
    cluster.faults.fail_metadata(codes.TOPIC_AUTHORIZATION_FAILED, topic="t", times=None)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await (await producer.send("one", b"goes"))
        await producer.flush()
        await producer.close(None)


async def test_a_log_of_which_nothing_was_ever_forwarded_has_no_position_to_lose(
    cluster: FakeCluster, spool: Path
) -> None:
    """A first append has left its directory and nothing else."""
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await (await producer.send("one", b"1"))
    (spool / "queue-0" / "logs" / "t-0").mkdir()
    for value in (b"2", b"3"):
        async with _made(cluster.bootstrap_servers, spool, lost_position="refuse") as producer:
            await (await producer.send("one", value))
            await producer.flush()
            assert not producer._writer.has_settled("t")
    async with _made(cluster.bootstrap_servers, spool, lost_position="refuse") as producer:
        await (await producer.send("t", b"4"))
        await producer.flush()
    assert _committed(cluster, "t") == [b"4"]


async def test_the_damage_of_a_denied_topic_is_told_once(
    cluster: FakeCluster,
    spool: Path,
    nobody: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with _made(nobody, spool) as producer:
        for number in range(3):
            await producer.send("t", b"%d" % number * 50)
        await producer.close(0)
    (path,) = (spool / "queue-0" / "logs" / "t-0").glob("*.log")
    content = bytearray(path.read_bytes())
    content[content.index(b"0" * 50)] ^= 1
    path.write_bytes(content)
    denials = 0

    def deny(config: ProducerConfig, group: str, topics: Sequence[str], timeout: float) -> CommittedPositions:
        nonlocal denials
        denials += 1
        return CommittedPositions({}, set(topics))

    monkeypatch.setattr("aioproduce.spool.transactional_forwarder.committed_positions", deny)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await until(lambda: denials > 5)
        monkeypatch.setattr(
            "aioproduce.spool.transactional_forwarder.committed_positions", committed_positions
        )
        await producer.flush()
    assert caplog.text.count("the spool is damaged") == 1
    assert _committed(cluster, "t") == [b"1" * 50, b"2" * 50]


async def test_a_commit_whose_sender_died_is_known_with_the_positions(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transaction.commit
    deaths = iter([True])

    async def commit(transaction: Any) -> None:
        await real(transaction)
        if next(deaths, False):
            raise ProducerStateError("the sender has died")

    monkeypatch.setattr(Transaction, "commit", commit)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        delivery = await producer.send("one", b"1")
        await delivery
        await producer.flush()
    assert _committed(cluster, "one") == [b"1"]


async def test_a_position_that_is_refused_once_is_committed_without_another_record(
    cluster: FakeCluster, spool: Path
) -> None:
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await (await producer.send("one", b"1"))
        cluster.faults.fail(ApiKey.TXN_OFFSET_COMMIT, codes.TOPIC_AUTHORIZATION_FAILED)
        await (await producer.send("one", b"2"))
        await producer.flush()
    assert _committed(cluster, "one") == [b"1", b"2"]


async def test_a_topic_that_fails_every_transaction_takes_no_other_with_it(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transaction.send_offsets
    asked: list[set[str]] = []

    async def refuse(transaction: Any, offsets: Any, group: str) -> None:
        asked.append({topic for topic, _ in offsets})
        if "t" in asked[-1] and len(asked) < 12:
            raise TransactionsUnavailableError("no Read on the topic", recover="abort", code=29)
        await real(transaction, offsets, group)

    monkeypatch.setattr(Transaction, "send_offsets", refuse)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        bad = await producer.send("t", b"waits")
        good = await producer.send("one", b"goes")
        await good
        await bad
        await producer.flush()
    assert (_committed(cluster, "one"), _committed(cluster, "t")) == ([b"goes"], [b"waits"])


async def test_positions_are_committed_again_also_of_a_topic_that_is_idle(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder._RENEW_EVERY", 0.05)
    real = Transaction.send_offsets
    committed: list[dict[str, int]] = []

    async def note(transaction: Any, offsets: Any, group: str) -> None:
        committed.append({topic: offset for (topic, _), offset in offsets.items()})
        if committed[-1] == {"t": 1} and len(committed) < 6:
            raise TransactionsUnavailableError("not at present", recover="abort", code=3)
        await real(transaction, offsets, group)

    monkeypatch.setattr(Transaction, "send_offsets", note)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await (await producer.send("one", b"1"))
        await (await producer.send("t", b"2"))
        await producer.flush()
        committed.clear()
        await until(lambda: committed.count({"one": 1}) >= 3 and committed.count({"t": 1}) >= 3)
        await producer.flush()  # no renewal, failed or not, is something that it waits for
    assert all(len(each) == 1 for each in committed)


async def test_a_forwarder_without_a_topic_only_waits(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder._RENEW_EVERY", 0.0)
    monkeypatch.setattr("aioproduce.spool.transactional_forwarder._RENEW_FIRST", 0.0)
    turns = 0
    real = TransactionalForwarder._turn

    async def count(forwarder: TransactionalForwarder, producer: Any) -> None:
        nonlocal turns
        turns += 1
        await real(forwarder, producer)

    monkeypatch.setattr(TransactionalForwarder, "_turn", count)
    async with _made(cluster.bootstrap_servers, spool):
        await until(lambda: turns)
        for _ in range(20):
            await sleep(0.001)
    assert turns < 10


async def test_a_log_that_cannot_be_read_holds_up_no_other_topic(
    cluster: FakeCluster, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LogReader.read
    is_bad = True

    def read(reader: LogReader, segments: Any, most: int) -> Any:
        if is_bad and reader._directory.endswith("/t-0"):
            raise OSError(errno.EIO, "Input/output error")
        return real(reader, segments, most)

    monkeypatch.setattr(LogReader, "read", read)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        waiting = await producer.send("t", b"waits")
        assert (await (await producer.send("one", b"goes"))).offset == 0
        await until(lambda: isinstance(producer.backlog()["t"].blocked_by, OSError))
        is_bad = False
        await waiting
    assert (_committed(cluster, "one"), _committed(cluster, "t")) == ([b"goes"], [b"waits"])


async def test_without_a_cluster_records_are_stored_and_sent_once_it_is_there(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with _made(nobody, spool, max_block_ms=50) as producer:
        await producer.send("one", b"1")
        await until(lambda: producer.backlog()["one"].blocked_by is not None)
        await producer.close(0)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.flush()
    assert _committed(cluster, "one") == [b"1"]


async def test_a_copy_that_runs_beside_its_original_stops_the_one_that_is_overtaken(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with _made(nobody, spool) as producer:
        await producer.send("one", b"1")
        await producer.close(0)
    copied = spool.with_name("copy")
    shutil.copytree(spool, copied)
    original = _made(cluster.bootstrap_servers, spool)
    await original.start()
    await original.flush()
    async with _made(cluster.bootstrap_servers, copied) as copy:
        await copy.flush()
        delivery = await original.send("one", b"of the original")
        with pytest.raises(StillSpooledError) as caught:
            await delivery
        assert isinstance(caught.value.__cause__, SpoolClonedError)
        with pytest.raises(SpoolClonedError, match="has taken over"):
            await original.send("one", b"2")
    with pytest.raises(SpoolClonedError):
        await original.close()
    assert _committed(cluster, "one") == [b"1"]


async def test_an_older_copy_is_recognised_by_the_position_that_the_cluster_has(
    cluster: FakeCluster, spool: Path
) -> None:
    copied = spool.with_name("copy")
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.send("one", b"1")
        await producer.flush()
    shutil.copytree(spool, copied)
    for _ in range(2):
        async with _made(cluster.bootstrap_servers, spool) as producer:
            await producer.send("one", b"2")
            await producer.flush()
    producer = _made(cluster.bootstrap_servers, copied)
    await producer.start()
    delivery = await producer.send("one", b"of the copy")
    with pytest.raises(StillSpooledError) as caught:
        await delivery
    assert "which this copy has not stored" in str(caught.value.__cause__)
    with pytest.raises(SpoolClonedError):
        await producer.close()
    assert _committed(cluster, "one") == [b"1", b"2", b"2"]


@pytest.mark.parametrize("lost_position", ["resume", "refuse"])
async def test_a_position_that_the_cluster_has_forgotten(
    cluster: FakeCluster, spool: Path, lost_position: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with SpooledProducer(cluster.bootstrap_servers, directory=spool) as producer:
        await producer.send("one", b"1")  # at least once: the group has no offset
        await producer.flush()
    producer = _made(cluster.bootstrap_servers, spool, lost_position=lost_position)
    await producer.start()
    delivery = await producer.send("one", b"2")
    if lost_position == "resume":
        assert (await delivery).topic == "one"
        assert "may come twice" in caplog.text
        await producer.close()
        assert _committed(cluster, "one") == [b"1", b"2"]
    else:
        with pytest.raises(StillSpooledError) as caught:
            await delivery
        assert isinstance(caught.value.__cause__, SpoolPositionLostError)
        with pytest.raises(SpoolPositionLostError, match='lost_position="resume"'):
            await producer.close()


async def test_a_group_that_is_denied_is_told_and_loses_nothing(cluster: FakeCluster, spool: Path) -> None:
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await producer.flush()
        group = _group(spool)
        cluster.deny_group(group)
        delivery = await producer.send("one", b"1")
        await until(lambda: producer.backlog()["one"].blocked_by is not None)
        assert not delivery.done()
        await producer.close(0)
    async with _made(cluster.bootstrap_servers, spool) as producer:
        await until(lambda: isinstance(producer.backlog()["one"].blocked_by, TransactionsUnavailableError))
        await producer.close(0)
    assert _committed(cluster, "one") == []


async def test_a_worker_commits_the_records_of_one_that_is_gone_once(
    cluster: FakeCluster, spool: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.spool.adoption._LOOK_EVERY", 0.01)
    async with _made(nobody, spool, max_block_ms=50) as first:
        async with _made(nobody, spool, max_block_ms=50) as second:
            await second.send_many("t", [b"3", b"4"])
            await second.close(0)
        await first.close(0)
    async with _made(cluster.bootstrap_servers, spool) as worker:
        await worker.send("one", b"1")
        await until(lambda: len(_committed(cluster, "t")) == 2)
        await worker.flush()
    assert (_committed(cluster, "one"), _committed(cluster, "t")) == ([b"1"], [b"3", b"4"])


async def test_records_that_were_dropped_before_a_first_commit_are_no_lost_position(
    cluster: FakeCluster, spool: Path, nobody: str
) -> None:
    async with _made(nobody, spool, max_age_ms=20, lost_position="refuse") as producer:
        old = await producer.send("one", b"old")
        with pytest.raises(SpoolDroppedError):
            await old
        await producer.close(0)
    async with _made(cluster.bootstrap_servers, spool, lost_position="refuse") as producer:
        await (await producer.send("one", b"new"))
        await producer.flush()
    assert _committed(cluster, "one") == [b"new"]


async def test_a_file_without_a_whole_record_is_removed_although_nothing_was_ever_settled(
    cluster: FakeCluster, spool: Path
) -> None:
    """Else a worker would adopt the queue again and again."""
    async with _made(cluster.bootstrap_servers, spool):
        pass
    log = spool / "queue-0" / "logs" / "one-0"
    log.mkdir()
    (log / f"{0:020}.log").write_bytes(bytes(100))
    async with _made(cluster.bootstrap_servers, spool, lost_position="refuse") as producer:
        await until(lambda: not list(log.glob("*.log")))
        assert not producer._writer.has_settled("one")
        await (await producer.send("one", b"1"))
    assert _committed(cluster, "one") == [b"1"]
