"""Record batches for tests of the log, made and read without the producer's encoder.

The format is "Record Batch" in Kafka's protocol guide.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

_BODY = struct.Struct(">hiqqqhii")


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def make_batch(values: Sequence[bytes], timestamp: int = 1_700_000_000_000) -> memoryview:
    """Return a sealed batch of records without keys, as a producer hands it over: its base offset is 0."""
    records = b""
    for index, value in enumerate(values):
        record = b"\0" + _varint(0) + _varint(index) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(record)) + record
    count = len(values)
    body = _BODY.pack(0, count - 1, timestamp, timestamp, -1, -1, -1, count) + records
    sealed = struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body
    return memoryview(sealed)


def _read_varint(content: memoryview, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def read_values(batch: memoryview) -> list[tuple[int, bytes]]:
    """Return offset and value of each record of a batch that `make_batch()` made."""
    (base,) = struct.unpack_from(">q", batch)
    (count,) = struct.unpack_from(">i", batch, 57)
    at, found = 61, []
    for _ in range(count):
        _, at = _read_varint(batch, at)
        _, at = _read_varint(batch, at + 1)
        index, at = _read_varint(batch, at)
        _, at = _read_varint(batch, at)
        size, at = _read_varint(batch, at)
        found.append((base + index, bytes(batch[at : at + size])))
        _, at = _read_varint(batch, at + size)
    return found
