"""BlockingProducer against a real broker: threads, a broker that is killed under load, and a child process.

1. What was written is read by Kafka's own consumer.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import BlockingProducer
from tests.blocking.threads import in_threads

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

ROOT = Path(__file__).parents[2]
THREADS, COUNT = 8, 2_000


def send(producer: BlockingProducer, topic: str, thread: int) -> list[Any]:
    deliveries = [
        producer.send(topic, b"%d/%d" % (thread, number), key=b"key-%d" % thread) for number in range(COUNT)
    ]
    return [delivery.result() for delivery in deliveries]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_record_is_where_it_was_acknowledged(kafka1: KafkaCluster, topic_name: str, codec: Any) -> None:
    kafka1.create_topic(topic_name, partitions=3)
    with BlockingProducer(
        kafka1.bootstrap_servers, compression_type=codec, buffer_memory=200_000
    ) as producer:
        told = in_threads([partial(send, producer, topic_name, thread) for thread in range(THREADS)])
    read = kafka1.console_consume(topic_name)
    found = {(record.partition, record.offset): record for record in read}
    assert len(read) == len(found) == THREADS * COUNT
    for thread in range(THREADS):
        offsets = [metadata.offset for metadata in told[thread]]
        assert offsets == sorted(offsets)
        for number, metadata in enumerate(told[thread]):
            record = found[metadata.partition, metadata.offset]
            assert (record.key, record.value) == (b"key-%d" % thread, b"%d/%d" % (thread, number))


def test_a_broker_that_is_killed_under_load_loses_nothing(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=3)
    begun, ended = threading.Event(), threading.Event()
    acknowledged: dict[int, list[int]] = defaultdict(list)

    with BlockingProducer(
        kafka1.bootstrap_servers, delivery_timeout_ms=600_000, max_block_ms=600_000
    ) as producer:

        def work(thread: int) -> None:
            number = 0
            while not ended.is_set():
                deliveries = []
                for _ in range(100):
                    deliveries.append(
                        producer.send(topic_name, b"%d/%d" % (thread, number), key=b"%d" % thread)
                    )
                    number += 1
                for delivery in deliveries:
                    delivery.result()
                acknowledged[thread].append(number)
                begun.set()

        def interrupt() -> None:
            begun.wait()
            kafka1.bounce(1, hard=True)
            producer.send_and_wait(topic_name, b"after", key=b"after")
            ended.set()

        in_threads([interrupt, *(partial(work, thread) for thread in range(4))])

    by_key = defaultdict(list)
    for record in kafka1.console_consume(topic_name):
        by_key[record.key].append(record.value)
    for thread in range(4):
        # Once each, in the order of sending.
        count = acknowledged[thread][-1]
        assert by_key[b"%d" % thread] == [b"%d/%d" % (thread, number) for number in range(count)]


def test_a_child_and_an_exit(kafka1: KafkaCluster, topic_name: str) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    program = """
import os, sys
from aioproduce import BlockingProducer
producer = BlockingProducer(sys.argv[1], restart_after_fork=True, linger_ms=60_000)
producer.start()
producer.send(sys.argv[2], b"parent")
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    producer.send(sys.argv[2], b"child")
"""
    subprocess.run(
        [sys.executable, "-c", program, kafka1.bootstrap_servers, topic_name], cwd=ROOT, check=True
    )
    assert {record.value for record in kafka1.console_consume(topic_name)} == {b"child", b"parent"}
    assert len(kafka1.console_consume(topic_name)) == 2
