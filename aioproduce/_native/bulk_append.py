# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The append of many records to open batches: the part of the bulk calls that needs no decision.

`producer.bulk` calls it with columns. `BulkAppender.append()` runs row by row. It stops at a row that needs a
decision (no open batch, a full batch, the sticky share used up) or must be refused. The caller sends that row on
the long path and calls again. The result is a `RecordSpan`: the batches' results and a few numbers per record, no
object.

Invariants:

1. No user code runs between the first row of a call and the last: the loop stops at a list item that is neither
   exact bytes nor None. So no batch is closed during the call.
2. A record is written whole or not at all, by `put_record()`.
3. A row is in the span if and only if it is in a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.columns import ByteColumn, HeaderColumn, LongColumn
from aioproduce._native.record_batch import RecordBatchBuffer
from aioproduce._native.record_numbers import RecordNumbers
from aioproduce._native.record_span import RecordSpan
from aioproduce._native.topic_appender import NO_PARTITION, TopicAppender

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._memory import bytes_at, ints_in, longs_in
    from aioproduce._native.columns import FOUND
    from aioproduce._native.key_hash import _HASHES_NULL, partition_at
    from aioproduce._native.record_batch import put_record

_NULL = -1
_INT = 4


class BulkAppender:
    """Appends rows of columns to the open batches of one topic.

    Args:
        appender: The topic's appender.
        partition: The partition of all rows. With `NO_PARTITION` the `partitions` column, the key, or the rule
            for keyless records chooses.
        headers: The headers of all rows, encoded by `record_batch.encode_headers()`; empty for none.
        numbers: Numbers for the rows, instead of those of the topic; `None` for those of the topic, if it has any.
    """

    def __init__(
        self,
        appender: TopicAppender,
        partition: int = NO_PARTITION,
        headers: bytes = b"",
        numbers: RecordNumbers | None = None,
    ) -> None:
        self._appender = appender
        self._partition = partition
        self._headers = headers
        self._own_numbers = numbers
        self._places = bytearray()
        self._touched: list[int] = []
        self._span: RecordSpan | None = None
        self._is_keyless = False

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
            headers: The headers; None for the headers of all rows.
            partitions: The partitions; for a null the key, or the rule for keyless records, chooses.
            timestamps: Milliseconds since the epoch; a null is `timestamp`, and a negative one ends the call.
            timestamp: The timestamp of rows without one.
            start: The first row.
            stop: The row after the last.

        Returns:
            The appended rows; its length is their number.

        Raises:
            ValueError: if a column has fewer rows.
        """
        for column in (values, keys, headers, partitions, timestamps):
            if column is not None and not 0 <= start <= stop <= len(column):
                raise ValueError(f"rows {start} to {stop} of a column of {len(column)}")
        self._open = self._appender._open
        self._partition_count = self._appender._partition_count
        self._is_in_line = self._appender._line is not None
        self._open_count = min(self._partition_count, len(self._open) // 2)
        if len(self._places) < _INT * self._open_count:
            self._places = bytearray(_INT * self._open_count)
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

    def _close(self) -> None:
        for partition in self._touched:
            ints_in(self._places)[partition] = 0
        self._touched.clear()
        self._open = []
        self._span = None

    def _append(  # noqa: C901  # one function: a call would cost as much as its work
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
        batch_places: cython.p_int = ints_in(self._places)
        has_keys: cython.bint = keys is not None
        has_timestamps: cython.bint = timestamps is not None
        is_routed: cython.bint = span._is_routed
        value_sizes: cython.p_int = ints_in(span._value_sizes)
        key_sizes: cython.p_int = ints_in(span._key_sizes)
        places: cython.p_int = ints_in(span._places)
        indices: cython.p_int = ints_in(span._indices)
        times: cython.p_longlong = longs_in(span._timestamps)
        self._begin(headers is not None)
        for row in range(start, stop):
            self._timestamp = span._timestamp
            if values.locate(row) != FOUND or not self._read(keys, headers, timestamps, row):
                break
            target: cython.Py_ssize_t = _target(self, partitions, row)
            if target < 0:
                break
            records: RecordBatchBuffer | None = self._open[2 * target]
            if records is None:
                break
            before: cython.Py_ssize_t = records.size
            if self._is_numbered:
                self._take_number(headers is not None)
            index: cython.Py_ssize_t = put_record(
                records,
                self._timestamp,
                self._key_at,
                self._key_size,
                values._at,
                values._size,
                self._headers_at,
                self._headers_size,
            )
            if index < 0:
                break
            if self._is_numbered:
                self._numbers.next += 1  # type: ignore[union-attr]  # there is one: numbered
            if batch_places[target] == 0:
                batch_places[target] = self._begun(target, index)
            if self._is_keyless:  # as `count_keyless()`, whose call would cost more
                self._appender._sticky_bytes += records.size - before
                self._appender._line_at += 1
            value_sizes[done] = values._size
            if has_keys:
                key_sizes[done] = self._key_size
            if has_timestamps:
                times[done] = self._timestamp
            if is_routed:
                places[done] = batch_places[target] - 1
                indices[done] = index
            done += 1
        return done

    def _read(
        self,
        keys: ByteColumn | None,
        headers: HeaderColumn | None,
        timestamps: LongColumn | None,
        row: cython.Py_ssize_t,
    ) -> cython.bint:
        """Read the columns of a row except its value; return whether the row can be sent."""
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

    def _begin(self, has_headers: cython.bint) -> None:
        """Set the values of rows without a key, and the headers of all rows if there is no column of headers."""
        self._key_size = _NULL
        self._key_at = self._headers_at = bytes_at(self._headers)
        self._headers_size = len(self._headers)
        self._numbers = self._appender._numbers if self._own_numbers is None else self._own_numbers
        self._is_numbered = self._appender._is_numbered or self._own_numbers is not None
        if self._is_numbered and not has_headers:
            self._take_headers()

    def _take_headers(self) -> None:
        """Add the header with the record's number after the headers of this row, or of all rows."""
        numbers: RecordNumbers | None = self._numbers
        assert numbers is not None
        numbers.take_headers(self._headers_at, self._headers_size)
        self._headers_at = numbers._at
        self._headers_size = numbers._size

    def _take_number(self, has_headers: cython.bint) -> None:
        if has_headers:
            self._take_headers()
        self._numbers.put_next()  # type: ignore[union-attr]  # there is one: numbered

    def _begun(self, partition: cython.Py_ssize_t, index: cython.Py_ssize_t) -> cython.int:
        """Add a batch whose first record of this call has this index; return its place in the span, from 1."""
        span = self._span
        assert span is not None
        span.results.append(self._open[2 * partition + 1])
        span._first_index = index
        self._touched.append(partition)
        return len(span.results)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _target(rows: BulkAppender, partitions: LongColumn | None, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the partition of a row; -1 if the caller must decide or refuse."""
    target: cython.longlong = rows._partition
    count: cython.Py_ssize_t = rows._partition_count
    rows._is_keyless = False
    if partitions is not None and not partitions.is_null(row):
        target = partitions._values[partitions._row + row]
        if target < 0:
            return -1
    if target < 0:
        # For a row without a key, a call into another module costs as much as the rest of this function.
        if rows._key_size >= 0 or rows._appender._key_rule & _HASHES_NULL:
            target = partition_at(rows._appender._key_rule, rows._key_at, rows._key_size, count)
        if target < 0:
            rows._is_keyless = True
            if rows._is_in_line:
                target = rows._appender.next_keyless()
            elif rows._appender._sticky_bytes < rows._appender._sticky_left:
                target = rows._appender._sticky
            if target < 0:
                return -1
    return target if target < rows._open_count else -1
