"""Stand-ins for addresses in interpreted code: the objects that hold the bytes. `_memory.pxd` has the addresses.

An address has no end, an object has one: a part is cut to its size, and numbers are whole.
"""

from __future__ import annotations

from typing import Any


def bytes_at(content: bytes | bytearray | memoryview) -> Any:
    """Return the first byte's address."""
    return content


array_at = view_at = bytes_at
pin = memoryview


def unpin(taken: memoryview) -> None:
    """Allow that the size of what `pin()` took changes."""
    taken.release()


def ints_in(content: bytearray | memoryview) -> memoryview:
    """Return the first C int's address."""
    return memoryview(content)[: len(content) // 4 * 4].cast("i")


def longs_in(content: bytearray | memoryview) -> memoryview:
    """Return the first C long long's address."""
    return memoryview(content)[: len(content) // 8 * 8].cast("q")


view_ints, view_longs = ints_in, longs_in


def is_aligned(_content: memoryview, _entry: int) -> bool:
    """Return whether C may read numbers of `_entry` bytes there."""
    return True


def part_at(content: Any, start: int, size: int) -> Any:
    """Return `size` bytes from `start` on."""
    return content[start : start + size]


def copy(target: bytearray, position: int, source: Any, size: int) -> int:
    """Copy `size` bytes; return the position after them."""
    target[position : position + size] = source[:size]
    return position + size
