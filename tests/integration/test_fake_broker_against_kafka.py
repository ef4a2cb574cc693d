"""The oracle of the broker model: real brokers answer the same requests alike, and Kafka's consumer reads it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from aioproduce.drivers.blocking_client import BlockingConnection
from aioproduce.testing import FakeCluster
from tests.kafka_ask import partition_states
from tests.unit.fake_broker_peer import (
    ANSWERS_AFTER_TRUNCATION,
    ANSWERS_TO_TWICE,
    REPLICATED_ANSWERS,
    REPLICATED_BEFORE_TRUNCATION,
    SCRIPTS,
    TRANSACTIONAL_ANSWERS,
    WRITTEN_BEFORE_TRUNCATION,
    Step,
    answers_to_twice,
    batch,
    decoded,
    find_transaction_coordinator,
    init_producer_id,
    produce_request,
    replicate,
)
from tests.wire_oracle import request_frame, response_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_cluster import KafkaCluster
    from tests.kafka_tools import KafkaTools


class RealPeer:
    """One blocking connection to a real broker."""

    def __init__(self, host: str, port: int) -> None:
        self.connection = BlockingConnection(host, port, timeout=30)

    def ask(self, request: Any) -> Any:
        answer = self.connection.exchange(request_frame(request))
        cls = type(request)
        return decoded(response_class(cls.__api_key__, cls.__version__), bytes(answer))

    def ask_until_ready(self, request: Any) -> Any:
        """Ask again while the coordinator loads, moves, or ends the previous step (pytest's time-out bounds it)."""
        while (answer := self.ask(request)).error_code.value in (14, 15, 16, 51):
            pass
        return answer

    def produce(self, topic: str, step: Step) -> Any:
        answer = self.ask(produce_request(topic, {0: step.content}, version=step.version, acks=step.acks))
        return answer.responses[0].partition_responses[0]


@pytest.fixture
def peer(kafka1: KafkaCluster) -> Iterator[RealPeer]:
    host, port = kafka1.bootstrap_servers.split(",")[0].rsplit(":", 1)
    real = RealPeer(host, int(port))
    yield real
    real.connection.close()


@pytest.mark.parametrize("steps", SCRIPTS.values(), ids=SCRIPTS)
def test_script(kafka1: KafkaCluster, peer: RealPeer, topic_name: str, steps: tuple[Step, ...]) -> None:
    kafka1.create_topic(topic_name, partitions=1)

    answers = [peer.produce(topic_name, step) for step in steps]

    assert [(answer.error_code.value, answer.base_offset) for answer in answers] == [
        (step.code, step.base_offset) for step in steps
    ]
    # What is wrong with a record is found at several places in Kafka, not all of which know the log.
    told = [answer.log_start_offset for answer in answers if answer.error_code.value != 87]
    assert told == [0 if step.code in (0, 32, 45, 47) else -1 for step in steps if step.code != 87]


class RealTopic:
    """The real side of `replicate`: `kafka3`'s own topic, of whose followers one is stopped by SIGSTOP."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.leader = cluster.leader_of(topic, 0)
        self.follower = next(node_id for node_id in cluster.nodes if node_id != self.leader)
        self.peer = RealPeer("127.0.0.1", cluster.nodes[self.leader].port)

    def produce(self, content: bytes, *, acks: int = -1, timeout: float = 0.5) -> tuple[int, int]:
        answer = self.peer.ask(produce_request(self.topic, {0: content}, acks=acks, timeout=timeout))
        (only,) = answer.responses[0].partition_responses
        return only.error_code.value, only.base_offset

    def hold(self) -> None:
        self.cluster.stall(self.follower)

    def release(self) -> None:
        self.cluster.resume(self.follower)

    def wait_for_isr(self, replicas: int) -> None:
        # pytest's time-out bounds it: the controller fences the stopped node after broker.session.timeout.ms.
        while len(partition_states(self.cluster.nodes[self.leader].port, self.topic)[0].isr) != replicas:
            time.sleep(0.05)


@pytest.mark.scenario(35, "K")
@pytest.mark.extended("the scripts stay in the gate")
def test_acks_all_while_a_follower_is_held_up(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name, partitions=1, configs={"min.insync.replicas": "3"})
    kafka3.wait_until_in_sync(topic_name)

    topic = RealTopic(kafka3, topic_name)
    with contextlib.closing(topic.peer.connection):
        assert replicate(topic) == REPLICATED_ANSWERS


@pytest.mark.scenario(36, "K")
@pytest.mark.extended("the scripts stay in the gate")
def test_sequences_after_an_unclean_election(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(
        topic_name, partitions=1, replication=2, configs={"unclean.leader.election.enable": "true"}
    )
    kafka3.wait_until_in_sync(topic_name, 2)
    topic = RealTopic(kafka3, topic_name)
    (state,) = kafka3.partitions(topic_name).values()
    (follower,) = state.isr - {topic.leader}
    for sequence in WRITTEN_BEFORE_TRUNCATION:
        if sequence == REPLICATED_BEFORE_TRUNCATION:
            kafka3.terminate(follower)
            topic.wait_for_isr(1)
        assert topic.produce(_young_batch(sequence), timeout=20.0) == (0, sequence)
    topic.peer.connection.close()

    kafka3.stall(topic.leader)
    kafka3.start(follower)
    # The controller fences the stopped leader after broker.session.timeout.ms.
    other = next(node_id for node_id in kafka3.nodes if node_id not in (topic.leader, follower))
    while partition_states(kafka3.nodes[other].port, topic_name)[0].leader != follower:
        time.sleep(0.05)
    peer = RealPeer("127.0.0.1", kafka3.nodes[follower].port)
    with contextlib.closing(peer.connection):
        answers = [
            (sequence, *_code_and_offset(peer, topic_name, sequence))
            for sequence, _, _ in ANSWERS_AFTER_TRUNCATION
        ]

    assert answers == ANSWERS_AFTER_TRUNCATION


def _young_batch(sequence: int) -> bytes:
    """A broker that starts forgets producers whose last record is older than `producer.id.expiration.ms`."""
    return batch(b"v", producer=(9300, 0, sequence), timestamp=int(time.time() * 1000))


def _code_and_offset(peer: RealPeer, topic: str, sequence: int) -> tuple[int, int]:
    """Asked again while the broker has not yet heard that it leads."""
    step = Step(_young_batch(sequence), 0, acks=1)
    while (answer := peer.produce(topic, step)).error_code.value in (3, 6):
        pass
    return answer.error_code.value, answer.base_offset


def test_of_two_batches_of_a_partition_in_a_request_the_last_is_kept(
    kafka1: KafkaCluster, kafka_tools: KafkaTools, peer: RealPeer, topic_name: str
) -> None:
    kafka1.create_topic(topic_name, partitions=1)

    assert answers_to_twice(peer.ask, topic_name) == ANSWERS_TO_TWICE
    records = kafka_tools.console_consume(kafka1.bootstrap_servers, topic_name, max_messages=2)
    assert [(record.offset, record.value) for record in records] == [(0, b"c"), (1, b"d")]


def test_more_in_sync_replicas_than_there_are_cannot_be_demanded(
    kafka1: KafkaCluster, peer: RealPeer, topic_name: str
) -> None:
    kafka1.create_topic(topic_name, partitions=1, configs={"min.insync.replicas": "2"})

    assert peer.produce(topic_name, Step(batch(b"v"), 0)).error_code.value == 0


def test_an_idempotent_producer_gets_a_new_id_whatever_it_names(peer: RealPeer) -> None:
    first = peer.ask_until_ready(init_producer_id())
    second = peer.ask_until_ready(init_producer_id(producer=(first.producer_id, 0)))

    assert (first.error_code.value, first.producer_epoch) == (0, 0)
    assert (second.error_code.value, second.producer_epoch) == (0, 0)
    assert second.producer_id != first.producer_id


def test_a_transactional_id_is_bumped_and_fenced(peer: RealPeer, topic_name: str) -> None:
    peer.ask_until_ready(find_transaction_coordinator(topic_name))
    first = peer.ask_until_ready(init_producer_id(topic_name))
    second = peer.ask_until_ready(init_producer_id(topic_name))
    third = peer.ask_until_ready(
        init_producer_id(topic_name, producer=(second.producer_id, second.producer_epoch))
    )
    stale = peer.ask_until_ready(
        init_producer_id(topic_name, producer=(first.producer_id, first.producer_epoch))
    )
    foreign = peer.ask_until_ready(init_producer_id(f"{topic_name}-other", producer=(first.producer_id, 0)))

    answers = [first, second, third, stale, foreign]
    assert [(answer.error_code.value, answer.producer_epoch) for answer in answers] == TRANSACTIONAL_ANSWERS
    assert first.producer_id == second.producer_id == third.producer_id


def test_a_duplicate_is_answered_with_a_log_append_time(
    kafka1: KafkaCluster, peer: RealPeer, topic_name: str
) -> None:
    """Even where the topic has CreateTime: the model repeats this oddity."""
    kafka1.create_topic(topic_name, partitions=1)
    step = Step(batch(b"v", b"w", producer=(9100, 0, 0)), 0)

    first, second = peer.produce(topic_name, step), peer.produce(topic_name, step)

    assert first.log_append_time is None
    assert second.log_append_time is not None


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
async def test_kafkas_own_consumer_reads_a_fake_cluster(
    kafka_tools: KafkaTools, isolation_level: str
) -> None:
    async with FakeCluster(3, topics={"t": 3}) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type="lz4")
        await producer.start()
        for n in range(200):
            await producer.send("t", b"%d" % n, key=b"%d" % (n % 7), headers=[("n", b"%d" % n)])
        await producer.stop()

        consumed = await asyncio.to_thread(
            kafka_tools.console_consume,
            cluster.bootstrap_servers,
            "t",
            max_messages=200,
            isolation_level=isolation_level,
        )

    assert sorted(
        (record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in consumed
    ) == [
        (record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in cluster.records("t")
    ]
