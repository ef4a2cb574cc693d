# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Many records at once into batches that are open already: what the bulk calls do when there is nothing to decide.

Called by `producer.bulk` with columns. `BulkAppender.append()` goes row by row and stops where there is something
to decide (no open batch, a full one, the sticky share used up) or to refuse; the caller takes that one row the
ordinary way and comes back. What became of the rows is a `RecordSpan`: the batches' results and a few numbers per
record, no object.

Invariants:

1. No code of a user's runs between `_Cursor.open()` and `close()`: list items are exact bytes or None, or the loop
   stops. So a batch's buffer, and the address taken of it, stay good meanwhile.
2. A record is written whole or not at all, with the bytes of `RecordBatchBuffer.try_append()`.
3. A row is in the span if and only if it is in a batch.

One source, two builds: compiled by Cython as it stands (pure Python mode), or interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.delivery import BatchResult
from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce._native.topic_appender import NO_PARTITION

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
    from aioproduce._native.columns import FOUND, ByteColumn, HeaderColumn, LongColumn
    from aioproduce._native.key_hash import _HASHES_NULL, partition_at
    from aioproduce._native.record_numbers import RecordNumbers
    from aioproduce._native.record_span import RecordSpan, int_room, long_room
    from aioproduce._native.record_writer import write_record
    from aioproduce._native.topic_appender import TopicAppender
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

    if cython.compiled:
        from cython.cimports.aioproduce._native.columns import FOUND, ByteColumn, HeaderColumn, LongColumn
        from cython.cimports.aioproduce._native.key_hash import _HASHES_NULL, partition_at
        from cython.cimports.aioproduce._native.record_numbers import RecordNumbers
        from cython.cimports.aioproduce._native.record_span import RecordSpan, int_room, long_room
        from cython.cimports.aioproduce._native.record_writer import write_record
        from cython.cimports.aioproduce._native.topic_appender import TopicAppender
    else:
        from aioproduce._native.columns import FOUND, ByteColumn, HeaderColumn, LongColumn
        from aioproduce._native.key_hash import _HASHES_NULL, partition_at
        from aioproduce._native.record_numbers import RecordNumbers
        from aioproduce._native.record_span import RecordSpan, int_room, long_room
        from aioproduce._native.record_writer import write_record
        from aioproduce._native.topic_appender import TopicAppender

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyByteArray_AS_STRING,
    )
    from cython.cimports.cpython.bytes import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyBytes_AS_STRING,
    )

_NULL = -1


# -- appending ---


@cython.final
@cython.cclass
class _Cursor:
    """One open batch, while rows are appended to it: its numbers, taken out and put back."""

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_count",
        "_data",
        "_largest",
        "_limit",
        "_max_timestamp",
        "_place",
        "_position",
        "_records",
    )

    _records: RecordBatchBuffer | None
    _buffer: bytearray
    _data: cython.p_uchar
    _position: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _count: cython.Py_ssize_t
    _base_timestamp: cython.longlong
    _max_timestamp: cython.longlong
    _largest: cython.Py_ssize_t
    _place: cython.Py_ssize_t

    def __init__(self) -> None:
        self._records = None

    @cython.cfunc
    def open(self, records: RecordBatchBuffer, place: cython.Py_ssize_t) -> None:
        buffer: bytearray
        buffer, position, limit, count, base, highest = records.bulk_state()
        self._records = records
        self._buffer = buffer
        self._position = position
        self._limit = limit
        self._count = count
        self._base_timestamp = base
        self._max_timestamp = highest
        self._largest = 0
        self._place = place
        if self._limit > len(buffer):
            raise ValueError("a batch's limit lies beyond its buffer")
        if cython.compiled:
            self._data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))
        else:
            self._data = buffer

    @cython.cfunc
    def close(self) -> None:
        records = self._records
        assert records is not None
        records.bulk_done(
            self._position, self._count, self._base_timestamp, self._max_timestamp, self._largest
        )
        self._records = None

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def append(
        self,
        timestamp: cython.longlong,
        key: cython.p_uchar,
        key_size: cython.Py_ssize_t,
        value: cython.p_uchar,
        value_size: cython.Py_ssize_t,
        headers: cython.p_uchar,
        headers_size: cython.Py_ssize_t,
    ) -> cython.bint:
        base: cython.longlong = self._base_timestamp if self._count else timestamp
        position: cython.Py_ssize_t = write_record(
            self._data,
            self._position,
            self._limit,
            timestamp,
            base,
            self._count,
            key,
            key_size,
            value,
            value_size,
            headers,
            headers_size,
        )
        if position < 0:
            return False
        self._base_timestamp = base
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        if position - self._position > self._largest:
            self._largest = position - self._position
        self._position = position
        self._count += 1
        return True


