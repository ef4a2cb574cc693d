# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers for an audited producer's records: one 24-byte header `ap.id` in each, written with the record.

If a topic's records are numbered, `topic_appender`, `bulk_append` and `core/producer_batch` call this module
instead of `RecordBatchBuffer.try_append()`. It writes after the user's headers

    10 "ap.id" 48 <16 bytes: the producer> <8 bytes: the number, big-endian>

with both lengths as zigzag varints: 31 bytes, of which the last eight change from record to record.

Invariants:

1. Only a record in a batch gets a number. A record that does not fit, or is refused, leaves no gap.
2. Numbers ascend within a batch. The number is the end of a record's bytes, so it is read without decoding.
3. No user code runs between `take_headers()` and the end of the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproduce._native.record_batch import NO_TIMESTAMP, RECORD_BATCH_OVERHEAD, RecordBatchBuffer
from aioproduce.errors import InvalidTimestampError

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._memory import array_at, bytes_at, copy, part_at
    from aioproduce._native.record_batch import encode_headers, put_record, put_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproduce.records import Header

STAMP_ROOM: Final = 32
"""The most bytes that a number adds to a record: the header, and one byte more for the count of headers."""

_ID_SIZE: Final = 16
_NAME: Final = b"\x0aap.id\x30"
_HEADER_SIZE = 31
_NUMBER_SIZE = 8
# The most bytes of the count of headers.
_COUNT_SIZE = 5


class RecordNumbers:
    """The numbers of one producer's records, over all its topics.

    Args:
        producer_id: 16 bytes.
        first: The first number.

    Attributes:
        next: The number of the next record.

    Raises:
        ValueError: if `producer_id` does not have 16 bytes.
    """

    def __init__(self, producer_id: bytes, first: int = 0) -> None:
        if len(producer_id) != _ID_SIZE:
            raise ValueError(f"a producer's id has {_ID_SIZE} bytes, not {len(producer_id)}")
        self._header = _NAME + producer_id
        self.next: int = first
        self._room = bytearray()
        self._taken = -1
        self._take_none()

    def _take_none(self) -> None:
        empty: bytes = b""
        self.take_headers(bytes_at(empty), 0)

    def take_headers(self, headers: cython.p_uchar, size: cython.Py_ssize_t) -> None:
        """Set the headers of the next records, encoded by `encode_headers()`; no bytes for no headers."""
        count: cython.ulonglong = 0
        shift: cython.int = 0
        position: cython.Py_ssize_t = 0
        if size == 0 and self._taken == 0:
            return
        while position < size:
            count |= cython.cast(cython.ulonglong, headers[position] & 0x7F) << shift
            shift += 7
            position += 1
            if headers[position - 1] < 0x80:
                break
        self._room = bytearray(_COUNT_SIZE + size + _HEADER_SIZE)
        self._at = array_at(self._room)
        self._size = put_unsigned(self._at, 0, count + 2)
        self._size = copy(self._at, self._size, part_at(headers, position, size - position), size - position)
        self._size = copy(self._at, self._size, bytes_at(self._header), _HEADER_SIZE - _NUMBER_SIZE)
        self._size += _NUMBER_SIZE
        self._taken = size

    def put_next(self) -> cython.void:
        """Write the next number after the headers that `take_headers()` set."""
        number: cython.ulonglong = self.next
        if cython.compiled:
            # Compilers turn this into one store of the reversed bytes.
            end: cython.p_uchar = part_at(self._at, self._size - _NUMBER_SIZE, _NUMBER_SIZE)
            end[0] = (number >> 56) & 0xFF
            end[1] = (number >> 48) & 0xFF
            end[2] = (number >> 40) & 0xFF
            end[3] = (number >> 32) & 0xFF
            end[4] = (number >> 24) & 0xFF
            end[5] = (number >> 16) & 0xFF
            end[6] = (number >> 8) & 0xFF
            end[7] = number & 0xFF
        else:
            self._at[self._size - _NUMBER_SIZE :] = number.to_bytes(_NUMBER_SIZE, "big")

    def append(
        self,
        records: RecordBatchBuffer,
        timestamp: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
    ) -> cython.Py_ssize_t:
        """Append one record with a number, as `RecordBatchBuffer.try_append()` does without one.

        Returns:
            The record's index in the batch; -1 if it does not fit. Then nothing changed, and no number is used.

        Raises:
            InvalidHeadersError: if the headers are not pairs of a name and a value.
            InvalidTimestampError: if the timestamp is negative and not -1.
        """
        key_at: cython.p_uchar = self._at
        value_at: cython.p_uchar = self._at
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        index: cython.Py_ssize_t
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise InvalidTimestampError(f"a timestamp must not be negative, except -1 for none: {timestamp}")
        if headers is not None:
            encoded: bytes = encode_headers(headers)
            self.take_headers(bytes_at(encoded), len(encoded))
        elif self._taken != 0:
            self._take_none()
        if key is not None:
            key_size = len(key)
            key_at = bytes_at(key)
        if value is not None:
            value_size = len(value)
            value_at = bytes_at(value)
        self.put_next()
        index = put_record(records, timestamp, key_at, key_size, value_at, value_size, self._at, self._size)
        if index >= 0:
            self.next += 1
        return index


def number_runs(records: RecordBatchBuffer, most: int = -1) -> list[tuple[int, int]]:
    """Return the numbers of a batch's records as ascending runs of first and last. Every record must have one.

    Args:
        records: The batch; its buffer must not be released.
        most: The most records to read; -1 for all.
    """
    runs: list[tuple[int, int]] = []
    position: cython.Py_ssize_t = RECORD_BATCH_OVERHEAD
    index: cython.Py_ssize_t
    byte: cython.Py_ssize_t
    first: cython.ulonglong = 0
    last: cython.ulonglong = 0
    count: cython.Py_ssize_t = 0 if records._buffer is None else records.record_count
    if 0 <= most < count:
        count = most
    data: cython.p_uchar = records._data
    for index in range(count):
        # Our own bytes, so nothing is checked: a zigzag length that is not negative, and a number at the end.
        size: cython.ulonglong = 0
        shift: cython.int = 0
        while data[position] >= 0x80:
            size |= cython.cast(cython.ulonglong, data[position] & 0x7F) << shift
            shift += 7
            position += 1
        size |= cython.cast(cython.ulonglong, data[position]) << shift
        position += 1 + (size >> 1)
        number: cython.ulonglong = 0
        for byte in range(position - _NUMBER_SIZE, position):
            number = number << 8 | data[byte]
        if index == 0:
            first = number
        elif number != last + 1:
            runs.append((first, last))
            first = number
        last = number
    if count > 0:
        runs.append((first, last))
    return runs
