"""Open batches of a topic and columns of rows, for the tests of the bulk calls' compiled part, in either build.

Used by the unit and the property tests of `bulk_append`. Arrow arrays are laid out here by hand, from the format's
own specification: pyarrow judges them elsewhere (`test_arrow_columns.py`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aioproduce._native.key_hash import MURMUR2, NO_HASH
from tests.native_builds import native_module
from tests.unit.accumulator_harness import NoLoopRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_PARTITION = -1
BASE_OFFSET = 1000
"""Partition n's batch is acknowledged from n times this on."""


class OpenBatches:
    """One build, and an appender of it with an open batch for each partition that the test opens."""

    def __init__(
        self, build: str, count: int = 3, *, ignore_keys: bool = False, key_rule: int = MURMUR2
    ) -> None:
        self.columns: Any = native_module("columns", build)
        self.delivery: Any = native_module("delivery", build)
        self.record_batch: Any = native_module("record_batch", build)
        self.record_span: Any = native_module("record_span", build)
        self._bulk: Any = native_module("bulk_append", build)
        self.appender: Any = native_module("topic_appender", build).TopicAppender(
            NO_HASH if ignore_keys else key_rule
        )
        self.appender.set_partition_count(count)
        self.buffers: dict[int, Any] = {}
        self.results: dict[int, Any] = {}
        self.runtime = NoLoopRuntime()

    def open(self, partition: int, size: int = 1024) -> Any:
        buffer = self.buffers[partition] = self.record_batch.RecordBatchBuffer(bytearray(size))
        result = self.results[partition] = self.delivery.BatchResult("topic", partition, self.runtime)
        self.appender.open(partition, buffer, result)
        return buffer

    def bulk(self, partition: int = NO_PARTITION, headers: Any = None) -> Any:
        return self._bulk.BulkAppender(self.appender, partition, self.record_batch.encode_headers(headers))

    def of_list(self, items: list[Any] | None) -> Any:
        return None if items is None else self.columns.ByteColumn(items)

    def of_arrow(self, items: Sequence[bytes | None] | None, **layout: Any) -> Any:
        if items is None:
            return None
        return self.columns.ByteColumn.of_arrow(**bytes_layout(items, **layout))

    def numbers(self, items: Sequence[int | None] | None, row: int = 0) -> Any:
        if items is None:
            return None
        padded = [*[0] * row, *items]
        values = struct.pack(f"<{len(padded)}q", *(item or 0 for item in padded))
        return self.columns.LongColumn(len(items), row, validity(padded), values)

    def headers(self, rows: Sequence[Sequence[tuple[str, bytes | None]] | None] | None) -> Any:
        if rows is None:
            return None
        flat = [header for row in rows for header in row or ()]
        offsets = [0]
        for row in rows:
            offsets.append(offsets[-1] + len(row or ()))
        return self.columns.HeaderColumn(
            len(rows),
            0,
            validity(rows),
            struct.pack(f"<{len(offsets)}i", *offsets),
            self.of_arrow([name.encode() for name, _ in flat]),
            self.of_arrow([value for _, value in flat]),
        )

    def acknowledge(self) -> None:
        for partition, result in self.results.items():
            if not result.is_done:
                result.succeed(BASE_OFFSET * partition)

    def records(self) -> dict[int, list[Any]]:
        return {partition: list(buffer.iter_records()) for partition, buffer in self.buffers.items()}


def validity(items: Sequence[object]) -> bytes | None:
    """A bit for each row, the lowest first; left out where there are no nulls, as Arrow allows."""
    if None not in items:
        return None
    bits = bytearray((len(items) + 7) // 8)
    for index, item in enumerate(items):
        if item is not None:
            bits[index // 8] |= 1 << index % 8
    return bytes(bits)


def bytes_layout(
    items: Sequence[bytes | None], row: int = 0, *, is_large: bool = False, nulls_have_bytes: bool = False
) -> dict[str, Any]:
    """The parts of an Arrow array of binary; `row` other rows lie before it, as in a slice."""
    padded = [*[b"before"] * row, *items]
    offsets = [0]
    data = bytearray()
    for item in padded:
        data += item if item is not None else b"garbage" if nulls_have_bytes else b""
        offsets.append(len(data))
    return {
        "length": len(items),
        "row": row,
        "validity": validity(padded),
        "offsets": struct.pack(f"<{len(offsets)}{'q' if is_large else 'i'}", *offsets),
        "data": bytes(data),
        "is_large": is_large,
    }
