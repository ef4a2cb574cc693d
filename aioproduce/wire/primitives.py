"""Readers of the types that struct formats cannot describe: varints, strings, bytes, arrays, tagged fields.

Used by the code that `wire.reader` compiles, and by its callers for headers. Every function takes the whole
message and an offset, and returns the value with the offset after it.

1. A length is checked against the remaining bytes before anything is allocated or sliced: slicing a view
   never fails, it only returns fewer bytes.
2. Reading past the end raises IndexError, `struct.error` or ProtocolError; text that is not UTF-8 raises
   UnicodeDecodeError. `wire.reader` turns all of them into ProtocolError. Nothing else is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct, calcsize, unpack_from
from typing import Any, Final, TypeAlias
from uuid import UUID

from aioproduce.errors import ProtocolError

Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
"""Reads one value at an offset; returns it with the offset after it."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UUID_SIZE: Final = 16
_ZERO_UUID: Final = bytes(_UUID_SIZE)


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at + 1
    raise ProtocolError("a varint is longer than 32 bits")


def _compact_length(data: memoryview, at: int) -> tuple[int, int]:
    """Read a length that is written as a varint of length plus 1, or 0 for null; return -1 for null."""
    length, at = read_uvarint(data, at)
    return length - 1, at


def _int16_length(data: memoryview, at: int) -> tuple[int, int]:
    return _INT16.unpack_from(data, at)[0], at + 2


def _int32_length(data: memoryview, at: int) -> tuple[int, int]:
    return _INT32.unpack_from(data, at)[0], at + 4


def _is_null(length: int, is_nullable: bool) -> bool:
    """Return whether a length below 0 stands for null; raise if null is not allowed here."""
    if length < -1:
        raise ProtocolError(f"a length is negative ({length})")
    if not is_nullable:
        raise ProtocolError("a value is null where the protocol does not allow it")
    return True


def _sliced(read_length: Reader, convert: Callable[[memoryview], Any], *, is_nullable: bool) -> Reader:
    def read(data: memoryview, at: int) -> tuple[Any, int]:
        length, at = read_length(data, at)
        if length < 0 and _is_null(length, is_nullable):
            return None, at
        end = at + length
        if end > len(data):
            raise ProtocolError(f"a length of {length} bytes is more than the {len(data) - at} that are left")
        return convert(data[at:end]), end

    return read


def _text(view: memoryview) -> str:
    return str(view, "utf-8")


def string_reader(*, is_compact: bool, is_nullable: bool) -> Reader:
    """Return the reader of a string."""
    return _sliced(_compact_length if is_compact else _int16_length, _text, is_nullable=is_nullable)


def bytes_reader(*, is_compact: bool, is_nullable: bool) -> Reader:
    """Return the reader of a byte string; the value is a copy, which does not keep the message alive."""
    return _sliced(_compact_length if is_compact else _int32_length, bytes, is_nullable=is_nullable)


def read_uuid(data: memoryview, at: int) -> tuple[UUID | None, int]:
    """Read a UUID; the zero UUID means none."""
    end = at + _UUID_SIZE
    raw = bytes(data[at:end])
    if len(raw) < _UUID_SIZE:
        raise ProtocolError("the bytes end within a UUID")
    return uuid_of(raw), end


@lru_cache(maxsize=16_384)
def uuid_of(raw: bytes) -> UUID | None:
    """Return the UUID of 16 bytes; the zero UUID means none."""
    # The ids of the same topics are in every answer, creating a UUID takes 2 us, and one object is compared by
    # identity. More topics than this are slower. All entries together take 6 MB.
    return None if raw == _ZERO_UUID else UUID(bytes=raw)


def array_reader(read_element: Reader, minimum_size: int, *, is_compact: bool, is_nullable: bool) -> Reader:
    """Return the reader of an array.

    Args:
        read_element: Reads one element.
        minimum_size: The fewest bytes that one element can take, at least 1; it bounds the count before the loop.
        is_compact: Whether the count is a varint.
        is_nullable: Whether null is allowed.
    """
    read_length = _compact_length if is_compact else _int32_length

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        count, at = read_length(data, at)
        if count < 0 and _is_null(count, is_nullable):
            return None, at
        _check_count(data, at, count, minimum_size)
        elements: list[Any] = []
        append = elements.append
        for _ in range(count):
            element, at = read_element(data, at)
            append(element)
        return elements, at

    return read


def number_array_reader(code: str, *, is_compact: bool, is_nullable: bool) -> Reader:
    """Return the reader of an array of numbers with this struct code; it unpacks them in one call."""
    read_length = _compact_length if is_compact else _int32_length
    size = calcsize(">" + code)

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        count, at = read_length(data, at)
        if count < 0 and _is_null(count, is_nullable):
            return None, at
        _check_count(data, at, count, size)
        return list(unpack_from(f">{count}{code}", data, at)), at + count * size

    return read


def nullable_struct_reader(read_struct: Reader) -> Reader:
    """Return the reader of a struct that may be null, which a byte below 0 marks (KIP-893)."""

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        return (None, at + 1) if data[at] >= 0x80 else read_struct(data, at + 1)

    return read


def _check_count(data: memoryview, at: int, count: int, minimum_size: int) -> None:
    if count * minimum_size > len(data) - at:
        raise ProtocolError(
            f"an array of {count} elements cannot fit into the {max(0, len(data) - at)} bytes that are left"
        )


def read_tags(
    data: memoryview, at: int, entity: dict[str, Any], known: Mapping[int, tuple[str, Reader]]
) -> int:
    """Read a tagged section (KIP-482) into `entity`, skip unknown tags, and return the offset after it."""
    count, at = read_uvarint(data, at)
    _check_count(data, at, count, 2)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        end = at + size
        if end > len(data):
            raise ProtocolError(f"tagged field {tag} has {size} bytes, more than are left")
        if tag in known:
            name, read = known[tag]
            # Sliced to the field's end, so that a field cannot read into the next one.
            entity[name], stop = read(data[:end], at)
            if stop != end:
                raise ProtocolError(f"tagged field {tag} has {size} bytes, but {stop - at} were read")
        at = end
    return at


NO_TAGS: Final[Mapping[int, tuple[str, Reader]]] = {}
"""The known tags of a header or struct without tagged fields: `read_tags()` skips all."""
