"""The broker's side of record batches (`aioproduce.testing.fake_cluster`): header, shape, records, append.

1. Any bytes give a batch or an InvalidBatchError; of an append, an offset or a refusal with an error code.
2. What can be decoded has the shape that an append asks for, and as many records as its header says.
3. What a client may send, uncompressed and with its checksum made right, aiokafka decodes to the same records.
4. Memory is in proportion to the bytes, where they are not compressed.

The input is a batch as it is; its checksum is made right for the third.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from unittest import mock

from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from aioproduce.testing.fake_cluster import codecs
from aioproduce.testing.fake_cluster import record_batch as broker
from aioproduce.testing.fake_cluster.failures import InvalidBatchError, RefusedError
from aioproduce.testing.fake_cluster.log import PartitionLog, TopicConfig
from tests.fuzz.target import MemoryBound, Target
from tests.unit.fake_broker_peer import batch

MOST = 1 << 16
WALL_MS = 1_700_000_000_000


def with_checksum(content: bytes) -> bytes:
    return content[:17] + struct.pack(">I", crc32c(content[21:])) + content[21:]


def is_refused(check: Callable[[], object]) -> bool:
    try:
        check()
    except InvalidBatchError:
        return True
    return False


def run(data: bytes) -> None:
    with mock.patch.object(codecs, "MAX_DECOMPRESSED_BYTES", MOST):
        try_batch(data)


def has_plain_attributes(content: bytes) -> bool:
    """Whether each record's attributes, an unused byte, are below 128: aiokafka takes them for a varint."""
    at = 61
    while at < len(content):
        size, shift = 0, 0
        while content[at] >= 0x80:
            size |= (content[at] & 0x7F) << shift
            shift += 7
            at += 1
        size |= content[at] << shift
        if content[at + 1] >= 0x80:
            return False
        at += 1 + (size >> 1)
    return True


def try_batch(content: bytes) -> None:
    try:
        header = broker.parse_single_batch(content, 13)
    except InvalidBatchError:
        return
    is_refused(lambda: broker.check_crc(header, content))
    content = with_checksum(content)
    header = broker.read_header(content)
    is_client_batch = not is_refused(lambda: broker.check_client_batch(header))
    has_shape = not is_refused(lambda: broker.check_shape(header, content))
    records: list[broker.DecodedRecord] | None = None
    factor = 400 if header.codec_id == 0 else 400 * MOST
    with MemoryBound(len(content), factor=factor, constant=64 * 1024):
        try:
            records = broker.decode_records(header, content)
        except InvalidBatchError:
            records = None
    if records is not None and header.record_count > 0:
        assert len(records) == header.record_count
        assert has_shape
    log = PartitionLog(TopicConfig())
    try:
        appended = log.append(content, produce_version=13, leader_epoch=0, wall_ms=WALL_MS)
    except RefusedError:
        return
    assert appended.base_offset == 0
    assert is_client_batch
    assert has_shape
    if records is not None and header.codec_id == 0 and has_plain_attributes(content):
        decoded = DefaultRecordBatch(content)
        assert decoded.validate_crc()
        read = [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in decoded]
        assert read == [tuple(record) for record in records]


def mutate(data: bytes, largest: int, chance: Random, engine: Callable[[bytes, int], bytes]) -> bytes:
    """The engine's, and the batch's length made right, so that the batch is not refused for that alone."""
    content = engine(data, largest)
    if chance.random() < 0.8 and len(content) > 61:
        content = content[:8] + struct.pack(">i", len(content) - 12) + content[12:16] + b"\x02" + content[17:]
    return content


def seeds() -> Iterator[bytes]:
    headers = (("name", b"value"), ("empty", None))
    for codec in range(5):
        yield batch(b"v", None, b"", codec=codec, key=b"k", headers=headers)
    yield batch(*[b"v" * 70] * 3, producer=(9, 0, 2**31 - 2))
    yield batch(b"v", is_transactional=True)


TARGETS = {"record_batch": Target(run, seeds, mutate=mutate)}
