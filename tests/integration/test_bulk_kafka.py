"""The bulk calls against one real broker: what they wrote is read by Kafka's own consumer and dump.

1. No expected value comes from our own decoder.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce import Producer

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaCluster

COUNT = 5_000
KEYS = [None if number % 7 == 0 else b"key-%d" % (number % 97) for number in range(COUNT)]
VALUES = [None if number % 11 == 0 and number % 7 else b"%06d" % number for number in range(COUNT)]


async def by_columns(producer: Producer, topic: str) -> list[Any]:
    return await (await producer.send_many(topic, iter(VALUES), iter(KEYS), timestamp=1_700_000_000_000))


async def by_batches(producer: Producer, topic: str) -> list[Any]:
    metadata: list[Any] = []
    for start in range(0, COUNT, 500):
        batch = producer.create_batch(max_size=100_000)
        stop = start + 500
        assert batch.append_many(VALUES[start:stop], KEYS[start:stop], timestamp=1_700_000_000_000) == 500
        metadata += await (await producer.send_batch(batch, topic, partition=start // 500 % 3))
    return metadata


async def by_arrow(producer: Producer, topic: str) -> list[Any]:
    pa = pytest.importorskip("pyarrow", reason="send_arrow() needs the extra aioproduce[arrow]")
    table = pa.table(
        {
            "key": pa.array(KEYS, pa.large_binary()),
            "value": pa.array(VALUES, pa.binary()),
            "timestamp": pa.array([1_700_000_000_000] * COUNT, pa.timestamp("ms", "UTC")).cast(
                pa.timestamp("us", "UTC")
            ),
        }
    )
    return await (await producer.send_arrow(topic, table))


@pytest.mark.kafka
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("send", [by_columns, by_batches, by_arrow])
async def test_kafka_reads_every_record_where_it_was_acknowledged(
    kafka1: KafkaCluster, topic_name: str, send: Any, codec: Any
) -> None:
    kafka1.create_topic(topic_name, partitions=3)
    async with Producer(kafka1.bootstrap_servers, compression_type=codec, linger_ms=5) as producer:
        metadata = await send(producer, topic_name)
    assert len(metadata) == COUNT
    read = await asyncio.to_thread(kafka1.console_consume, topic_name)
    found = {(record.partition, record.offset): record for record in read}
    assert len(read) == len(found) == COUNT
    for key, value, told in zip(KEYS, VALUES, metadata, strict=True):
        record = found[told.partition, told.offset]
        assert (record.key, record.value, record.timestamp) == (key, value, 1_700_000_000_000)
