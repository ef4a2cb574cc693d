"""Shows that the brokers and judges of the integration tests work, with clients that are not ours.

If one of these fails, no other integration test says anything about our producer.

1. Kafka's tools see what a foreign producer wrote: null and empty, headers, batches, codecs, producer ids.
2. A node that is bounced, killed or stalled is what it should be to its clients meanwhile, and comes back.
3. The mock cluster's controls reach its brokers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaError, Producer

from tests.gate.marks import others_extended
from tests.kafka_cluster import KafkaClusterError
from tests.kafka_node import PORTS
from tests.kafka_tools import KafkaToolError, parse_consumed, parse_dump
from tests.mock_cluster import DISCONNECT, NO_LEADER, Api, MockCluster, MockClusterError

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster
    from tests.kafka_tools import KafkaTools

NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10

# Far above what any of it takes: a bound for a hang, not a budget.
PATIENCE = 60.0


class ForeignProducer:
    """confluent-kafka's producer, as these tests use it: each record acknowledged before the call returns."""

    def __init__(self, bootstrap_servers: str, **settings: object) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "linger.ms": 50,
                "log_level": 0,
                "delivery.timeout.ms": int(PATIENCE * 1000),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.reports: list[tuple[int, int, int | None]] = []

    def send(self, topic: str, *values: bytes | None, partition: int = 0, **record: Any) -> None:
        """Send values to a partition; ``reports`` gets (partition, offset, error code) of each."""
        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._report, **record)
        assert self._producer.flush(PATIENCE) == 0

    def _report(self, error: KafkaError | None, message: Any) -> None:
        code = None if error is None else error.code()
        self.reports.append((message.partition(), message.offset(), code))


# Kafka's tools


def test_console_consumer_reads_records_as_they_were_written(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=2)
    producer = ForeignProducer(kafka1.bootstrap_servers)
    producer.send(topic_name, b"line one\nline two", key=b"k\x00\xff", timestamp=1_700_000_000_123)
    headers = [("trace", b"\x01:\x02"), ("empty", b""), ("none", None), ("trace", b"again")]
    producer.send(topic_name, b"null", headers=headers)
    producer.send(topic_name, None, key=b"tombstone", partition=1)
    producer.send(topic_name, b"", key=b"", partition=1)

    records = sorted(kafka1.console_consume(topic_name), key=lambda record: (record.partition, record.offset))

    assert [(record.partition, record.offset) for record in records] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [record.key for record in records] == [b"k\x00\xff", None, b"tombstone", b""]
    assert [record.value for record in records] == [b"line one\nline two", b"null", None, b""]
    assert (records[0].timestamp_type, records[0].timestamp) == ("CreateTime", 1_700_000_000_123)
    assert records[0].headers == ()
    assert records[1].headers == tuple(headers)


def test_an_empty_topic_is_read_as_nothing(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=3)

    assert kafka1.console_consume(topic_name) == []
    assert kafka1.dump_log(topic_name, 2) == []
    assert kafka1.offsets(topic_name) == {0: (0, 0), 1: (0, 0), 2: (0, 0)}


@pytest.mark.extended("tests the harness with real brokers")
def test_console_consumer_that_cannot_read_enough_raises(
    kafka1: KafkaCluster, kafka_tools: KafkaTools, topic_name: str
) -> None:
    kafka1.create_topic(topic_name)
    ForeignProducer(kafka1.bootstrap_servers).send(topic_name, b"only one")

    with pytest.raises(KafkaToolError, match="read 1 of 2 records"):
        kafka_tools.console_consume(kafka1.bootstrap_servers, topic_name, max_messages=2, timeout=5.0)


@pytest.mark.parametrize(
    "codec",
    others_extended(
        ["none", "gzip", "snappy", "lz4", "zstd"], keep=["zstd"], reason="one codec stays in the gate"
    ),
)
def test_dump_log_shows_batches_of_an_idempotent_producer(
    kafka1: KafkaCluster, topic_name: str, codec: str
) -> None:
    kafka1.create_topic(topic_name)
    settings: dict[str, object] = {"enable_idempotence": True, "compression_type": codec}
    producer = ForeignProducer(kafka1.bootstrap_servers, **settings)
    producer.send(topic_name, b"a" * 500, b"b" * 500, b"c" * 500, headers={"h": b"1", "i": b"2"})
    producer.send(topic_name, None, key=b"key")

    first, second = kafka1.dump_log(topic_name, 0)

    assert (first.base_offset, first.last_offset, first.count) == (0, 2, 3)
    assert (second.base_offset, second.last_offset, second.count) == (3, 3, 1)
    assert (first.base_sequence, first.last_sequence) == (0, 2)
    assert (second.base_sequence, second.last_sequence) == (3, 3)
    assert first.producer_id == second.producer_id >= 0
    assert (first.producer_epoch, first.magic, first.compression) == (0, 2, codec)
    assert first.is_valid
    assert second.is_valid
    assert not first.is_transactional
    assert [record.sequence for record in first.records + second.records] == [0, 1, 2, 3]
    assert [record.value_size for record in first.records + second.records] == [500, 500, 500, -1]
    assert [record.key_size for record in first.records + second.records] == [-1, -1, -1, 3]
    assert first.records[0].header_keys == ("h", "i")
    assert second.records[0].header_keys == ()