@cython.final
@cython.cclass
class BulkAppender:
    """Appends rows of columns to the open batches of one topic.

    Args:
        appender: The topic's.
        partition: Of all rows, or `NO_PARTITION` for the `partitions` column, the key or the choice of keyless
            ones.
        headers: Of all rows, as `record_batch.encode_headers()` writes them; empty for none.
    """

    __slots__ = (
        "_appender",
        "_buffers",
        "_cursors",
        "_headers",
        "_headers_at",
        "_headers_size",
        "_is_in_line",
        "_is_keyless",
        "_is_numbered",
        "_key_at",
        "_key_size",
        "_numbers",
        "_open_count",
        "_partition",
        "_partition_count",
        "_results",
        "_span",
        "_timestamp",
        "_touched",
    )

    _appender: TopicAppender
    _partition: cython.Py_ssize_t
    _headers: bytes
    # By partition; empty between two calls.
    _cursors: list[_Cursor | None]
    _touched: list[int]
    _span: RecordSpan | None
    # The appender's state during a call.
    _buffers: list[RecordBatchBuffer | None]
    _results: list[BatchResult | None]
    _partition_count: cython.Py_ssize_t
    _open_count: cython.Py_ssize_t
    _is_in_line: cython.bint
    _is_numbered: cython.bint
    _numbers: RecordNumbers | None
    # The row at hand.
    _is_keyless: cython.bint
    _key_at: cython.p_uchar
    _key_size: cython.Py_ssize_t
    _headers_at: cython.p_uchar
    _headers_size: cython.Py_ssize_t
    _timestamp: cython.longlong

    def __init__(self, appender: TopicAppender, partition: int = NO_PARTITION, headers: bytes = b"") -> None:
        self._appender = appender
        self._partition = partition
        self._headers = headers
        self._cursors = []
        self._touched = []
        self._span = None
        self._is_numbered = False
        self._numbers = None

    def append(
        self,
        values: ByteColumn,
        keys: ByteColumn | None,
        headers: HeaderColumn | None,
        partitions: LongColumn | None,
        timestamps: LongColumn | None,
        timestamp: int,
        start: int,
        stop: int,
    ) -> RecordSpan:
        """Append rows from `start` on, up to `stop` or the first that needs a decision.

        Args:
            values: The values.
            keys: The keys, or None for none.
            headers: The headers, or None for those of all rows.
            partitions: The partitions; a null lets the key or the choice of keyless ones decide.
            timestamps: Milliseconds since the epoch; a null is `timestamp`, and a negative one ends the call.
            timestamp: Of rows without one of their own.
            start: The first row.
            stop: The row behind the last.

        Returns:
            What was appended; its length tells how far this came.

        Raises:
            ValueError: a column has not so many rows.
        """
        for column in (values, keys, headers, partitions, timestamps):
            if column is not None and not 0 <= start <= stop <= len(column):
                raise ValueError(f"rows {start} to {stop} of a column of {len(column)}")
        buffers, results, partition_count = self._appender.open_batches()
        self._buffers = buffers
        self._results = results
        self._partition_count = partition_count
        self._is_in_line = self._appender._line is not None
        self._open_count = min(partition_count, len(buffers), len(results))
        while len(self._cursors) < self._open_count:
            self._cursors.append(None)
        span = RecordSpan(
            stop - start,
            is_routed=partitions is not None
            or (self._partition < 0 and self._appender.spreads(has_keys=keys is not None)),
            has_keys=keys is not None,
            has_timestamps=timestamps is not None,
        )
        span._timestamp = timestamp
        self._span = span
        try:
            span.trim(self._append(span, values, keys, headers, partitions, timestamps, start, stop))
        finally:
            self._close()
        return span

    @cython.cfunc
    def _close(self) -> None:
        """Put back what was taken out of the batches."""
        cursor: _Cursor | None
        for partition in self._touched:
            cursor = self._cursors[partition]
            self._cursors[partition] = None
            if cursor is not None:
                cursor.close()
        self._touched.clear()
        self._buffers = []
        self._results = []
        self._span = None

    @cython.cfunc
    def _append(
        self,
        span: RecordSpan,
        values: ByteColumn,
        keys: ByteColumn | None,
        headers: HeaderColumn | None,
        partitions: LongColumn | None,
        timestamps: LongColumn | None,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        row: cython.Py_ssize_t
        done: cython.Py_ssize_t = 0
        target: cython.Py_ssize_t
        before: cython.Py_ssize_t
        cursor: _Cursor | None
        has_keys: cython.bint = keys is not None
        has_timestamps: cython.bint = timestamps is not None
        is_routed: cython.bint = span._is_routed
        value_sizes: cython.p_int = int_room(span._value_sizes)
        key_sizes: cython.p_int = int_room(span._key_sizes)
        places: cython.p_int = int_room(span._places)
        indices: cython.p_int = int_room(span._indices)
        times: cython.p_longlong = long_room(span._timestamps)
        has_headers: cython.bint = headers is not None
        self._begin(has_headers)
        for row in range(start, stop):
            self._timestamp = span._timestamp
            if values.locate(row) != FOUND or not self._read(keys, headers, timestamps, row):
                break
            target = self._target(partitions, row)
            if target < 0:
                break
            cursor = self._cursors[target]
            if cursor is None:
                cursor = self._open(target)
                if cursor is None:
                    break
            before = cursor._position
            if not self._put(cursor, values, has_headers):
                break
            if self._is_keyless:
                if self._is_in_line:
                    self._appender.count_keyless(cursor._position - before)
                else:
                    self._appender._sticky_bytes += cursor._position - before
            value_sizes[done] = values._size
            if has_keys:
                key_sizes[done] = self._key_size
            if has_timestamps:
                times[done] = self._timestamp
            if is_routed:
                places[done] = cursor._place
                indices[done] = cursor._count - 1
            done += 1
        return done

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def _read(
        self,
        keys: ByteColumn | None,
        headers: HeaderColumn | None,
        timestamps: LongColumn | None,
        row: cython.Py_ssize_t,
    ) -> cython.bint:
        """Read what a row has beside its value; says whether that can be sent."""
        if keys is not None:
            if keys.locate(row) != FOUND:
                return False
            self._key_at = keys._at
            self._key_size = keys._size
        if headers is not None:
            if headers.locate(row) != FOUND:
                return False
            self._headers_at = headers._at
            self._headers_size = headers._size
        if timestamps is not None and not timestamps.is_null(row):
            self._timestamp = timestamps._values[timestamps._row + row]
            return self._timestamp >= 0
        return True

    @cython.cfunc
    def _begin(self, has_headers: cython.bint) -> None:
        """What holds for rows without a key, and for all where there is no column of headers."""
        self._key_size = _NULL
        self._key_at = self._headers_at = _bytes_of(self._headers)
        self._headers_size = len(self._headers)
        self._is_numbered = self._appender._is_numbered
        self._numbers = self._appender._numbers
        if self._is_numbered and not has_headers:
            self._take_headers()

    @cython.cfunc
    def _take_headers(self) -> None:
        """Put the header with a record's number behind those of the row at hand, or of all rows."""
        numbers: RecordNumbers | None = self._numbers
        assert numbers is not None
        numbers.take_headers(self._headers_at, self._headers_size)
        self._headers_at = numbers._at
        self._headers_size = numbers._size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def _put(self, cursor: _Cursor, values: ByteColumn, has_headers: cython.bint) -> cython.bint:
        """Append the row at hand, if it fits."""
        if self._is_numbered:
            if has_headers:
                self._take_headers()
            self._numbers.put_next()  # type: ignore[union-attr]
        if not cursor.append(
            self._timestamp,
            self._key_at,
            self._key_size,
            values._at,
            values._size,
            self._headers_at,
            self._headers_size,
        ):
            return False
        if self._is_numbered:
            self._numbers._next += 1  # type: ignore[union-attr]
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _target(self, partitions: LongColumn | None, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The partition of a row, or -1 where that is to be decided, or refused, elsewhere."""
        target: cython.longlong = self._partition
        count: cython.Py_ssize_t = self._partition_count
        self._is_keyless = False
        if partitions is not None and not partitions.is_null(row):
            target = partitions._values[partitions._row + row]
            if target < 0:
                return -1
        if target < 0:
            # A call into another module costs a row without a key as much as all else that is decided here.
            if self._key_size >= 0 or self._appender._key_rule & _HASHES_NULL:
                target = partition_at(self._appender._key_rule, self._key_at, self._key_size, count)
            if target < 0:
                self._is_keyless = True
                if self._is_in_line:
                    target = self._appender.next_keyless()
                elif self._appender._sticky_bytes < self._appender._sticky_left:
                    target = self._appender._sticky
                if target < 0:
                    return -1
        return target if target < self._open_count else -1

    @cython.cfunc
    def _open(self, partition: cython.Py_ssize_t) -> _Cursor | None:
        """The open batch of a partition, taken in hand; None where there is none."""
        span = self._span
        assert span is not None
        records = self._buffers[partition]
        result = self._results[partition]
        if records is None or result is None:
            return None
        cursor = _Cursor()
        cursor.open(records, len(span._results))
        span._results.append(result)
        span._first_index = cursor._count
        self._cursors[partition] = cursor
        self._touched.append(partition)
        return cursor


@cython.cfunc
def _bytes_of(exact: bytes) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyBytes_AS_STRING(exact))  # type: ignore[no-any-return]
    else:
        return exact  # type: ignore[return-value]
