"""Read the records that a `RecordBatchBuffer` wrote, to split a batch. It is not compiled, and not fast.

The bytes are always our own, so nothing is checked.
"""

from __future__ import annotations

from typing import TypeAlias

Record: TypeAlias = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value, headers."""


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    shift = 0
    value = 0
    while True:
        byte: int = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _read_nullable(view: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(view, position)
    if size < 0:
        return None, position
    return bytes(view[position : position + size]), position + size


def _read_headers(view: memoryview, position: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = _read_varint(view, position)
    headers = []
    for _ in range(count):
        name, position = _read_nullable(view, position)
        value, position = _read_nullable(view, position)
        headers.append(((name or b"").decode(), value))
    return headers, position


def decode_headers(encoded: bytes) -> list[tuple[str, bytes | None]]:
    """Decode the headers of a record, their count first."""
    return _read_headers(memoryview(encoded), 0)[0]


def read_record(view: memoryview, position: int, base_timestamp: int) -> tuple[Record, int]:
    """Return the record at a position, and the position of the next one."""
    _, position = _read_varint(view, position)
    delta, position = _read_varint(view, position + 1)
    _, position = _read_varint(view, position)
    key, position = _read_nullable(view, position)
    value, position = _read_nullable(view, position)
    headers, position = _read_headers(view, position)
    # Modulo 2**64 like the delta.
    timestamp = (base_timestamp + delta + 2**63) % 2**64 - 2**63
    return (timestamp, key, value, tuple(headers)), position
