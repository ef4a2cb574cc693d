"""Confluent's wire format: the bytes before the payload that identify its schema.

    magic   schema id           Protobuf only: position of the message in its file      payload
    0x00    4 bytes, big end    count and indexes, as zigzag varints; 0x00 for [0]      ...

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

_HEAD: Final = struct.Struct(">bI")
_MAGIC: Final = 0
_FIRST_MESSAGE: Final = (0,)


def schema_prefix(schema_id: int) -> bytes:
    """Return magic byte and schema id."""
    return _HEAD.pack(_MAGIC, schema_id)


def message_indexes(indexes: Sequence[int]) -> bytes:
    """Return a Protobuf message's position in its file: its index among the messages, then among nested ones.

    The first message of a file, by far the most frequent one, has a short form of one byte.
    """
    if tuple(indexes) == _FIRST_MESSAGE:
        return b"\0"
    return b"".join(_zigzag_varint(number) for number in (len(indexes), *indexes))


def _zigzag_varint(number: int) -> bytes:
    # Never negative here, so zigzag only doubles.
    rest = number << 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
