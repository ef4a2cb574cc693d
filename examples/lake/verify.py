"""A second opinion on the lake and on Kafka, with none of this package's code: pyarrow, and librdkafka's consumer.

Called by `__main__`. An audit that agrees with nobody else proves little: what it counts is counted here once
more, from the files and from the topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from confluent_kafka import Consumer, KafkaException, TopicPartition

READ_TIMEOUT: Final = 60.0
STAMP_HEADER: Final = "ap.id"


@dataclass(frozen=True, slots=True)
class Counted:
    """What is in one topic, or in one topic's part of the lake.

    Attributes:
        records: All of them.
        different: Different stamps among them.
        producer_ids: Different producers' ids among the stamps.
        unlike: Stamps that stand on records of different values: never one.
    """

    records: int
    different: int
    producer_ids: frozenset[bytes]
    unlike: int

    @property
    def repeated(self) -> int:
        """Records whose stamp was there already."""
        return self.records - self.different


def in_lake(lake: Path) -> dict[str, Counted]:
    """Each topic of a lake, read by pyarrow."""
    stamps: dict[str, Counter[bytes]] = {}
    values: dict[str, dict[bytes, bytes | None]] = {}
    unlike: Counter[str] = Counter()
    columns = ["topic", "producer_id", "sequence", "value"]
    files = ds.dataset(lake / "table=data", format="parquet", partitioning="hive")
    for batch in files.to_batches(columns=columns):
        rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        for topic, producer_id, sequence, value in rows:
            _count(stamps, values, unlike, topic, producer_id + sequence.to_bytes(8), value)
    return _counted(stamps, unlike)


def in_kafka(servers: str, topics: Mapping[str, int]) -> dict[str, Counted]:
    """Each topic up to its end of now, read by librdkafka.

    Args:
        servers: The brokers.
        topics: How many partitions each has.

    Raises:
        KafkaException: Not all of it came in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "second-opinion",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        places = [
            TopicPartition(topic, number, 0) for topic, count in topics.items() for number in range(count)
        ]
        left = sum(consumer.get_watermark_offsets(place, timeout=READ_TIMEOUT)[1] for place in places)
        consumer.assign(places)
        stamps: dict[str, Counter[bytes]] = {}
        values: dict[str, dict[bytes, bytes | None]] = {}
        unlike: Counter[str] = Counter()
        while left > 0:
            messages = consumer.consume(min(left, 10_000), timeout=READ_TIMEOUT)
            if not messages:
                raise KafkaException(f"{left} records did not come within {READ_TIMEOUT:.0f} s")
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                topic, stamp = message.topic(), dict(message.headers() or ())[STAMP_HEADER]
                assert topic is not None
                assert isinstance(stamp, bytes)
                _count(stamps, values, unlike, topic, stamp, message.value())
            left -= len(messages)
    finally:
        consumer.close()
    return _counted(stamps, unlike)


def _count(
    stamps: dict[str, Counter[bytes]],
    values: dict[str, dict[bytes, bytes | None]],
    unlike: Counter[str],
    topic: str,
    stamp: bytes,
    value: bytes | None,
) -> None:
    stamps.setdefault(topic, Counter())[stamp] += 1
    if values.setdefault(topic, {}).setdefault(stamp, value) != value:
        unlike[topic] += 1


def _counted(stamps: Mapping[str, Counter[bytes]], unlike: Counter[str]) -> dict[str, Counted]:
    return {
        topic: Counted(
            records=counts.total(),
            different=len(counts),
            producer_ids=frozenset(stamp[:16] for stamp in counts),
            unlike=unlike[topic],
        )
        for topic, counts in stamps.items()
    }