def test_dump_log_shows_a_damaged_batch_as_invalid(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    ForeignProducer(kafka1.bootstrap_servers).send(topic_name, b"sound")
    (segment,) = (kafka1.nodes[1].data / f"{topic_name}-0").glob("*.log")
    damaged = segment.read_bytes().replace(b"sound", b"wound")
    copy = kafka1.nodes[1].data.parent / "00000000000000000000.log"
    copy.write_bytes(damaged)

    (batch,) = kafka1.tools.dump_log([copy])

    assert batch.is_valid is False


def test_a_tool_that_fails_raises_what_it_said(kafka_tools: KafkaTools) -> None:
    with pytest.raises(KafkaToolError, match="no-such-option"):
        kafka_tools.run("org.apache.kafka.tools.GetOffsetShell", "--no-such-option")


def test_a_dump_that_is_not_understood_raises() -> None:
    with pytest.raises(KafkaToolError, match="Found timestamp mismatch"):
        parse_dump("Dumping 0.log\nLog starting offset: 0\nFound timestamp mismatch in :0.log\n")


def test_output_that_ends_in_a_record_raises() -> None:
    with pytest.raises(KafkaToolError, match="in the middle of a record"):
        parse_consumed(b"CreateTime:1|Partition:0|Offs", b"|", b"\n", b",", b"~")


# Real brokers


def test_three_brokers_replicate_by_default(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name, partitions=6)
    kafka3.wait_until_in_sync(topic_name)
    producer = ForeignProducer(kafka3.bootstrap_servers)
    producer.send(topic_name, b"replicated")

    states = kafka3.partitions(topic_name)

    assert sorted(states) == [0, 1, 2, 3, 4, 5]
    assert {state.leader for state in states.values()} == {1, 2, 3}
    assert all(state.isr == {1, 2, 3} for state in states.values())
    crcs = {kafka3.dump_log(topic_name, 0, node_id)[0].crc for node_id in kafka3.nodes}
    assert len(crcs) == 1


async def test_another_client_reads_the_topic_back(kafka1: KafkaCluster, topic_name: str) -> None:
    await asyncio.to_thread(kafka1.create_topic, topic_name)
    producer = ForeignProducer(kafka1.bootstrap_servers)
    await asyncio.to_thread(producer.send, topic_name, b"one", b"two", b"three")

    consumer = AIOKafkaConsumer(
        topic_name, bootstrap_servers=kafka1.bootstrap_servers, auto_offset_reset="earliest"
    )
    async with asyncio.timeout(PATIENCE), consumer:
        values = [(await consumer.getone()).value for _ in range(3)]

    assert values == [b"one", b"two", b"three"]


@pytest.mark.parametrize("hard", [False, True], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.extended("tests the harness with real brokers")
def test_a_bounced_leader_comes_back_with_its_log(kafka3: KafkaCluster, topic_name: str, hard: bool) -> None:
    kafka3.create_topic(topic_name)
    kafka3.wait_until_in_sync(topic_name)
    producer = ForeignProducer(kafka3.bootstrap_servers, enable_idempotence=True)
    producer.send(topic_name, b"before")
    leader = kafka3.leader_of(topic_name, 0)
    process = kafka3.nodes[leader].process

    kafka3.bounce(leader, hard=hard)
    producer.send(topic_name, b"after")
    kafka3.wait_until_in_sync(topic_name)

    assert kafka3.nodes[leader].process is not process
    assert [code for _, _, code in producer.reports] == [None, None]
    assert [record.value for record in kafka3.console_consume(topic_name)] == [b"before", b"after"]
    assert sum(batch.count for batch in kafka3.dump_log(topic_name, 0, leader)) == 2


@pytest.mark.extended("tests the harness with real brokers")
def test_a_killed_leader_is_replaced_and_mended(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name)
    kafka3.wait_until_in_sync(topic_name)
    leader = kafka3.leader_of(topic_name, 0)

    kafka3.kill(leader)
    with pytest.raises(KafkaClusterError, match="is not running"):
        kafka3.stall(leader)
    kafka3.wait_until_led(topic_name, partitions=1)
    ForeignProducer(kafka3.bootstrap_servers).send(topic_name, b"to the next leader")

    assert kafka3.leader_of(topic_name, 0) != leader
    kafka3.mend()
    kafka3.wait_until_in_sync(topic_name)
    assert sum(batch.count for batch in kafka3.dump_log(topic_name, 0, leader)) == 1


@pytest.mark.extended("tests the harness with real brokers")
def test_a_cluster_that_rested_has_what_it_had(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name)
    ForeignProducer(kafka1.bootstrap_servers).send(topic_name, b"before")

    kafka1.rest()
    assert [node.is_running for node in kafka1.nodes.values()] == [False]
    kafka1.mend()

    assert [record.value for record in kafka1.console_consume(topic_name)] == [b"before"]


@pytest.mark.extended("tests the harness with real brokers")
def test_a_stalled_broker_keeps_its_sockets_and_answers_nothing(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    kafka1.create_topic(topic_name)
    # ApiVersions v0, correlation id 7, null client id: the one request that any broker answers.
    request = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"

    kafka1.stall(1)
    with socket.create_connection(("127.0.0.1", kafka1.nodes[1].port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(PATIENCE)
        kafka1.resume(1)
        answer = connection.recv(8)

    assert answer[4:8] == b"\x00\x00\x00\x07"


def test_brokers_listen_below_the_ports_of_outgoing_connections(kafka3: KafkaCluster) -> None:
    ports = [port for node in kafka3.nodes.values() for port in (node.port, node.controller_port)]
    with socket.create_connection(("127.0.0.1", ports[0])) as connection:
        outgoing = connection.getsockname()[1]

    assert len(set(ports)) == 6
    assert all(port in PORTS for port in ports)
    assert outgoing not in PORTS


def test_a_deleted_topic_is_gone(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name, partitions=3)

    kafka3.delete_topic(topic_name)

    assert all(kafka3.partitions(topic_name, node_id) == {} for node_id in kafka3.nodes)


def test_configs_reach_the_topic(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, configs={"max.message.bytes": "1000"})
    producer = ForeignProducer(kafka1.bootstrap_servers)

    producer.send(topic_name, b"x" * 2000)

    assert [code for _, _, code in producer.reports] == [MESSAGE_TOO_LARGE]


# The mock cluster


def test_mock_cluster_takes_records_and_counts_requests(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name, partitions=3)
    mock_cluster.set_leader(topic_name, 1, 2)
    mock_cluster.start_tracking()
    producer = ForeignProducer(mock_cluster.bootstrap_servers)

    producer.send(topic_name, b"one", b"two", partition=1)

    assert producer.reports == [(1, 0, None), (1, 1, None)]
    assert [request.broker_id for request in mock_cluster.requests(Api.PRODUCE)] == [2]
    assert len(mock_cluster.requests()) > len(mock_cluster.requests(Api.PRODUCE))


@pytest.mark.parametrize("fault", [NOT_LEADER_OR_FOLLOWER, DISCONNECT])
def test_mock_cluster_injects_what_a_producer_retries(
    mock_cluster: MockCluster, topic_name: str, fault: int
) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.start_tracking()
    mock_cluster.push_errors(Api.PRODUCE, fault)
    producer = ForeignProducer(mock_cluster.bootstrap_servers)

    producer.send(topic_name, b"twice on the wire")

    assert producer.reports == [(0, 0, None)]
    assert len(mock_cluster.requests(Api.PRODUCE)) == 2


def test_mock_cluster_injects_one_final_error_with_delay(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name)
    mock_cluster.set_leader(topic_name, 0, 3)
    mock_cluster.push_delayed_errors(3, Api.PRODUCE, [(MESSAGE_TOO_LARGE, 0.01)])
    producer = ForeignProducer(mock_cluster.bootstrap_servers)

    producer.send(topic_name, b"refused")
    producer.send(topic_name, b"accepted")

    assert [code for _, _, code in producer.reports] == [MESSAGE_TOO_LARGE, None]


def test_mock_cluster_refuses_to_crash_the_process(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name)
    with pytest.raises(MockClusterError, match=r"set_api_version\(Api.PRODUCE, 0, 9\)"):
        mock_cluster.set_leader(topic_name, 0, NO_LEADER)

    mock_cluster.set_api_version(Api.PRODUCE, 0, 9)
    mock_cluster.set_api_version(Api.FETCH, 0, 11)
    mock_cluster.set_leader(topic_name, 0, NO_LEADER)
    consumer = Producer({"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0})
    metadata = consumer.list_topics(topic_name, timeout=PATIENCE)

    assert metadata.topics[topic_name].partitions[0].leader == NO_LEADER


def test_mock_cluster_brokers_go_down_and_up(mock_cluster: MockCluster, topic_name: str) -> None:
    mock_cluster.create_topic(topic_name)
    host, _, port = mock_cluster.bootstrap_servers.split(",")[0].rpartition(":")

    mock_cluster.set_down()
    with pytest.raises(ConnectionError), socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.recv(1)
    mock_cluster.set_up()

    producer = ForeignProducer(mock_cluster.bootstrap_servers)
    producer.send(topic_name, b"up again")
    assert producer.reports == [(0, 0, None)]


def test_mock_cluster_control_calls_that_fail_raise(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("twice")
    with pytest.raises(MockClusterError, match="topic_create"):
        mock_cluster.create_topic("twice")
    with pytest.raises(MockClusterError, match="outside its with block"):
        MockCluster().create_topic("never")
