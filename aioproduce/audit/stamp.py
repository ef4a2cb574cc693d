"""The stamp of a record: who sent it, and its number there, in one header of a fixed width.

Written by the producer's hot path (`_native/record_numbers`) and by the Spark sink, read by whoever audits a log or
a lake. Needs nothing but the standard library.

The header's name is `ap.id`; its value has 24 bytes:

    0   16  the producer: random for each start of an audited one, a hash of the task in the Spark sink
    16   8  the record's number, unsigned, big-endian: from 0 on, over all topics of that producer

Invariants:

1. A stamp that is read is the stamp that was packed; a value of another width is an error, never a guess.
2. The bytes of two stamps of one producer compare as their numbers do.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from aioproduce.audit.errors import StampError

STAMP_HEADER: Final = "ap.id"
"""The name of the header."""

PRODUCER_ID_SIZE: Final = 16
"""Bytes of a producer's id."""

STAMP_SIZE: Final = 24
"""Bytes of the header's value."""

MAX_SEQUENCE: Final = 2**64 - 1
"""The highest number that fits."""

_STAMP: Final = struct.Struct(">16sQ")


class Stamp(NamedTuple):
    """What a stamp says.

    Attributes:
        producer_id: 16 bytes.
        sequence: The record's number, from 0 on.
    """

    producer_id: bytes
    sequence: int


def pack_stamp(producer_id: bytes, sequence: int) -> bytes:
    """The value of the header.

    Args:
        producer_id: 16 bytes.
        sequence: From 0 to 2**64 - 1.

    Raises:
        StampError: the id has not 16 bytes, or the number does not fit.

    Example:
        >>> pack_stamp(bytes(16), 258).hex()
        '000000000000000000000000000000000000000000000102'
    """
    if len(producer_id) != PRODUCER_ID_SIZE:
        raise StampError(f"a producer's id has {PRODUCER_ID_SIZE} bytes, not {len(producer_id)}")
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise StampError(f"a record's number is from 0 to {MAX_SEQUENCE}, not {sequence}")
    return _STAMP.pack(producer_id, sequence)


def unpack_stamp(value: bytes | bytearray | memoryview | None) -> Stamp:
    """What a header's value says.

    Raises:
        StampError: it has not 24 bytes: written by something else under that name, or cut.

    Example:
        >>> unpack_stamp(bytes(23) + b"*").sequence
        42
    """
    size = -1 if value is None else memoryview(value).nbytes
    if value is None or size != STAMP_SIZE:
        what = "null" if value is None else f"{size} bytes"
        raise StampError(
            f"the header {STAMP_HEADER} is {STAMP_SIZE} bytes where aioproduce wrote it, not {what}: put "
            "the record in quarantine, or rename that header of yours"
        )
    return Stamp(*_STAMP.unpack(value))
