"""Kafka's own DumpLogSegments reads a queue's log: offsets, sizes, checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.spool import SpooledProducer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_tools import KafkaTools

pytestmark = pytest.mark.kafka


async def test_kafka_reads_what_was_stored(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    async with SpooledProducer("127.0.0.1:1", directory=tmp_path / "spool", segment_bytes=5_000) as producer:
        for start in range(0, 1_000, 100):
            values = [b"%d" % number for number in range(start, start + 100)]
            await producer.send_many("orders", values, [b"key"] * 100, headers=[("name", b"1")], timestamp=1)
        await producer.close(0)
    segments = sorted((tmp_path / "spool" / "queue-0" / "logs" / "orders-0").glob("*.log"))
    assert len(segments) > 2
    batches = kafka_tools.dump_log(segments)
    records = [record for batch in batches for record in batch.records]
    assert [record.offset for record in records] == list(range(1_000))
    assert {(record.key_size, record.timestamp, record.header_keys) for record in records} == {
        (3, 1, ("name",))
    }
    assert [record.value_size for record in records] == [len(b"%d" % number) for number in range(1_000)]
