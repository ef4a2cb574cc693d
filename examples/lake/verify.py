"""A second count of the lake and of Kafka, without this package's code: by pyarrow and librdkafka's consumer.

Called by `__main__`. An audit alone proves little, so this module counts the same figures again, from the files and
from the topics.
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
    """The counts of one topic, or of its part of the lake.

    Attributes:
        records: All records.
        different: Distinct stamps.
        producer_ids: Distinct producer ids in the stamps.
        unlike: Records whose value differs from the first one with the same stamp. It must be 0.
    """

    records: int
    different: int
    producer_ids: frozenset[bytes]
    unlike: int

    @property
    def repeated(self) -> int:
        """Records with a repeated stamp."""
        return self.records - self.different


def in_lake(lake: Path) -> dict[str, Counted]:
    """Count each topic of a lake, with pyarrow."""
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
    """Count each topic up to its present end, with librdkafka.

    Args:
        servers: The brokers.
        topics: The number of partitions by topic.

    Raises:
        KafkaException: if a record does not arrive in time.
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
                raise KafkaException(f"{left} records did not arrive within {READ_TIMEOUT:.0f} s")
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
