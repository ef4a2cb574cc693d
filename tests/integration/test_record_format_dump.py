"""Kafka's own DumpLogSegments reads a log segment made of our batches: every codec, at the ends of its levels."""

from __future__ import annotations

import random
import re
import struct
from typing import TYPE_CHECKING, Any

import pytest

from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce.compression import codec_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_tools import KafkaTools

pytestmark = pytest.mark.kafka

CODECS: list[tuple[str, dict[str, int]]] = [
    ("none", {}),
    *(("gzip", {"gzip_level": level}) for level in (-1, 1, 9)),
    ("snappy", {}),
    *(("lz4", {"lz4_level": level}) for level in (1, 2, 3, 8, 9, 10, 12, 17)),
    *(("zstd", {"zstd_level": level}) for level in (-131072, -1, 0, 3, 22)),
]

PRODUCER_ID, PRODUCER_EPOCH = 4242, 3

BATCH_LINE = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (\d+) lastSequence: \d+ producerId: (\d+)"
    r" producerEpoch: (\d+) .*compresscodec: (\w+) crc: \d+ isvalid: (\w+)"
)
RECORD_LINE = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: \d+ headerKeys: \[(.*?)\]"
    r"(?: key: (\S+))?(?: payload: (\S*))?"
)

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def any_record(source: random.Random) -> Record:
    """A record whose key and value have no blanks: they are printed as text."""
    word = b"%d," % source.randrange(10**6)
    return (
        1_700_000_000_000 + source.randrange(-1000, 100_000),
        b"key-%d" % source.randrange(50) if source.random() < 0.7 else None,
        word * source.randrange(60) if source.random() < 0.9 else None,
        [(f"h{i}", source.choice([None, b"", b"x" * 300])) for i in range(source.randrange(3))],
    )


def segment(source: random.Random) -> tuple[bytes, list[tuple[str, int]], list[Record]]:
    """A log segment, name of codec and number of records for each batch, and the records."""
    log = bytearray()
    batches: list[tuple[str, int]] = []
    records: list[Record] = []
    for name, levels in CODECS:
        codec = codec_for(name, **levels)
        # More than two blocks of lz4 and four of snappy.
        batch = RecordBatchBuffer(bytearray(150_000))
        record = any_record(source)
        base_offset = len(records)
        while batch.try_append(*record) >= 0:
            records.append(record)
            record = any_record(source)
        buffers, size = batch.seal(
            producer_id=PRODUCER_ID,
            producer_epoch=PRODUCER_EPOCH,
            base_sequence=base_offset,
            attributes=codec.id if codec else 0,
            compressed=codec.compress(batch.records_view()) if codec else None,
        )
        batches.append((name, batch.record_count))
        position = len(log)
        log += b"".join(buffers)
        assert len(log) == position + size
        # What the broker does when it appends: the CRC does not cover the base offset.
        struct.pack_into(">q", log, position, base_offset)
    return bytes(log), batches, records


def printed(record: Record) -> tuple[Any, ...]:
    """A record's fields as DumpLogSegments prints them."""
    timestamp, key, value, headers = record
    return (
        timestamp,
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        ",".join(name for name, _ in headers),
        None if key is None else key.decode(),
        None if value is None else value.decode(),
    )


def test_kafkas_dump_reads_every_batch_and_record(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    log, batches, records = segment(random.Random(11))
    (tmp_path / "topic-0").mkdir()
    file = tmp_path / "topic-0" / "00000000000000000000.log"
    file.write_bytes(log)

    output = kafka_tools.run(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--files",
        str(file),
    )

    dumped_batches = BATCH_LINE.findall(output)
    expected, base_offset = [], 0
    for name, count in batches:
        last = base_offset + count - 1
        numbers = (base_offset, last, count, base_offset, PRODUCER_ID, PRODUCER_EPOCH)
        expected.append((*map(str, numbers), name, "true"))
        base_offset += count
    assert dumped_batches == expected

    dumped = [match.groups() for match in RECORD_LINE.finditer(output)]
    assert [int(found[0]) for found in dumped] == list(range(len(records)))
    assert [
        (int(time), int(key_size), int(value_size), names, key, value)
        for _, time, key_size, value_size, names, key, value in dumped
    ] == [printed(record) for record in records]
