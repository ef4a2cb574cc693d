"""Transaction markers as bytes: the control batches that brokers write into the logs of partitions.

Used by `log`. Written from the format's description in Kafka's documentation ("Control Batches"), and checked
against aiokafka and librdkafka, which must hide them from users.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, final

from crc32c import crc32c

from aioproduce.testing.fake_cluster.record_batch import (
    CONTROL_FLAG,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC: Final = struct.Struct(">I")
_CRC_OFFSET: Final = 17
_ABORT: Final = 0
_COMMIT: Final = 1
# The record after its length: attributes and deltas (three bytes), key and value with their lengths, no headers.
_RECORD: Final = struct.Struct(">bbbbbhhbhib")
# Lengths are zigzag varints: twice the number.
_KEY_LENGTH, _VALUE_LENGTH = 2 * 4, 2 * 6


@final
class Marker(NamedTuple):
    """A transaction's end in one partition.

    Attributes:
        version: The `transaction.version` at the transaction's end.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int


def encode_marker(marker: Marker, timestamp: int) -> bytes:
    """Return the control batch of one marker, for offset 0."""
    record = _RECORD.pack(
        2 * (_RECORD.size - 1),
        *(0, 0, 0),
        *(_KEY_LENGTH, 0, _COMMIT if marker.is_commit else _ABORT),
        *(_VALUE_LENGTH, 0, marker.coordinator_epoch),
        0,
    )
    size = HEADER_BYTES + len(record)
    batch = bytearray(size)
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    producer = (marker.producer_id, marker.epoch, -1)
    _HEADER.pack_into(
        batch, 0, 0, size - LOG_OVERHEAD, 0, 2, 0, attributes, 0, timestamp, timestamp, *producer, 1
    )
    batch[HEADER_BYTES:] = record
    _CRC.pack_into(batch, _CRC_OFFSET, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def is_commit_marker(content: bytes) -> bool:
    """Return whether a control batch commits."""
    return bool(_RECORD.unpack_from(content, HEADER_BYTES)[6] == _COMMIT)


def coordinator_epoch_of(content: bytes) -> int:
    """Return the coordinator epoch in a control batch."""
    return int(_RECORD.unpack_from(content, HEADER_BYTES)[9])
