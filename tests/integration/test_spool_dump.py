"""Kafka's own DumpLogSegments reads a queue's log: offsets, sizes, checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproduce.spool import SpooledProducer
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.topic_log import TopicLog
from tests.spool.batches import make_batch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_tools import KafkaTools

pytestmark = pytest.mark.kafka


def test_kafka_reads_a_log_with_a_hole(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    log = TopicLog(FileSystem(), str(tmp_path / "orders-0"), 100_000, keeps=True)
    log.append([[make_batch([b"0", b"1"])], [make_batch([b"5"])]], [0, 5])
    log.close()
    first, hole, last = kafka_tools.dump_log([tmp_path / "orders-0" / "00000000000000000000.log"])
    assert [record.offset for record in (*first.records, *last.records)] == [0, 1, 5]
    assert (hole.base_offset, hole.last_offset, hole.count, hole.records) == (2, 4, 0, ())


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
