"""Arrow's buffers as columns, in both builds of the hot path: whatever the buffers hold.

1. A column is made, or a ValueError says why not; a row is bytes, a number, headers or None, or an IndexError or a
   ValueError. (A header's name that is not UTF-8 is a UnicodeDecodeError, which is one.)
2. The compiled build, which reads by address, says of every row exactly what the interpreted one says, which cannot
   leave its buffers.
3. Rows that are appended at once are in both builds as many, and give the same bytes.

The input: shape of the array, then its buffers with a length each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from tests.fuzz.target import Source, Target
from tests.native_builds import BUILDS, MODULES, native_module
from tests.unit.bulk_harness import OpenBatches, bytes_layout


def outcome(make: Callable[[], Any]) -> Any:
    """What came of it: a value, or the kind of the error."""
    try:
        return make()
    except (ValueError, IndexError) as error:
        return type(error)


def rows_of(column: Any) -> list[Any]:
    if isinstance(column, type):
        return [column]
    return [outcome(partial(column.at, index)) for index in (-1, *range(len(column) + 1))]


def try_build(build: str, data: bytes) -> list[Any]:
    source = Source(data)
    length, row = source.below(12) - 1, source.below(10) - 1
    flags = source.byte()
    validity, offsets, content, others = (source.take(source.byte()) for _ in range(4))
    validity_or_none = validity if flags & 1 else None
    batches = OpenBatches(build, 1)
    batches.open(0, 4000)
    columns = batches.columns
    of_bytes = outcome(
        lambda: columns.ByteColumn.of_arrow(
            length,
            row,
            validity_or_none,
            # A byte off: memory need not be aligned.
            memoryview(b"\0" + offsets)[1:] if flags & 4 else offsets,
            content if flags & 8 else None,
            is_large=bool(flags & 2),
        )
    )
    numbers = outcome(lambda: columns.LongColumn(length, row, validity_or_none, others))
    names = of_bytes if flags & 16 else batches.of_arrow([b"name", b"", None, b"\xc3\xa9"])
    headers: Any = ValueError
    if not isinstance(names, type):
        headers = outcome(
            lambda: (
                columns.HeaderColumn(length, row, validity_or_none, others, names, batches.of_list([]))
                if flags & 32
                else columns.HeaderColumn(length, row, validity_or_none, others, names, names)
            )
        )
    told: list[Any] = [rows_of(column) for column in (of_bytes, numbers, headers)]
    if not any(isinstance(column, type) for column in (of_bytes, headers)):
        for start in (0, length):
            span = batches.bulk(0).append(of_bytes, of_bytes, headers, None, None, 1, start, length)
            told.append(len(span))
    told.append(bytes(batches.buffers[0].records_view()))
    return told


def run(data: bytes) -> None:
    compiled, interpreted = (try_build(build, data) for build in BUILDS)
    assert compiled == interpreted


def seeds() -> Iterator[bytes]:
    for is_large in (False, True):
        layout = bytes_layout([b"one", None, b"", b"three"], 1, is_large=is_large)
        parts = [layout["validity"], layout["offsets"], layout["data"], struct.pack("<6i", 0, 1, 1, 2, 3, 4)]
        flags = 1 | 8 | (2 if is_large else 0)
        for more in (0, 4, 16, 32):
            yield bytes([5, 2, flags | more]) + b"".join(bytes([len(part)]) + part for part in parts)
    parts = [b"", struct.pack("<3i", 0, 2, 9), b"ab", struct.pack("<3q", 1, -1, 2**63 - 1)]
    yield bytes([3, 1, 8]) + b"".join(bytes([len(part)]) + part for part in parts)


def second_build() -> list[ModuleType]:
    return [native_module(name, "interpreted") for name in MODULES]


TARGETS = {"columns": Target(run, seeds, max_size=256, uninstrumented=second_build)}
