"""What the tests on librdkafka's mock cluster share: the producer, its kinds, and the judgement of the log.

Used by ``tests/integration/test_producer_mock*.py``.

1. A kind is a way to be acknowledged. The mock makes no difference between acks=1 and acks=all; the client
   does, in what it calls ambiguous.
2. The mock appends a repeated batch again. An idempotent producer is therefore judged by what a broker that
   remembers its producers would have kept (``tests/integration/mock_log.py``); where such a broker would have
   refused a batch that the mock took, the test fails.
3. Without idempotence a repetition is allowed, and nothing else is.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from aioproduce import Producer
from tests.integration.mock_log import as_kafka_keeps, read_batches
from tests.kafka_tools import ConsumedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.mock_log import Kept
    from tests.integration.traffic import Traffic, Verdict
    from tests.mock_cluster import MockCluster

ERRORS = Path(__file__).parent.parent / "vectors" / "kafka-errors.tsv"

# A bound for a hang of the consumer, not a budget.
PATIENCE = 60.0

QUICK: dict[str, Any] = {
    "linger_ms": 2,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}

# Without idempotence one request at a time: then its order is promised too, but for repetitions.
KINDS: dict[str, dict[str, Any]] = {
    "acks=1": {"acks": "1", "enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
    "acks=all": {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
    "idempotent": {},
}


def javas_errors() -> Iterator[tuple[int, str, bool]]:
    """Code, name and whether its exception is a RetriableException, of each of Kafka's errors."""
    for line in ERRORS.read_text().splitlines():
        code, name, is_retriable, _ = line.split("\t")
        yield int(code), name, is_retriable == "true"


def producer_of(cluster: MockCluster, kind: str = "idempotent", **settings: Any) -> Producer:
    """A producer that backs off briefly."""
    return Producer(cluster.bootstrap_servers, **QUICK | KINDS[kind] | settings)


def read_back(cluster: MockCluster, topic: str) -> list[ConsumedRecord]:
    """Read every record that the topic holds now, with librdkafka's consumer."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "judge", "log_level": 0})
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        places = [TopicPartition(topic, partition, 0) for partition in known]
        ends = [consumer.get_watermark_offsets(place, PATIENCE)[1] for place in places]
        consumer.assign(places)
        records: list[ConsumedRecord] = []
        while len(records) < sum(ends):
            message = consumer.poll(PATIENCE)
            assert message is not None, f"read {len(records)} of {sum(ends)} records"
            assert message.error() is None, message.error()
            records.append(consumed(message))
        return records
    finally:
        consumer.close()


def consumed(message: Any) -> ConsumedRecord:
    kind, timestamp = message.timestamp()
    return ConsumedRecord(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=timestamp,
        timestamp_type={1: "CreateTime", 2: "LogAppendTime"}[kind],
        headers=tuple(message.headers() or ()),
        key=message.key(),
        value=message.value(),
    )


async def judge(traffic: Traffic, cluster: MockCluster, topic: str) -> Verdict:
    """The verdict on what librdkafka's consumer reads: where nothing may be there twice, whatever the kind."""
    return traffic.judge(await asyncio.to_thread(read_back, cluster, topic))


async def judge_kind(traffic: Traffic, cluster: MockCluster, topic: str, kind: str) -> Verdict:
    """The verdict that must be empty for a kind of producer, whatever happened to its answers."""
    kept = await kept_of(cluster, topic)
    assert kept.refused == []
    stored = sorted([*kept.batches, *kept.repeated], key=lambda batch: (batch.partition, batch.base_offset))
    verdict = traffic.judge(record for batch in stored for record in batch.records())
    if kind == "idempotent":
        exact = traffic.judge(record for batch in kept.batches for record in batch.records())
        verdict.duplicated, verdict.disordered = exact.duplicated, exact.disordered
    else:
        verdict.duplicated.clear()
    return verdict


async def kept_of(cluster: MockCluster, topic: str) -> Kept:
    """What Kafka would have made of the topic's log."""
    return as_kafka_keeps(await asyncio.to_thread(read_batches, cluster, topic))
