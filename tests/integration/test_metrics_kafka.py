"""`producer.metrics()` compared with the metrics of Kafka's Java producer, printed by `kafka-producer-perf-test`.

1. Every name that the Java client has, in its group and with its tags, is ours too.
2. After the same records to the same broker, what both count is equal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioproduce import Producer

if TYPE_CHECKING:
    from aioproduce.metrics import MetricsSnapshot
    from tests.kafka_cluster import KafkaCluster

JAVA: Final = "org.apache.kafka.tools.ProducerPerformance"
LINE: Final = re.compile(r"^([\w-]+):([\w-]+):\{(.*)\}\s*: (.*)$")

RECORDS: Final = 500
SIZE: Final = 100
BATCH_SIZE: Final = 16_384
"""Bytes: the default of `batch.size`."""

Metrics = dict[tuple[str, str, frozenset[str]], str]
"""(group, name, names of its tags) -> value; of several topics or brokers any."""


def java_metrics(cluster: KafkaCluster, topic: str) -> Metrics:
    """What the Java producer's metrics are after `RECORDS` of `SIZE` bytes."""
    printed = cluster.tools.run(
        JAVA,
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", "--print-metrics"),
    )
    found: Metrics = {}
    for line in printed.splitlines():
        match = LINE.match(line.strip())
        if match is not None:
            group, name, tags, value = match.groups()
            found[group, name, frozenset(re.findall(r"([\w-]+)=", tags))] = value.strip()
    assert len(found) > 80, f"kafka-producer-perf-test prints something else now:\n{printed[:2000]}"
    return found


def our_metrics(snapshot: MetricsSnapshot) -> dict[tuple[str, str, frozenset[str]], float | str]:
    return {(each.group, each.name, frozenset(each.tags)): each.value for each in snapshot}


async def test_all_of_javas_names_are_ours_and_what_both_count_is_equal(
    kafka1: KafkaCluster, topic_name: str
) -> None:
    kafka1.create_topic(topic_name, partitions=1)
    java = java_metrics(kafka1, topic_name)
    async with Producer(kafka1.bootstrap_servers) as producer:
        for _ in range(RECORDS):
            await producer.send(topic_name, bytes(SIZE))
        await producer.flush()
        ours = our_metrics(producer.metrics())

    assert java.keys() - ours.keys() == set()

    me, of_topic = frozenset({"client-id"}), frozenset({"client-id", "topic"})
    for group, name, tags in (
        ("producer-metrics", "record-send-total", me),
        ("producer-metrics", "record-error-total", me),
        ("producer-metrics", "record-retry-total", me),
        ("producer-metrics", "batch-split-total", me),
        ("producer-metrics", "buffer-total-bytes", me),
        ("producer-metrics", "compression-rate-avg", me),
        ("producer-metrics", "requests-in-flight", me),
        ("producer-metrics", "txn-init-time-ns-total", me),
        ("producer-metrics", "successful-authentication-total", me),
        ("producer-metrics", "successful-authentication-no-reauth-total", me),
        ("producer-metrics", "failed-authentication-total", me),
        ("producer-topic-metrics", "record-send-total", of_topic),
        ("producer-topic-metrics", "record-error-total", of_topic),
        ("producer-topic-metrics", "compression-rate", of_topic),
    ):
        assert float(java[group, name, tags]) == ours[group, name, tags], name

    # Java's `flush()` ends before the last batch's buffer is given back: there it may be missing still.
    available = ("producer-metrics", "buffer-available-bytes", me)
    total = float(ours["producer-metrics", "buffer-total-bytes", me])
    assert ours[available] == total
    assert float(java[available]) in {total, total - BATCH_SIZE}
    assert ours["producer-topic-metrics", "record-send-total", of_topic] == RECORDS
