"""The head of a record batch on disk: what is needed to find, check and place a batch without its records.

The format is Kafka's record batch v2 ("Record Batch" in its protocol guide). Its checksum begins behind the base
offset, the length and the leader epoch, so the log can assign offsets to a sealed batch. The log puts a checksum of
offset, length and checksum where a broker has the leader epoch. Without it, a power cut could leave the offset of a
new batch in front of the rest of an old one, in a file that is used again, and nothing would notice.

Offsets that were given to records which are not in the log are a hole: a batch without records, as Kafka's cleaner
leaves one. So each offset of a log is accounted for, and one that is missing is damage.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    from aioproduce.spool.disk import Buffer

HEAD_SIZE: Final = 61
"""Bytes before the first record."""

PREFIX_SIZE: Final = 16
"""Base offset, length, and the log's own checksum: the bytes that the log writes, before the magic byte."""

LENGTH_START: Final = 12
"""Where the bytes begin that the length counts."""

_MAGIC: Final = 2
_MAGIC_BYTE: Final = bytes([_MAGIC])
_CRC_START: Final = 21
_FIRST_TIMESTAMP: Final = struct.Struct(">q")
_FIRST_TIMESTAMP_START: Final = 27
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_MAGIC_AND_CRC: Final = struct.Struct(">bI")
_BODY: Final = struct.Struct(">hiqqqhii")
_NOTHING: Final = -1
_MOST_OFFSETS: Final = 2**31 - 1
_PREFIX: Final = struct.Struct(">qii")
_SEALED: Final = struct.Struct(">qiI")
_POSITIVE: Final = 0x7FFFFFFF
_LEAST_LENGTH: Final = HEAD_SIZE - LENGTH_START


class BatchHead(NamedTuple):
    """A batch's head.

    Attributes:
        base_offset: The offset of its first record.
        end_offset: The offset behind its last.
        size: All its bytes, the head's too.
        record_count: Its records; their offsets are consecutive. A hole has none.
        first_timestamp: The first record's time, in milliseconds since the epoch.
        max_timestamp: The latest time of a record.
        crc: The checksum that it claims.
    """

    base_offset: int
    end_offset: int
    size: int
    record_count: int
    first_timestamp: int
    max_timestamp: int
    crc: int


def read_head(content: Buffer, at: int = 0) -> BatchHead | None:
    """Return the head at a place of some bytes; None if no batch begins there. It checks the log's own checksum."""
    if len(content) - at < HEAD_SIZE:
        return None
    fields = _HEAD.unpack_from(content, at)
    (offset, length, seal, magic, crc, _, last_delta, first, latest, _, _, _, count) = fields
    if magic != _MAGIC or length < _LEAST_LENGTH or offset < 0 or last_delta < 0 or count < 0:
        return None
    if seal != _seal(offset, length, crc) or (last_delta != count - 1 and (count or length != _LEAST_LENGTH)):
        return None
    return BatchHead(offset, offset + last_delta + 1, length + LENGTH_START, count, first, latest, crc)


def place(batch: Buffer, base_offset: int) -> BatchHead:
    """Return the head that a sealed batch gets in the log at an offset."""
    (_, length, _, _, crc, _, _, first, latest, _, _, _, count) = _HEAD.unpack_from(batch)
    return BatchHead(base_offset, base_offset + count, length + LENGTH_START, count, first, latest, crc)


def holes(base_offset: int, end_offset: int) -> list[bytes]:
    """Return batches without records, for offsets that no record in the log has."""
    starts = range(base_offset, end_offset, _MOST_OFFSETS)
    return [_hole(start, min(start + _MOST_OFFSETS, end_offset)) for start in starts]


def _hole(base_offset: int, end_offset: int) -> bytes:
    last_delta = end_offset - base_offset - 1
    body = _BODY.pack(0, last_delta, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, 0)
    crc = crc32c(body)
    return prefix(base_offset, HEAD_SIZE, crc) + _MAGIC_AND_CRC.pack(_MAGIC, crc) + body


def read_sealed(batch: Buffer) -> tuple[int, int, int]:
    """Return size, number of records and checksum of a batch that no log has seen."""
    (_, length, _, _, crc, *_, count) = _HEAD.unpack_from(batch)
    return length + LENGTH_START, count, crc


def first_timestamp(batch: Buffer) -> int:
    """Return the first record's time of a batch, in milliseconds since the epoch."""
    timestamp: int = _FIRST_TIMESTAMP.unpack_from(batch, _FIRST_TIMESTAMP_START)[0]
    return timestamp


def is_whole(batch: memoryview, head: BatchHead) -> bool:
    """Return whether the bytes of a batch are those that were sealed."""
    return len(batch) == head.size and crc32c(batch[_CRC_START:]) == head.crc


def has_whole_body(content: memoryview) -> bool:
    """Return whether bytes begin with a batch whose body is as it was sealed, whatever its offset and seal are."""
    if len(content) < HEAD_SIZE:
        return False
    (_, length, _, magic, crc, *_) = _HEAD.unpack_from(content)
    size = length + LENGTH_START
    has_size = magic == _MAGIC and HEAD_SIZE <= size <= len(content)
    return bool(has_size and crc32c(content[_CRC_START:size]) == crc)


def prefix(base_offset: int, size: int, crc: int) -> bytes:
    """Return the first bytes of a batch in the log; the rest of it is written as it was sealed."""
    length = size - LENGTH_START
    return _PREFIX.pack(base_offset, length, _seal(base_offset, length, crc))


def _seal(offset: int, length: int, crc: int) -> int:
    return crc32c(_SEALED.pack(offset, length, crc)) & _POSITIVE


def is_begun(content: bytes, offset: int) -> bool:
    """Return whether a batch was written here, although its head is damaged: its offset is right, or its body."""
    has_offset = int.from_bytes(content[:8], "big") == offset and bool(content.strip(b"\0"))
    return has_offset or (read_head(content) is None and has_whole_body(memoryview(content)))


def is_reserved(content: bytes, offset: int) -> bool:
    """Return whether this is room that nobody has written to yet: zeros, or what a file held that is used again.

    Such a file ends with a hole of its earlier use (`topic_log`), so there is a whole batch in it.
    """
    return not content.strip(b"\0") or find_batch(memoryview(content), -1, offset) is not None


def find_batch(content: memoryview, after: int, before: int) -> tuple[int, BatchHead] | None:
    """Return place and head of the first whole batch whose offsets are behind `after` and before `before`."""
    searched = bytes(content)
    magic = searched.find(_MAGIC_BYTE, PREFIX_SIZE)
    while magic >= 0:
        place = magic - PREFIX_SIZE
        head = read_head(content, place)
        is_next = head is not None and after < head.base_offset < before
        if head is not None and is_next and is_whole(content[place : place + head.size], head):
            return place, head
        magic = searched.find(_MAGIC_BYTE, magic + 1)
    return None
