"""Record batch v2 as a broker reads it: header, checksum, records.

Used by `log` on every append (header, checksum, shape) and by inspection (`FakeCluster.records`). Independent of
the producer's own encoder, in order to check it. Written from the format's description in Kafka's documentation
("Record Batch"); every read is bounds-checked.

Invariants:
1. Any bytes give a batch, or an `InvalidBatchError`.
2. The checks on every append cost one pass of CRC-32C and one step per record (the length prefixes must add up to
   the batch and to the count in its header). Keys, values, headers and offset deltas are read on inspection, or
   always with `check_records=True`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from aioproduce.testing.fake_cluster.codecs import decompress
from aioproduce.testing.fake_cluster.failures import InvalidBatchError

HEADER_BYTES: Final = 61
# The checksum covers everything from the attributes on.
CRC_START: Final = 21
# The bytes that the length field does not count: base offset and the field itself.
LOG_OVERHEAD: Final = 12
MAGIC_OFFSET: Final = 16
NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20

MAX_SEQUENCE: Final = 2**31 - 1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC: Final = struct.Struct(">I")
_FIRST_FIELDS: Final = struct.Struct(">qii")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")


class BatchHeader(NamedTuple):
    """The 61 bytes before the records of a batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec_id(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamps are the broker's."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether it has a transaction marker, which no client may write."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; 0 follows 2^31-1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


class DecodedRecord(NamedTuple):
    """One record of a batch, with its deltas resolved."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_header(batch: bytes | memoryview) -> BatchHeader:
    """Read the header of a batch that is at least `HEADER_BYTES` long."""
    return BatchHeader._make(_HEADER.unpack_from(batch))


def parse_single_batch(records: bytes | memoryview, produce_version: int) -> BatchHeader:
    """Check that `records` is exactly one v2 batch, as Produce requests since v3 require.

    Args:
        records: The bytes of one partition in a Produce request.
        produce_version: The request's version: zstd needs v7 (KIP-110).

    Returns:
        Its header; the checksum and the records are not checked yet.

    Raises:
        InvalidBatchError: INVALID_RECORD, CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE, as in Kafka's
            `ProduceRequest.validateRecords` and its log. Bytes after the batch are refused even if they are not a
            complete second batch, which Kafka ignores: no producer has a reason to send them.
    """
    if len(records) <= MAGIC_OFFSET:
        raise _invalid("Produce requests must have at least one record batch per partition")
    batch_length = int.from_bytes(records[8:12], "big", signed=True)
    if batch_length < 14:
        raise InvalidBatchError(
            ErrorCode.corrupt_message, f"Record size {batch_length} is less than the minimum"
        )
    if batch_length + LOG_OVERHEAD > len(records):
        raise _invalid("The record batch is longer than the bytes that came")
    if records[MAGIC_OFFSET] > 2:
        raise InvalidBatchError(ErrorCode.corrupt_message, "Invalid magic found in record")
    if records[MAGIC_OFFSET] < 2:
        raise _invalid("Produce requests are only allowed to contain record batches with magic version 2")
    if batch_length + LOG_OVERHEAD < HEADER_BYTES:
        raise InvalidBatchError(ErrorCode.corrupt_message, "The record batch is shorter than its header")
    header = read_header(records)
    if produce_version < 7 and header.codec_id == 4:
        raise InvalidBatchError(
            ErrorCode.unsupported_compression_type, "Produce requests before version 7 may not use zstd"
        )
    if batch_length + LOG_OVERHEAD < len(records):
        raise _invalid("Produce requests are only allowed to contain exactly one record batch per partition")
    return header


def check_crc(header: BatchHeader, batch: bytes | memoryview) -> None:
    """Raise CORRUPT_MESSAGE unless the checksum is right."""
    computed = crc32c(memoryview(batch)[CRC_START:])
    if computed != header.crc:
        raise InvalidBatchError(
            ErrorCode.corrupt_message,
            f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})",
        )


def check_client_batch(header: BatchHeader) -> None:
    """Raise INVALID_RECORD for a header that no client may send (Kafka's `LogValidator.validateBatch`).

    It is stricter than Kafka in one respect: the LogAppendTime flag is refused for every topic, while Kafka clears
    it if the topic has CreateTime.
    """
    if header.base_offset != 0:
        raise _invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if header.last_offset_delta < 0:
        raise _invalid(f"Batch has an invalid offset range: [0, {header.last_offset_delta}]")
    if header.record_count <= 0:
        raise _invalid(f"Invalid reported count for record batch: {header.record_count}")
    if header.last_offset_delta + 1 != header.record_count:
        raise _invalid(
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.record_count}"
        )
    if header.is_control:
        raise _invalid("Clients are not allowed to write control records")
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        raise _invalid(f"Invalid sequence number {header.base_sequence} in record batch")
    if header.is_log_append_time:
        raise InvalidBatchError(
            ErrorCode.invalid_timestamp, "Producer should not set timestamp type to LogAppendTime"
        )


def check_shape(header: BatchHeader, batch: bytes | memoryview) -> None:
    """Raise INVALID_RECORD unless the records' length prefixes fill the batch and give the header's count."""
    records = _records_of(header, batch)
    position = 0
    end = len(records)
    count = 0
    while position < end:
        size = records[position]
        if size < 0x80:
            position += 1
            size = (size >> 1) ^ -(size & 1)
        else:
            size, position = _read_varint(records, position)
        if size < 0:
            raise _invalid(f"Invalid record size {size}")
        position += size
        count += 1
    if position != end:
        raise _invalid("Incorrect declared batch size, premature end of the last record")
    if count != header.record_count:
        raise _invalid(f"The batch claims to have {header.record_count} records, but has {count}")


def decode_records(header: BatchHeader, batch: bytes | memoryview) -> list[DecodedRecord]:
    """Read every record of a batch.

    Raises:
        InvalidBatchError: INVALID_RECORD if the records do not fit the header, or if offset deltas do not count
            from 0.
    """
    records = _records_of(header, batch)
    decoded: list[DecodedRecord] = []
    position = 0
    for index in range(header.record_count):
        size, position = _read_varint(records, position)
        if size < 0 or size > len(records) - position:
            raise _invalid(f"Record {index} is longer than its batch")
        record = _decode_record(header, records[position : position + size], index)
        decoded.append(record)
        position += size
    if position != len(records):
        raise _invalid("Incorrect declared batch size, records still remaining")
    return decoded


def stamp(
    batch: bytes | memoryview, *, base_offset: int, leader_epoch: int, append_time: int | None
) -> bytes:
    """Return the batch as the leader writes it to its log.

    Args:
        batch: One valid batch.
        base_offset: The offset of its first record.
        leader_epoch: The partition's leader epoch.
        append_time: Milliseconds for a LogAppendTime topic, which changes attributes and checksum; `None` keeps
            the producer's timestamps.

    Returns:
        A copy.
    """
    stamped = bytearray(batch)
    _FIRST_FIELDS.pack_into(stamped, 0, base_offset, len(stamped) - LOG_OVERHEAD, leader_epoch)
    if append_time is not None:
        attributes = _ATTRIBUTES.unpack_from(stamped, CRC_START)[0] | LOG_APPEND_TIME_FLAG
        _ATTRIBUTES.pack_into(stamped, CRC_START, attributes)
        _MAX_TIMESTAMP.pack_into(stamped, 35, append_time)
        _CRC.pack_into(stamped, 17, crc32c(memoryview(stamped)[CRC_START:]))
    return bytes(stamped)


def _records_of(header: BatchHeader, batch: bytes | memoryview) -> bytes:
    return decompress(header.codec_id, bytes(memoryview(batch)[HEADER_BYTES:]))


def _decode_record(header: BatchHeader, record: bytes, index: int) -> DecodedRecord:
    if not record:
        raise _invalid(f"Record {index} is empty")
    timestamp_delta, position = _read_varint(record, 1)
    offset_delta, position = _read_varint(record, position)
    if offset_delta != index:
        raise _invalid(f"Record {index} has the offset delta {offset_delta}")
    key, position = _read_bytes(record, position)
    value, position = _read_bytes(record, position)
    header_count, position = _read_varint(record, position)
    if header_count < 0 or header_count > len(record) - position:
        raise _invalid(f"Found invalid number of record headers {header_count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, position = _read_bytes(record, position)
        if name is None:
            raise _invalid("Invalid null header key")
        content, position = _read_bytes(record, position)
        try:
            headers.append((name.decode(), content))
        except UnicodeDecodeError as error:
            raise _invalid("A header's key is not UTF-8") from error
    if position != len(record):
        raise _invalid(f"Record {index}: {len(record) - position} bytes are left over")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return DecodedRecord(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _read_bytes(record: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(record, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(record):
        raise _invalid("A key, value or header is longer than its record")
    return record[position:end], end


def _read_varint(source: bytes, position: int) -> tuple[int, int]:
    """One zigzag varint of at most ten bytes, and the position after it."""
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(source):
            raise _invalid("The batch ends within a number")
        byte = source[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
    raise _invalid("A number is longer than ten bytes")


def _invalid(message: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.invalid_record, message)
