"""The stamp of a record: its producer's id and its number, in one header of fixed size.

Written by the producer's hot path (`_native/record_numbers`) and by the Spark sink, read by programs that audit a
log or a lake. Needs only the standard library.

The header's name is `ap.id`, and its value has 24 bytes:

    0   16  the producer's id: random for each start of an audited producer, a hash of the task in the Spark sink
    16   8  the record's number, unsigned, big-endian: from 0 on, over all topics of that producer

Invariants:

1. A stamp is read exactly as it was packed; a value of another size is an error, never a guess.
2. The bytes of two stamps of one producer compare as their numbers do.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from aioproduce.audit.errors import StampError

STAMP_HEADER: Final = "ap.id"
"""The name of the header."""

PRODUCER_ID_SIZE: Final = 16
"""The size of a producer's id in bytes."""

STAMP_SIZE: Final = 24
"""The size of the header's value in bytes."""

MAX_SEQUENCE: Final = 2**64 - 1
"""The maximum number."""

_STAMP: Final = struct.Struct(">16sQ")


class Stamp(NamedTuple):
    """The content of a stamp.

    Attributes:
        producer_id: 16 bytes.
        sequence: The record's number, from 0 on.
    """

    producer_id: bytes
    sequence: int


def pack_stamp(producer_id: bytes, sequence: int) -> bytes:
    """Return the value of the header.

    Args:
        producer_id: 16 bytes.
        sequence: A number from 0 to 2**64 - 1.

    Raises:
        StampError: If the id does not have 16 bytes, or if the number is out of range.

    Example:
        >>> pack_stamp(bytes(16), 258).hex()
        '000000000000000000000000000000000000000000000102'
    """
    if len(producer_id) != PRODUCER_ID_SIZE:
        raise StampError(f"a producer's id must have {PRODUCER_ID_SIZE} bytes, not {len(producer_id)}")
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise StampError(f"a record's number must be from 0 to {MAX_SEQUENCE}, not {sequence}")
    return _STAMP.pack(producer_id, sequence)


def unpack_stamp(value: bytes | bytearray | memoryview | None) -> Stamp:
    """Return the content of a header's value.

    Raises:
        StampError: If it does not have 24 bytes: it was truncated, or another program uses that header.

    Example:
        >>> unpack_stamp(bytes(23) + b"*").sequence
        42
    """
    size = -1 if value is None else memoryview(value).nbytes
    if value is None or size != STAMP_SIZE:
        what = "null" if value is None else f"{size} bytes"
        raise StampError(
            f"the header {STAMP_HEADER} has {STAMP_SIZE} bytes if aioproduce wrote it, not {what}: put "
            "the record in quarantine, or rename your own header"
        )
    return Stamp(*_STAMP.unpack(value))
