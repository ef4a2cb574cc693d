# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The records of a batch as columns that point into its bytes: a batch read from disk is sent on without an object.

The spool's forwarder reads its log with it; `bulk_append` takes the columns. The format is Kafka's record batch v2
("Record" in its protocol guide), not compressed.

Invariants:

1. Nothing is trusted: each length is checked against the batch's end before a byte is read.
2. A record has to end where its length says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.columns import ByteColumn, HeaderColumn, LongColumn
from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._memory import ints_in, longs_in, view_at

_NULL = -1
_INT = 4
_LONG = 8
_MOST_SHIFT = 63
_NO_HEADERS = 1
"""The bytes of a count of zero headers."""


class BatchRows:
    """The records of one batch.

    Args:
        batch: The batch, whole and not compressed.
        record_count: Its number of records.
        first_timestamp: Its first record's time, in milliseconds since the epoch.

    Attributes:
        values: The values.
        keys: The keys; None if no record has one.
        headers: The headers; None if no record has any.
        timestamps: The times, in milliseconds since the epoch.

    Raises:
        ValueError: if the bytes are not as many records.
    """

    def __init__(self, batch: memoryview, record_count: int, first_timestamp: int) -> None:
        self._view = batch
        self._data = view_at(batch)
        self._end = len(batch)
        self._at = RECORD_BATCH_OVERHEAD
        if record_count < 0 or record_count > len(batch):
            raise ValueError(f"{record_count} records in {len(batch)} bytes")
        room = _INT * record_count
        value_places, value_sizes = bytearray(room), bytearray(room)
        key_places, key_sizes = bytearray(room), bytearray(room)
        header_places, header_sizes = bytearray(room), bytearray(room)
        times = bytearray(_LONG * record_count)
        self._has_keys = False
        self._has_headers = False
        self._read_all(
            record_count,
            first_timestamp,
            value_places,
            value_sizes,
            key_places,
            key_sizes,
            header_places,
            header_sizes,
            times,
        )
        self.values: ByteColumn = ByteColumn.of_places(record_count, batch, value_places, value_sizes)
        self.keys: ByteColumn | None = None
        if self._has_keys:
            self.keys = ByteColumn.of_places(record_count, batch, key_places, key_sizes)
        self.headers: HeaderColumn | None = None
        if self._has_headers:
            self.headers = HeaderColumn.of_places(record_count, batch, header_places, header_sizes)
        self.timestamps: LongColumn = LongColumn(record_count, 0, None, times)

    def _read_all(
        self,
        record_count: cython.Py_ssize_t,
        first_timestamp: cython.longlong,
        value_places: bytearray,
        value_sizes: bytearray,
        key_places: bytearray,
        key_sizes: bytearray,
        header_places: bytearray,
        header_sizes: bytearray,
        times: bytearray,
    ) -> None:
        row: cython.Py_ssize_t
        size: cython.longlong
        values_at: cython.p_int = ints_in(value_places)
        values: cython.p_int = ints_in(value_sizes)
        keys_at: cython.p_int = ints_in(key_places)
        keys: cython.p_int = ints_in(key_sizes)
        headers_at: cython.p_int = ints_in(header_places)
        headers: cython.p_int = ints_in(header_sizes)
        instants: cython.p_longlong = longs_in(times)
        for row in range(record_count):
            size = self._varint()
            if size < 1 or size > self._end - self._at:
                raise ValueError(f"record {row} has {size} bytes, of {self._end - self._at}")
            end: cython.Py_ssize_t = self._at + size
            self._at += 1  # attributes
            instants[row] = first_timestamp + self._varint()
            self._varint()  # the offset's delta
            keys[row] = self._part(end)
            keys_at[row] = self._part_at
            if keys[row] >= 0:
                self._has_keys = True
            values[row] = self._part(end)
            values_at[row] = self._part_at
            headers_at[row] = self._at
            if self._at >= end:
                raise ValueError(f"record {row} ends before its headers")
            headers[row] = end - self._at
            if headers[row] == _NO_HEADERS:
                headers[row] = 0
            else:
                self._has_headers = True
            self._at = end
        if self._at != self._end:
            raise ValueError(f"{self._end - self._at} bytes are behind the last of {record_count} records")

    def _varint(self) -> cython.Py_ssize_t:
        value: cython.ulonglong = 0
        shift: cython.int = 0
        at: cython.Py_ssize_t = self._at
        while at < self._end and shift <= _MOST_SHIFT:
            byte: cython.ulonglong = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._at = at
                half: cython.longlong = value >> 1
                return -half - 1 if value & 1 else half
            shift += 7
        raise ValueError("a number in a batch does not end")

    def _part(self, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the size of a key or a value, and skip its bytes."""
        size: cython.longlong = self._varint()
        self._part_at = self._at
        if size < _NULL or size > end - self._at:
            raise ValueError(f"a part of {size} bytes is longer than its record")
        if size > 0:
            self._at += size
        return size
