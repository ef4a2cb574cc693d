"""The null broker as the benchmarks use it: real clients, counted to the record, and what its process can be told.

The clients run in verifying mode: what they send must be in sequence and whole, or the count would prove little.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer as ConfluentProducer

from aioproduce import Producer
from benchmarks import null_broker as launcher
from benchmarks.certificate import certificate
from benchmarks.null_broker import (
    CompilationError,
    CompilerNotFoundError,
    NullBroker,
    NullBrokerError,
    null_broker,
)
from tests.benchmarks.null_broker_peer import Peer, metadata_request, peer_of, produce
from tests.drivers.producing import until
from tests.unit.fake_broker_peer import batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS = 5_000
AN_HOUR = 3600.0


@pytest.fixture
def broker() -> Iterator[NullBroker]:
    with null_broker(topics={"bench": 6}, brokers=3, verify=True) as broker:
        yield broker


def partition_of(index: int) -> int:
    """Unequal shares, so that a partition taken for another would show."""
    return (index * index) % 6


SHARES = {
    f"bench-{partition}": count for partition, count in Counter(map(partition_of, range(RECORDS))).items()
}
SETTINGS: list[dict[str, Any]] = [
    {"acks": "all"},
    {"acks": 1},
    {"acks": 0},
    {"acks": "all", "compression_type": "lz4"},
]


def check(broker: NullBroker) -> None:
    stats = broker.stats()
    assert stats["partitions"] == SHARES
    assert stats["records"] == broker.records() == RECORDS
    assert (stats["crc_errors"], stats["sequence_errors"], stats["refused_batches"]) == (0, 0, 0)
    assert 0 < stats["requests"] <= stats["batches"] <= RECORDS


class TestClients:
    @pytest.mark.parametrize("settings", SETTINGS, ids=str)
    async def test_aioproduce_over_tls(self, settings: dict[str, Any]) -> None:
        """Also records that span several TLS records, and more than the broker reads at once."""
        secured: dict[str, Any] = {
            "security_protocol": "SSL",
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(certificate().ca),
        }
        is_idempotent = settings["acks"] == "all"
        with null_broker(
            topics={"bench": 6}, brokers=3, verify=True, certificate=certificate().broker
        ) as broker:
            async with Producer(
                broker.bootstrap_servers, enable_idempotence=is_idempotent, **secured, **settings
            ) as producer:
                for index in range(RECORDS):
                    value = b"value %d" % index if index % 500 else b"v" * 900_000
                    await producer.send("bench", value, partition=partition_of(index))
            await until(lambda: broker.records() >= RECORDS)
            check(broker)

    def test_a_client_without_tls_is_cut_off(self) -> None:
        with null_broker(certificate=certificate().broker) as broker:
            with peer_of(broker) as peer:
                peer.tell(metadata_request(version=9))
                # An alert of TLS, at most; what it has not read of the request makes the end a reset.
                with contextlib.suppress(ConnectionResetError):
                    assert len(peer.connection.recv(1000)) <= 7
                    assert peer.connection.recv(1000) == b""
            assert broker.stats()["connections"] == 0

    @pytest.mark.parametrize("settings", SETTINGS, ids=str)
    async def test_aioproduce(self, broker: NullBroker, settings: dict[str, Any]) -> None:
        is_idempotent = settings["acks"] == "all"
        async with Producer(
            broker.bootstrap_servers, enable_idempotence=is_idempotent, **settings
        ) as producer:
            for index in range(RECORDS):
                await producer.send("bench", b"value %d" % index, partition=partition_of(index))
        await until(lambda: broker.records() >= RECORDS)  # acks=0 is done when the socket has taken the bytes
        check(broker)

    @pytest.mark.parametrize("settings", [*SETTINGS, {"enable_idempotence": True}], ids=str)
    async def test_aiokafka(self, broker: NullBroker, settings: dict[str, Any]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
        await producer.start()
        try:
            sent = [
                await producer.send("bench", b"value %d" % index, partition=partition_of(index))
                for index in range(RECORDS)
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()
        await until(lambda: broker.records() >= RECORDS)  # acks=0 is done when the socket has taken the bytes
        check(broker)

    @pytest.mark.parametrize(
        "settings", [*SETTINGS, {"compression_type": "zstd"}, {"enable_idempotence": True}], ids=str
    )
    async def test_confluent(self, broker: NullBroker, settings: dict[str, Any]) -> None:
        keys = {key.replace("_", "."): value for key, value in settings.items()}
        producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers, **keys})
        for index in range(RECORDS):
            producer.produce("bench", b"value %d" % index, partition=partition_of(index))
        assert producer.flush(60) == 0
        await until(lambda: broker.records() >= RECORDS)  # acks=0 is done when the socket has taken the bytes
        check(broker)

    async def test_any_topic_exists(self) -> None:
        with null_broker(partitions=4) as broker:
            async with Producer(broker.bootstrap_servers) as producer:
                for partition in range(4):
                    await producer.send_and_wait("anything", b"v", partition=partition)
            assert broker.stats()["partitions"] == {f"anything-{partition}": 1 for partition in range(4)}


class TestCommands:
    def test_reset(self, broker: NullBroker) -> None:
        with peer_of(broker) as peer:
            first = batch(b"a", b"b", producer=(1, 0, 0))
            assert produce(peer, "bench", 0, first).base_offset == 0
            assert broker.records() == 2
            broker.reset()
            stats = broker.stats()
            assert stats["partitions"] == {}
            assert not any(stats[name] for name in ("records", "batches", "requests", "bytes"))
            later = produce(peer, "bench", 0, batch(b"c", producer=(1, 0, 2)))
            assert (later.error_code, later.base_offset) == (0, 2)
            assert broker.records() == 1

    def test_times_and_connections(self, broker: NullBroker) -> None:
        before = broker.cpu_seconds()
        with peer_of(broker) as peer:
            peer.ask(metadata_request(12, "bench"))
            assert (broker.stats()["connections"], broker.stats()["accepted_connections"]) == (1, 1)
        assert before < broker.cpu_seconds() < before + 60

    def test_a_word_that_is_no_command(self, broker: NullBroker) -> None:
        with pytest.raises(NullBrokerError, match="commands"):
            broker.set_delay(-1)
        assert broker.records() == 0

    def test_a_broker_that_died(self, broker: NullBroker) -> None:
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(NullBrokerError, match="ended with status -9"):
            broker.stats()

    def test_wrong_arguments(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(NullBrokerError, match="status 2"), null_broker(topics={"not a name": 1}):
            pass
        assert "not a name" in capfd.readouterr().err

    def test_ends_with_its_block(self) -> None:
        with null_broker() as broker:
            pid = broker.pid
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class TestDelay:
    """An hour stands for "not yet": what must not wait for it is answered, what must wait cannot be in the test."""

    def test_requests_behind_a_delayed_answer_are_read(self, broker: NullBroker) -> None:
        broker.set_delay(AN_HOUR)
        with peer_of(broker) as delayed, peer_of(broker) as other:
            for _ in range(10):
                delayed.tell(produce_request("bench", {0: batch(b"v")}))
            while broker.records() < 10:
                pass
            other.ask(metadata_request(12, "bench"))
            assert not is_readable(delayed)

    def test_it_can_be_taken_back_for_later_requests(self, broker: NullBroker) -> None:
        with peer_of(broker) as peer:
            broker.set_delay(AN_HOUR)
            broker.set_delay(0)
            assert produce(peer, "bench", 0, batch(b"v")).error_code == 0

    def test_order_is_kept_and_the_time_passes(self) -> None:
        delay = 0.05
        with null_broker(delay=delay) as broker, peer_of(broker) as peer:
            started_at = time.monotonic()
            requests = [produce_request("t", {0: batch(b"v")}), metadata_request(12, "t")] * 20
            asked = [(request, peer.tell(request)) for request in requests]
            for request, correlation_id in asked:
                peer.hear(request, correlation_id)
            assert time.monotonic() - started_at >= delay
            assert broker.records() == 20

    def test_less_delay_does_not_overtake(self) -> None:
        with null_broker(delay=0.05) as broker, peer_of(broker) as peer:
            first = produce_request("t", {0: batch(b"v")})
            first_id = peer.tell(first)
            while broker.records() < 1:
                pass
            broker.set_delay(0)
            second_id = peer.tell(first)
            peer.hear(first, first_id)
            peer.hear(first, second_id)


def is_readable(peer: Peer) -> bool:
    return bool(select.select([peer.connection], [], [], 0)[0])


def test_fifty_brokers_and_ten_thousand_partitions() -> None:
    topics = {f"a.topic-with_a-name.{index}": index % 3 + 1 for index in range(5_000)}
    with null_broker(topics=topics, brokers=50) as broker, peer_of(broker, 2) as peer:
        answer = peer.ask(metadata_request(12, everything=True))
        assert [node.node_id for node in answer.brokers] == list(range(50))
        assert {topic.name: len(topic.partitions) for topic in answer.topics} == topics
        assert len({topic.topic_id for topic in answer.topics}) == 5_000
        assert all(p.leader_id == p.partition_index for topic in answer.topics for p in topic.partitions)
        for topic in answer.topics:
            if len(topic.partitions) == 3:
                peer.tell(produce_request(topic.name, {2: batch(b"v")}, acks=0))
                peer.tell(produce_request(topic.topic_id, {2: batch(b"v")}, acks=0, version=13))
        assert produce(peer, "last", 0, batch(b"v")).error_code == 6
        expected = {f"{name}-2": 2 for name, partitions in topics.items() if partitions == 3}
        assert broker.stats()["partitions"] == expected


def test_answers_that_nobody_reads_stop_the_reading() -> None:
    """And it goes on when they are read: 400 answers of over a megabyte each, more than the broker keeps."""
    topics = {f"topic-{index}": 25 for index in range(1_000)}
    request = metadata_request(0)
    with null_broker(topics=topics) as broker, peer_of(broker) as peer:
        asked = [peer.tell(request) for _ in range(400)]
        assert broker.records() == 0
        sizes = {len(peer.payload()) for _ in asked}
        assert len(sizes) == 1
        assert resident_bytes(broker.pid) < 400 << 20


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


class TestBuild:
    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)

    def test_is_compiled_once(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        program = launcher.build("-O0")
        assert program.is_relative_to(tmp_path)
        monkeypatch.setenv("PATH", "")
        assert launcher.build("-O0") == program
        assert list(program.parent.iterdir()) == [program]

    def test_is_compiled_again_when_a_source_changes(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        program = launcher.build("-O0")
        changed = tmp_path / "sources"
        changed.mkdir()
        for source in launcher.SOURCES.glob("*.[ch]"):
            (changed / source.name).write_bytes(source.read_bytes() + b"\n")
        monkeypatch.setattr(launcher, "SOURCES", changed)
        assert launcher.build("-O0") != program

    def test_without_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        with pytest.raises(CompilerNotFoundError, match="Install one"):
            launcher.build()

    def test_with_a_compiler_that_fails(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with pytest.raises(CompilationError, match="no-such-flag") as caught:
            launcher.build("--no-such-flag")
        assert "--no-such-flag" in caught.value.command
        assert "no-such-flag" in caught.value.output
        assert not list(launcher.cache_folder().iterdir())

    def test_the_compiler_that_cc_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "false -x")
        with pytest.raises(CompilationError) as caught:
            launcher.build()
        assert caught.value.command[:2] == ("false", "-x")
