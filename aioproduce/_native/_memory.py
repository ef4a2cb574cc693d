"""What stands for addresses in interpreted code: the object that holds the bytes. `_memory.pxd` has the addresses.

An address knows no end, these do: a part is cut to its size, numbers are whole ones.
"""

from __future__ import annotations

from typing import Any


def bytes_at(content: bytes | bytearray | memoryview) -> Any:
    """The first byte."""
    return content


array_at = view_at = bytes_at


def ints_in(content: bytearray | memoryview) -> memoryview:
    """The first of C's ints."""
    return memoryview(content)[: len(content) // 4 * 4].cast("i")


def longs_in(content: bytearray | memoryview) -> memoryview:
    """The first of C's long longs."""
    return memoryview(content)[: len(content) // 8 * 8].cast("q")


view_ints, view_longs = ints_in, longs_in


def is_aligned(_content: memoryview, _entry: int) -> bool:
    """Whether C may read numbers of so many bytes there."""
    return True


def part_at(content: Any, start: int, size: int) -> Any:
    """Some bytes further on."""
    return content[start : start + size]


def copy(target: bytearray, position: int, source: Any, size: int) -> int:
    """Copy so many bytes; gives the position behind them."""
    target[position : position + size] = source[:size]
    return position + size
