"""What `benchmarks.broker_counts` reads from real brokers is what DumpLogSegments finds in their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer

from benchmarks.broker_counts import BrokerCounts
from tests.kafka_install import find_or_install

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster


def send(servers: str, topic: str, partition: int, values: list[bytes]) -> None:
    """Send these values as one batch."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 500, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def test_the_counts_are_those_of_the_log(kafka3: KafkaCluster, topic_name: str) -> None:
    topic = kafka3.create_topic(topic_name, partitions=2)
    pids = [node.process.pid for node in kafka3.nodes.values() if node.process is not None]
    with BrokerCounts(find_or_install(), pids) as counts:
        before = counts.read(topic)
        assert before.figures() == {}
        for number, partition in enumerate((0, 1, 0)):
            send(kafka3.bootstrap_servers, topic, partition, [b"v" * 100] * (number + 1))
        sent = counts.read(topic) - before
        other = counts.read("no-such-topic")
    dumped = [batch for partition in (0, 1) for batch in kafka3.dump_log(topic, partition)]
    assert sent.records == 6
    assert sent.batches == sent.requests == len(dumped) == 3
    assert sent.record_bytes == sum(batch.size for batch in dumped)
    assert sent.record_bytes < sent.request_bytes < sent.record_bytes + 3 * 200
    # With acks=all each of two replicas has fetched each batch, and the three were sent one after another.
    assert sent.fetches >= 6
    assert (other.records, other.batches, other.record_bytes) == (0, 0, 0)
    figures = sent.figures()
    assert figures["records_per_batch"] == 2
    assert figures["batches_per_request"] == 1
    assert figures["requests_per_million"] == 500_000
