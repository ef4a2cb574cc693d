"""The null broker on the wire, judged by kio's schemas and aiokafka's batches; and bytes that are no request.

1. Every version of every API that is advertised is asked for here.
2. Garbage is thrown at a build with AddressSanitizer and UndefinedBehaviorSanitizer: the first wrong access ends
   the process, and so the test.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from benchmarks.null_broker import NullBroker, null_broker
from tests.benchmarks.null_broker_peer import Peer, metadata_request, peer_of, produce, schema_of
from tests.unit.fake_broker_peer import batch, produce_request, tampered
from tests.wire_oracle import request_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

NONE = 0
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
INVALID_TOPIC_EXCEPTION = 17
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_VERSION = 35
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


@pytest.fixture(scope="module")
def running() -> Iterator[NullBroker]:
    """Two brokers; the topic "t" has three partitions, led by 0, 1 and 0."""
    with null_broker(topics={"t": 3}, brokers=2, partitions=5, verify=True) as broker:
        yield broker


@pytest.fixture
def broker(running: NullBroker) -> NullBroker:
    running.reset()
    return running


@pytest.fixture
def peer(broker: NullBroker) -> Iterator[Peer]:
    with peer_of(broker) as peer:
        yield peer


def topic_id(peer: Peer, name: str) -> UUID:
    (topic,) = peer.ask(metadata_request(12, name)).topics
    assert isinstance(topic.topic_id, UUID)
    return topic.topic_id


def api_versions(version: int) -> Any:
    software = {"client_software_name": "tests", "client_software_version": "1"} if version >= 3 else {}
    return schema_of("api_versions", version).ApiVersionsRequest(**software)


class TestLayouts:
    @pytest.mark.parametrize("version", range(5))
    def test_api_versions(self, peer: Peer, version: int) -> None:
        answer = peer.ask(api_versions(version))
        assert answer.error_code == NONE
        versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert versions == {0: (3, 13), 1: (4, 11), 3: (0, 13), 10: (0, 2), 18: (0, 4), 22: (0, 5)}

    def test_an_unknown_version_of_api_versions_is_told_the_known_ones(self, peer: Peer) -> None:
        frame = bytearray(request_frame(api_versions(4), correlation_id=9))
        struct.pack_into(">h", frame, 6, 5)
        peer.connection.sendall(frame)
        assert struct.unpack_from(">ihi", peer.payload()) == (9, UNSUPPORTED_VERSION, 6)

    @pytest.mark.parametrize("version", range(14))
    def test_metadata(self, broker: NullBroker, peer: Peer, version: int) -> None:
        answer = peer.ask(metadata_request(version, "t"))
        ports = [int(address.split(":")[1]) for address in broker.bootstrap_servers.split(",")]
        assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [
            (0, "127.0.0.1", ports[0]),
            (1, "127.0.0.1", ports[1]),
        ]
        (topic,) = answer.topics
        assert (topic.name, topic.error_code) == ("t", NONE)
        assert [
            (p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes)
            for p in topic.partitions
        ] == [(NONE, 0, 0, (0,), (0,)), (NONE, 1, 1, (1,), (1,)), (NONE, 2, 0, (0,), (0,))]

    @pytest.mark.parametrize("version", [0, 1, 9, 13])
    def test_metadata_of_all_topics(self, peer: Peer, version: int) -> None:
        topics = peer.ask(metadata_request(version, everything=True)).topics
        assert {topic.name: len(topic.partitions) for topic in topics}["t"] == 3

    def test_metadata_of_a_topic_that_nobody_named_before(self, peer: Peer) -> None:
        new, wrong = peer.ask(metadata_request(12, "new", "not a name")).topics
        assert (new.name, new.error_code, len(new.partitions)) == ("new", NONE, 5)
        assert (wrong.name, wrong.error_code, wrong.partitions) == ("not a name", INVALID_TOPIC_EXCEPTION, ())

    def test_metadata_by_topic_id(self, peer: Peer) -> None:
        known_id, stranger = topic_id(peer, "t"), UUID(int=1 << 100)
        known, unknown = peer.ask(metadata_request(12, known_id, stranger)).topics
        assert (known.name, known.topic_id, len(known.partitions)) == ("t", known_id, 3)
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (UNKNOWN_TOPIC_ID, None, stranger)

    @pytest.mark.parametrize("version", range(6))
    def test_init_producer_id(self, peer: Peer, version: int) -> None:
        schema = schema_of("init_producer_id", version)
        request = schema.InitProducerIdRequest(
            transactional_id=None, transaction_timeout=timedelta(seconds=1)
        )
        first, second = peer.ask(request), peer.ask(request)
        assert (first.error_code, first.producer_epoch) == (NONE, 0)
        assert 0 <= first.producer_id < second.producer_id

    @pytest.mark.parametrize("version", range(3))
    def test_no_coordinator(self, peer: Peer, version: int) -> None:
        request = schema_of("find_coordinator", version).FindCoordinatorRequest(key="group")
        assert peer.ask(request).error_code == 15

    @pytest.mark.parametrize("version", range(4, 12))
    def test_nothing_to_fetch(self, peer: Peer, version: int) -> None:
        wait = timedelta(0)
        request = schema_of("fetch", version).FetchRequest(
            max_wait=wait, min_bytes=0, topics=(), **fetch_extras(version)
        )
        assert peer.ask(request).responses == ()


def fetch_extras(version: int) -> dict[str, Any]:
    return {"forgotten_topics_data": ()} if version >= 7 else {}


class TestProduce:
    @pytest.mark.parametrize("version", range(3, 14))
    def test_every_version(self, broker: NullBroker, peer: Peer, version: int) -> None:
        topic = topic_id(peer, "t") if version == 13 else "t"
        first = produce(peer, topic, 2, batch(b"a", b"b"), version=version)
        second = produce(peer, topic, 2, batch(b"c"), version=version)
        assert (first.error_code, second.error_code) == (NONE, NONE)
        assert second.base_offset == first.base_offset + 2
        stats = broker.stats()
        assert (stats["records"], stats["batches"], stats["requests"]) == (3, 2, 2)
        assert stats["bytes"] == len(batch(b"a", b"b")) + len(batch(b"c"))
        assert stats["partitions"] == {"t-2": 3}

    @pytest.mark.parametrize("version", [3, 9])
    def test_many_partitions_and_topics_in_one_request(
        self, broker: NullBroker, peer: Peer, version: int
    ) -> None:
        schema = schema_of("produce", version)
        request = schema.ProduceRequest(
            acks=1,
            timeout=timedelta(seconds=1),
            topic_data=tuple(
                schema.TopicProduceData(
                    name=name,
                    partition_data=tuple(
                        schema.PartitionProduceData(index=index, records=batch(*[b"v"] * (index + 1)))
                        for index in (0, 2)
                    ),
                )
                for name in ("t", "u")
            ),
        )
        answers = peer.ask(request).responses
        assert [topic.name for topic in answers] == ["t", "u"]
        assert [[p.index for p in topic.partition_responses] for topic in answers] == [[0, 2], [0, 2]]
        assert all(p.error_code == NONE for topic in answers for p in topic.partition_responses)
        assert broker.stats()["partitions"] == {"t-0": 1, "t-2": 3, "u-0": 1, "u-2": 3}

    def test_one_byte_at_a_time(self, broker: NullBroker, peer: Peer) -> None:
        request = produce_request("t", {0: batch(b"a" * 20, b"b")}, version=9)
        for byte in request_frame(request, correlation_id=5):
            peer.connection.sendall(bytes([byte]))
        assert peer.hear(request, 5).responses[0].partition_responses[0].error_code == NONE
        assert broker.records() == 2

    @pytest.mark.parametrize("size", [1_000, 300_000, 5_000_000])
    def test_batches_larger_than_any_buffer(self, peer: Peer, broker: NullBroker, size: int) -> None:
        answer = produce(peer, "t", 0, batch(bytes(size), random.Random(size).randbytes(size)))
        assert (answer.error_code, broker.records()) == (NONE, 2)

    def test_without_acknowledgement_there_is_no_answer(self, broker: NullBroker, peer: Peer) -> None:
        peer.tell(produce_request("t", {0: batch(b"a")}, acks=0))
        assert produce(peer, "t", 0, batch(b"b")).error_code == NONE
        assert broker.records() == 2

    def test_what_was_cut_off_is_not_counted(self, broker: NullBroker) -> None:
        with peer_of(broker) as peer:
            peer.connection.sendall(
                request_frame(produce_request("t", {0: batch(b"a"), 2: batch(b"b")}))[:-1]
            )
            peer.connection.shutdown(socket.SHUT_WR)
            assert peer.connection.recv(1) == b""
        assert broker.records() == 0

    @pytest.mark.parametrize(
        ("partition", "records", "error"),
        [
            (3, batch(b"a"), UNKNOWN_TOPIC_OR_PARTITION),
            (-1, batch(b"a"), UNKNOWN_TOPIC_OR_PARTITION),
            (1, batch(b"a"), NOT_LEADER_OR_FOLLOWER),
            (0, None, INVALID_RECORD),
            (0, b"", INVALID_RECORD),
            (0, batch(b"a")[:60], CORRUPT_MESSAGE),
            (0, batch(b"a")[:-1], CORRUPT_MESSAGE),
            (0, batch(b"a") + batch(b"b"), INVALID_RECORD),
            (0, tampered(batch(b"a"), ">b", 16, 1), INVALID_RECORD),
            (0, tampered(batch(b"a"), ">i", 57, -1), INVALID_RECORD),
            (0, tampered(batch(b"a"), ">i", 8, -1), CORRUPT_MESSAGE),
            (0, tampered(batch(b"a"), ">i", 8, 2**31 - 1), CORRUPT_MESSAGE),
        ],
    )
    def test_refused(
        self, broker: NullBroker, peer: Peer, partition: int, records: bytes | None, error: int
    ) -> None:
        answer = produce(peer, "t", partition, records)
        assert (answer.error_code, answer.base_offset) == (error, -1)
        stats = broker.stats()
        assert (stats["records"], stats["refused_batches"]) == (0, 1)
        assert produce(peer, "t", 0, batch(b"good")).error_code == NONE

    def test_refused_for_its_acks_or_topic_id(self, peer: Peer) -> None:
        assert produce(peer, "t", 0, batch(b"a"), acks=2).error_code == INVALID_REQUIRED_ACKS
        stranger = UUID(int=1 << 100)
        answer = peer.ask(produce_request(stranger, {0: batch(b"a")}, version=13)).responses[0]
        assert answer.topic_id == stranger
        assert answer.partition_responses[0].error_code == UNKNOWN_TOPIC_ID


class TestVerify:
    @pytest.mark.parametrize("arguments", [(), ("--crc-table",)], ids=["instruction", "table"])
    def test_a_wrong_checksum(self, arguments: tuple[str, ...]) -> None:
        with null_broker(verify=True, arguments=arguments) as broker, peer_of(broker) as peer:
            for size in range(20):
                assert produce(peer, "t", 0, batch(b"v" * size)).error_code == NONE
            content = bytearray(batch(b"v" * 1000))
            content[-1] ^= 1
            assert produce(peer, "t", 0, bytes(content)).error_code == CORRUPT_MESSAGE
            stats = broker.stats()
            assert (stats["records"], stats["crc_errors"], stats["sequence_errors"]) == (20, 1, 0)

    def test_is_off_unless_asked_for(self) -> None:
        with null_broker() as broker, peer_of(broker) as peer:
            wrong = bytearray(batch(b"value", producer=(5, 0, 7)))
            wrong[-1] ^= 1
            for _ in range(2):
                assert produce(peer, "t", 0, bytes(wrong)).error_code == NONE
            assert broker.records() == 2

    def test_sequences(self, broker: NullBroker, peer: Peer) -> None:
        def send(epoch: int, sequence: int, *values: bytes, partition: int = 0) -> int:
            content = batch(*values, producer=(77, epoch, sequence))
            return int(produce(peer, "t", partition, content).error_code)

        assert send(0, 0, b"a", b"b") == NONE
        assert send(0, 0, b"a", partition=2) == NONE
        assert send(0, 2, b"c") == NONE
        assert broker.stats()["sequence_errors"] == 0
        assert send(0, 2, b"c") == DUPLICATE_SEQUENCE_NUMBER
        assert send(0, 0, b"a", b"b") == DUPLICATE_SEQUENCE_NUMBER
        assert send(0, 4, b"e") == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(0, 3, b"d") == NONE
        assert send(1, 1, b"f") == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(1, 0, b"f") == NONE
        assert send(0, 4, b"g") == INVALID_PRODUCER_EPOCH
        stats = broker.stats()
        assert (stats["sequence_errors"], stats["refused_batches"], stats["records"]) == (5, 5, 6)

    def test_sequences_start_again_behind_the_largest(self, broker: NullBroker, peer: Peer) -> None:
        """Kafka's own increment: 2147483647 is followed by 0."""
        records, sequence = 2**31 - 2, 0
        huge = tampered(batch(b"v", producer=(78, 0, 0)), ">i", 57, records)
        assert produce(peer, "t", 0, huge).error_code == NONE
        sequence = records
        for values in ([b"a", b"b", b"c"], [b"d"]):
            assert produce(peer, "t", 0, batch(*values, producer=(78, 0, sequence))).error_code == NONE
            sequence = (sequence + len(values)) % 2**31
        assert sequence == 2
        assert broker.stats()["sequence_errors"] == 0

    def test_thousands_of_producers(self, broker: NullBroker, peer: Peer) -> None:
        for sequence in range(2):
            for producer_id in range(1_000, 3_000):
                peer.tell(produce_request("t", {0: batch(b"v", producer=(producer_id, 0, sequence))}, acks=0))
        assert produce(peer, "t", 2, batch(b"v")).error_code == NONE
        stats = broker.stats()
        assert (stats["records"], stats["sequence_errors"]) == (4_001, 0)


SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def good_frames() -> list[bytes]:
    """Requests that the broker answers, of every API and both header versions."""
    some = batch(b"value", bytes(3_000), producer=(9, 0, 0))
    requests = [
        *(api_versions(version) for version in (0, 3)),
        *(metadata_request(version, "t", "u") for version in (0, 1, 9, 13)),
        *(produce_request("t", {0: some, 2: some}, version=version) for version in (3, 9)),
        produce_request(UUID(int=5), {0: some}, version=13),
    ]
    return [request_frame(request) for request in requests]


def garbage(source: random.Random, frames: list[bytes]) -> bytes:
    """Requests with a few of their bytes changed, or cut off, or nothing like a request."""
    kind = source.randrange(4)
    if kind == 0:
        return source.randbytes(source.randrange(1, 300))
    if kind == 1:
        body = source.randbytes(source.randrange(1, 300))
        api_key, version = source.choice([0, 0, 3, 18, 22]), source.randrange(15)
        return struct.pack(">ihhi", len(body) + 8, api_key, version, 1) + body
    content = bytearray(b"".join(source.choices(frames, k=3)))
    if kind == 2:
        for _ in range(source.randrange(1, 6)):
            content[source.randrange(len(content))] = source.choice(
                [0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)]
            )
    return bytes(content[: source.randrange(len(content))])


@pytest.mark.parametrize("verify", [False, True])
def test_garbage_ends_its_own_connection_only(verify: bool) -> None:
    source = random.Random(f"garbage {verify}")
    frames = good_frames()
    with null_broker(topics={"t": 3}, verify=verify, build_flags=SANITIZED) as broker:
        for _ in range(1_500):
            with peer_of(broker) as peer, contextlib.suppress(ConnectionResetError, BrokenPipeError):
                peer.connection.sendall(garbage(source, frames))
                peer.connection.shutdown(socket.SHUT_WR)
                while peer.connection.recv(1 << 16):
                    pass
        broker.reset()
        with peer_of(broker) as peer:
            assert produce(peer, "t", 0, batch(b"good")).error_code == NONE
        assert broker.records() == 1


@pytest.mark.parametrize("size", [-1, 0, 7, 2**31 - 1])
def test_a_hostile_size_ends_the_connection(broker: NullBroker, peer: Peer, size: int) -> None:
    peer.connection.sendall(struct.pack(">ihh", size, 3, 1))
    with contextlib.suppress(ConnectionResetError):
        assert peer.connection.recv(1) == b""
    assert broker.records() == 0
