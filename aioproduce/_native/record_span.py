# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The places of records that were accepted together: a few numbers each, to make futures and metadata from.

`bulk_append` fills a span in C (`record_span.pxd`), or it is made from a whole batch. `Deliveries` holds spans.

Invariants:

1. A record needs 4 bytes for its value's size, 4 more if there are keys, 8 more if it has a timestamp of its own,
   and 8 more if records of several batches mix.
2. It holds the results of the batches. So an unobserved failure is reported when the span is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproduce._native.delivery import SUCCEEDED, BatchResult, DeliveryFuture
from aioproduce._native.record_batch import RECORD_BATCH_OVERHEAD, RecordBatchBuffer
from aioproduce.records import RecordMetadata

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._memory import ints_in, longs_in
    from aioproduce._native._metadata import record_metadata
    from aioproduce._native.delivery import make_delivery

_NULL = -1
_INT = 4
_LONG = 8


class RecordSpan:
    """The places of records that were appended together, in order, to make futures and metadata from.

    `BulkAppender.append()` and `span_of_batch()` make it; `results` are the batches' results.
    """

    def __init__(self, capacity: int, *, is_routed: bool, has_keys: bool, has_timestamps: bool) -> None:
        self._count = 0
        self.results: list[BatchResult] = []
        self._first_index = 0
        self._is_routed = is_routed
        self._places = bytearray(_INT * capacity if is_routed else 0)
        self._indices = bytearray(_INT * capacity if is_routed else 0)
        self._has_keys = has_keys
        self._key_sizes = bytearray(_INT * capacity if has_keys else 0)
        self._value_sizes = bytearray(_INT * capacity)
        self._timestamp = 0
        self._has_timestamps = has_timestamps
        self._timestamps = bytearray(_LONG * capacity if has_timestamps else 0)

    def __len__(self) -> int:
        return self._count

    @property
    def is_acknowledged(self) -> bool:
        """Whether all records are acknowledged."""
        return all(result.status == SUCCEEDED for result in self.results)

    def future(self, index: int) -> DeliveryFuture:
        """Return a future of one record. The caller keeps it, because each future counts its own observations."""
        result, record, timestamp, key_size, value_size = self._entry(index)
        return make_delivery(result, record, timestamp, key_size, value_size)

    def probe(self, result: BatchResult) -> DeliveryFuture:
        """Return a future of any record in a batch, to wait on without observing its outcome."""
        return self.future(next(at for at in range(self._count) if self._entry(at)[0] is result))

    def settled(self) -> int:
        """Return the number of records with an outcome."""
        if all(result.is_done for result in self.results):
            return self._count
        return sum(self.future(index).done() for index in range(self._count))

    def metadata(self) -> list[RecordMetadata]:
        """Return the metadata of all records, which must be acknowledged."""
        index: cython.Py_ssize_t
        place: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t = -1
        is_routed: cython.bint = self._is_routed
        has_keys: cython.bint = self._has_keys
        has_timestamps: cython.bint = self._has_timestamps
        value_sizes: cython.p_int = ints_in(self._value_sizes)
        key_sizes: cython.p_int = ints_in(self._key_sizes)
        places: cython.p_int = ints_in(self._places)
        indices: cython.p_int = ints_in(self._indices)
        timestamps: cython.p_longlong = longs_in(self._timestamps)
        found: list[RecordMetadata] = []
        first: cython.longlong = -1
        appended_at: cython.longlong = -1
        topic: str = ""
        partition: int = -1
        for index in range(self._count):
            if is_routed:
                place = places[index]
            if place != last:
                last = place
                result = self.results[place]
                first = result.base_offset
                appended_at = result.log_append_time
                topic = result.topic
                partition = result.partition
            offset: cython.longlong = -1
            if first >= 0:
                offset = first + (indices[index] if is_routed else self._first_index + index)
            timestamp: cython.longlong = appended_at
            if timestamp < 0:
                timestamp = timestamps[index] if has_timestamps else self._timestamp
            found.append(
                record_metadata(
                    RecordMetadata,
                    topic,
                    partition,
                    offset,
                    timestamp,
                    key_sizes[index] if has_keys else _NULL,
                    value_sizes[index],
                )
            )
        return found

    def _entry(self, index: cython.Py_ssize_t) -> tuple[BatchResult, int, int, int, int]:
        """Return a record's batch result, its index there, its timestamp, and the sizes of key and value."""
        if index < 0 or index >= self._count:
            raise IndexError(f"record {index} of {self._count}")
        place: cython.Py_ssize_t = 0
        record: cython.Py_ssize_t = self._first_index + index
        timestamp: cython.longlong = self._timestamp
        key_size: cython.Py_ssize_t = _NULL
        if self._is_routed:
            place = ints_in(self._places)[index]
            record = ints_in(self._indices)[index]
        if self._has_timestamps:
            timestamp = longs_in(self._timestamps)[index]
        if self._has_keys:
            key_size = ints_in(self._key_sizes)[index]
        return self.results[place], record, timestamp, key_size, ints_in(self._value_sizes)[index]

    def trim(self, count: cython.Py_ssize_t) -> None:
        """Shrink the arrays to `count` records."""
        self._count = count
        self._value_sizes = self._value_sizes[: _INT * count]
        if self._has_keys:
            self._key_sizes = self._key_sizes[: _INT * count]
        if self._has_timestamps:
            self._timestamps = self._timestamps[: _LONG * count]
        if self._is_routed:
            self._places = self._places[: _INT * count]
            self._indices = self._indices[: _INT * count]


def span_of_batch(records: RecordBatchBuffer, result: BatchResult) -> RecordSpan:
    """Return a span of all records of a complete batch. Its bytes are read once, for sizes and timestamps."""
    index: cython.Py_ssize_t
    field: cython.int
    mask: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
    count: cython.Py_ssize_t = records.record_count
    span = RecordSpan(count, is_routed=False, has_keys=True, has_timestamps=True)
    data: cython.p_uchar = records._data
    key_sizes: cython.p_int = ints_in(span._key_sizes)
    value_sizes: cython.p_int = ints_in(span._value_sizes)
    timestamps: cython.p_longlong = longs_in(span._timestamps)
    base: cython.ulonglong = records.base_timestamp & mask
    position: cython.Py_ssize_t = RECORD_BATCH_OVERHEAD
    for index in range(count):
        after: cython.Py_ssize_t = 0
        # Our own bytes, so unchecked: length, attributes, timestamp, offset, key, value, headers.
        for field in range(5):
            raw: cython.ulonglong = 0
            shift: cython.int = 0
            while data[position] >= 0x80:
                raw |= cython.cast(cython.ulonglong, data[position] & 0x7F) << shift
                shift += 7
                position += 1
            raw |= cython.cast(cython.ulonglong, data[position]) << shift
            position += 1
            number: cython.longlong = _unzigzag(raw)
            if field == 0:
                after = position + number
                position += 1
            elif field == 1:
                number = _signed((base + (number & mask)) & mask)
                timestamps[index] = number
            elif field == 3:
                key_sizes[index] = number
                position += number if number > 0 else 0
            elif field == 4:
                value_sizes[index] = number
        position = after
    span._count = count
    span.results = [result]
    return span


def _unzigzag(raw: cython.ulonglong) -> cython.longlong:
    half: cython.longlong = raw >> 1
    return -half - 1 if raw & 1 else half


def _signed(value: cython.ulonglong) -> cython.longlong:
    if cython.compiled:
        return cython.cast(cython.longlong, value)
    else:
        return value - 2**64 if value >= 2**63 else value
