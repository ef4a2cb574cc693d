# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Record batches of message format v2, written straight into a buffer of the pool.

`RecordBatchBuffer` is called by the core: `try_append()` once per record (the hottest function of the
package), `seal()` once per attempt to send the batch. The layout is that of KIP-98, with headers (KIP-82):

    61 bytes of header, filled by seal():       then each record:
    base offset, length, leader epoch, magic,   length, attributes, timestamp delta, offset delta,
    CRC-32C, attributes, ..., record count      key, value, headers; lengths and deltas are zigzag varints

This file is compiled by Cython (pure Python mode) and runs interpreted just as well, with the same bytes.

1. The buffer never changes its size while a RecordBatchBuffer holds it: the memoryview in `_view` forbids it
   (a resize raises BufferError), so the address taken in `__init__` stays good until `release()`.
2. `try_append()` changes nothing unless the whole record fits: it raises, or answers -1, before it writes.
3. Nothing is appended after the first `seal()`: a transport may hold a view of the bytes.
4. Offsets count from 0 without gaps; the index that `try_append()` answers is the record's offset delta, to
   which the broker's base offset is added.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from aioproduce._native._record_reading import Record, read_record
from aioproduce.errors import InvalidHeadersError, InvalidTimestampError, SerializationError

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyByteArray_AS_STRING,
    )
    from cython.cimports.cpython.bytes import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyBytes_AS_STRING,
    )
    from cython.cimports.libc.string import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        memcpy,
    )

BytesLike: TypeAlias = bytes | bytearray | memoryview
RECORD_BATCH_OVERHEAD = 61
"""Bytes of a batch before its first record."""

NO_TIMESTAMP = -1
"""What Kafka calls a record without a timestamp."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_CRC_COVERS_FROM = 21
_CRC_AT = 17
_CODEC_MASK = 0x07
_TRANSACTIONAL = 0x10
# Base offset and length are not part of what the length field counts.
_LOG_OVERHEAD = 12
# A signed 32-bit length in bytes is the most that the format can say of a batch.
_MAX_BATCH_SIZE = 2**31 - 1
# The most that one record takes beside key, value and headers: length (5), attributes (1), timestamp delta
# (10), offset delta (5), key length (5), value length (5), header count (5).
_MAX_RECORD_OVERHEAD = 36

_crc32c: Any = None


def load_crc32c() -> Callable[..., int]:
    """Load the checksum: 20 ms, most of them `importlib.metadata`, which the package asks for its own version.

    Called by whoever starts a producer, so that neither an import of this module pays for it nor the first batch.
    """
    global _crc32c
    from crc32c import crc32c

    _crc32c = crc32c
    return crc32c


def is_compiled() -> bool:
    """Whether this module runs as a compiled extension."""
    return cython.compiled


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag_delta(value: cython.longlong, base: cython.longlong) -> cython.ulonglong:
    # Modulo 2**64, as Java's long does it, and by unsigned numbers: a signed overflow is undefined in C, and the
    # delta from -1 to the highest timestamp is one.
    mask: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
    minuend: cython.ulonglong = value
    subtrahend: cython.ulonglong = base
    delta: cython.ulonglong = (minuend - subtrahend) & mask
    doubled: cython.ulonglong = (delta << 1) & mask
    return doubled ^ mask if delta >> 63 else doubled


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _unsigned_size(value: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _length_size(length: cython.Py_ssize_t) -> cython.Py_ssize_t:
    # Of a length that is not negative: zigzag is a doubling.
    value: cython.ulonglong = length
    return _unsigned_size(value << 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_unsigned(
    target: cython.p_uchar, position: cython.Py_ssize_t, value: cython.ulonglong
) -> cython.Py_ssize_t:
    while value >= 0x80:
        target[position] = (value & 0x7F) | 0x80
        position += 1
        value >>= 7
    target[position] = value
    return position + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_nullable(
    target: cython.p_uchar, position: cython.Py_ssize_t, value: bytes | None
) -> cython.Py_ssize_t:
    # A length and the bytes; the length of null is -1, in zigzag 1.
    if value is None:
        target[position] = 1
        return position + 1
    length: cython.ulonglong = len(value)
    position = _put_unsigned(target, position, length << 1)
    if cython.compiled:
        memcpy(cython.address(target[position]), PyBytes_AS_STRING(value), len(value))
    else:
        target[position : position + len(value)] = value
    return position + len(value)


@cython.cfunc
@cython.exceptval(-1)
def _put_headers(
    target: cython.p_uchar, position: cython.Py_ssize_t, encoded: list[bytes | None]
) -> cython.Py_ssize_t:
    position = _put_unsigned(target, position, len(encoded) // 2 * 2)
    for part in encoded:
        position = _put_nullable(target, position, part)
    return position


@cython.cfunc
def _bytes_of(value: object, field: str) -> bytes:
    # An exact bytes object, also of a subclass: the typed C variables take no other.
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        raise SerializationError(
            f"a record's {field} must be bytes, bytearray, memoryview or None here, not "
            f"{type(value).__name__}: encode it first, or give the producer a {field}_serializer",
            field=field,
        ) from None


@cython.cfunc
def _header_name(name: object) -> bytes:
    text: str
    if not isinstance(name, str):
        raise InvalidHeadersError(f"a header's name must be str, not {type(name).__name__}")
    try:
        if type(name) is not str:
            return str.encode(name, "utf-8")
        text = name
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidHeadersError(f"a header's name cannot be written as UTF-8: {error}") from None


@cython.cfunc
def _encoded_headers(headers: object) -> list[bytes | None]:
    """Name, value, name, value, ..., checked, as exact bytes."""
    pair: tuple[object, ...]
    value: object
    if not isinstance(headers, list | tuple):
        raise InvalidHeadersError(
            f"headers must be a list or tuple of (name, value) pairs, not {type(headers).__name__}"
        )
    encoded: list[bytes | None] = []
    for header in headers:
        if type(header) is tuple:
            pair = header
        elif isinstance(header, tuple | list):
            pair = tuple(header)
        else:
            pair = ()
        if len(pair) != 2:
            raise InvalidHeadersError(f"a header must be a pair (name, value), not {header!r:.100}")
        encoded.append(_header_name(pair[0]))
        value = pair[1]
        if value is None or type(value) is bytes:
            encoded.append(value)
            continue
        try:
            encoded.append(bytes(memoryview(value)))  # type: ignore[arg-type]
        except TypeError:
            raise InvalidHeadersError(
                f"the value of header {pair[0]!r} must be bytes or None, not {type(value).__name__}"
            ) from None
    return encoded


@cython.cfunc
@cython.exceptval(-1)
def _encoded_headers_size(encoded: list[bytes | None]) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = _length_size(len(encoded) // 2)
    for part in encoded:
        if part is None:
            size += 1
        else:
            size += _length_size(len(part)) + len(part)
    return size


def encode_headers(headers: Sequence[tuple[str, BytesLike | None]] | None) -> bytes:
    """Headers as they stand in a record, their count first; empty for none, which any record can say by itself.

    Raises:
        InvalidHeadersError: They are not pairs of a name and a value.
    """
    if not headers:
        return b""
    encoded = _encoded_headers(headers)
    written = bytearray(_encoded_headers_size(encoded))
    if cython.compiled:
        _put_headers(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(written)), 0, encoded)
    else:
        _put_headers(written, 0, encoded)
    return bytes(written)


def record_size_upper_bound(
    key: BytesLike | None,
    value: BytesLike | None,
    headers: Sequence[tuple[str, BytesLike | None]] | None = None,
) -> int:
    """The most bytes that this record can take in any batch, its length prefix included.

    Raises:
        SerializationError: Key or value are not bytes-like.
        InvalidHeadersError: The headers are not pairs of a name and a value.
    """
    size = _MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key) if type(key) is bytes else len(_bytes_of(key, "key"))
    if value is not None:
        size += len(value) if type(value) is bytes else len(_bytes_of(value, "value"))
    if headers:
        size += _encoded_headers_size(_encoded_headers(headers))
    return size


@cython.final
@cython.cclass
class RecordBatchBuffer:
    """One batch of records in a buffer that somebody else owns.

    Args:
        buffer: Where to write: the header's 61 bytes first, then the records.
        capacity: How many bytes of the buffer may be used; all of them by default.

    Attributes:
        largest_record: Bytes of the largest record, its length included; 0 when empty.

    Example:
        >>> batch = RecordBatchBuffer(bytearray(16384))
        >>> batch.try_append(1_700_000_000_000, b"key", b"value", None)
        0
        >>> buffers, size = batch.seal()
        >>> size == sum(len(part) for part in buffers) == batch.size
        True
    """

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_count",
        "_data",
        "_limit",
        "_max_timestamp",
        "_position",
        "_view",
        "largest_record",
    )

    _buffer: bytearray | None
    _view: memoryview | None
    _data: cython.p_uchar
    _position: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _count: cython.Py_ssize_t
    _base_timestamp: cython.longlong
    _max_timestamp: cython.longlong
    largest_record: cython.Py_ssize_t

    def __init__(self, buffer: bytearray, capacity: int | None = None) -> None:
        limit = len(buffer) if capacity is None else capacity
        if not RECORD_BATCH_OVERHEAD <= limit <= min(len(buffer), _MAX_BATCH_SIZE):
            raise ValueError(
                f"capacity must be from {RECORD_BATCH_OVERHEAD} to the buffer's {len(buffer)} bytes "
                f"(and below 2 GiB), not {limit}"
            )
        self._buffer = buffer
        self._view = memoryview(buffer)
        if cython.compiled:
            self._data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))
        else:
            self._data = buffer
        self._position = RECORD_BATCH_OVERHEAD
        self._limit = limit
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.largest_record = 0

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def try_append(
        self,
        timestamp: cython.longlong,
        key: object,
        value: object,
        headers: object = None,
    ) -> cython.Py_ssize_t:
        """Append one record if it fits.

        Args:
            timestamp: Milliseconds since the epoch, or -1 for none.
            key: Bytes-like or None; anything but bytes is copied once more.
            value: Bytes-like or None, likewise.
            headers: A list or tuple of `(name, value)`, or None.

        Returns:
            The record's index in the batch, or -1 if it does not fit (or the batch is sealed or released):
            nothing changed then.

        Raises:
            SerializationError: Key or value are not bytes-like.
            InvalidHeadersError: The headers are not pairs of a name and a value.
            InvalidTimestampError: The timestamp is negative and not -1.
            OverflowError: The timestamp does not fit 64 bits.
        """
        key_bytes: bytes | None = None
        value_bytes: bytes | None = None
        encoded: list[bytes | None] | None = None
        key_size: cython.Py_ssize_t = 0
        value_size: cython.Py_ssize_t = 0
        # Attributes (1), and one byte each for a null key, a null value and no headers.
        body: cython.Py_ssize_t = 4
        delta: cython.ulonglong = 0
        offset: cython.ulonglong
        length: cython.ulonglong
        position: cython.Py_ssize_t

        if not cython.compiled and not -(2**63) <= timestamp < 2**63:
            raise OverflowError("the timestamp does not fit 64 bits")
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise InvalidTimestampError(f"a timestamp must not be negative, except -1 for none: {timestamp}")
        if key is not None:
            key_bytes = key if type(key) is bytes else _bytes_of(key, "key")
            key_size = len(key_bytes)
            body += _length_size(key_size) + key_size - 1
        if value is not None:
            value_bytes = value if type(value) is bytes else _bytes_of(value, "value")
            value_size = len(value_bytes)
            body += _length_size(value_size) + value_size - 1
        if headers is not None:
            encoded = _encoded_headers(headers)
            body += _encoded_headers_size(encoded) - 1
        # The caller's objects ran their last code above (`__buffer__` may): own state is read from here on.
        if self._count:
            delta = _zigzag_delta(timestamp, self._base_timestamp)
        offset = self._count
        offset <<= 1
        body += _unsigned_size(delta) + _unsigned_size(offset)
        position = self._position
        if position + _length_size(body) + body > self._limit:
            return -1

        # It fits: from here on nothing can fail.
        length = body
        position = _put_unsigned(self._data, position, length << 1)
        self._data[position] = 0
        position = _put_unsigned(self._data, position + 1, delta)
        position = _put_unsigned(self._data, position, offset)
        position = _put_nullable(self._data, position, key_bytes)
        position = _put_nullable(self._data, position, value_bytes)
        if encoded is None:
            self._data[position] = 0
            position += 1
        else:
            position = _put_headers(self._data, position, encoded)
        if self._count == 0:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self.largest_record = max(self.largest_record, position - self._position)
        self._position = position
        self._count += 1
        return self._count - 1

    def bulk_state(self) -> tuple[bytearray, int, int, int, int, int]:
        """What `bulk_append` needs to write records itself, until `bulk_done()`.

        Returns:
            The buffer, where the next record goes and where the last must end, the count, the first record's
            timestamp and the highest.
        """
        buffer = self._buffer
        if buffer is None or self._limit == 0:
            return bytearray(), 0, 0, self._count, self._base_timestamp, self._max_timestamp
        return buffer, self._position, self._limit, self._count, self._base_timestamp, self._max_timestamp

    def bulk_done(
        self, position: int, count: int, base_timestamp: int, max_timestamp: int, largest_record: int
    ) -> None:
        """Take note of the records that were written since `bulk_state()`, the largest of them among it.

        Raises:
            ValueError: They end beyond the limit, or less is there than was.
        """
        if count == self._count:
            return
        if count < self._count or not self._position < position <= self._limit:
            raise ValueError(f"{count} records up to {position} after {self._count} up to {self._position}")
        self._position = position
        self._count = count
        self._base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp
        self.largest_record = max(self.largest_record, largest_record)

    def copy_into(self, buffer: bytearray) -> RecordBatchBuffer:
        """The same records in another buffer, to which nothing more is appended.

        Raises:
            ValueError: The buffer is too small.
            RuntimeError: This batch's buffer was given back.
        """
        copied = RecordBatchBuffer(buffer, self._position)
        buffer[: self._position] = self._require_view()[: self._position]
        copied._position = self._position
        copied._count = self._count
        copied._base_timestamp = self._base_timestamp
        copied._max_timestamp = self._max_timestamp
        copied.largest_record = self.largest_record
        return copied

    @property
    def record_count(self) -> int:
        """How many records were appended."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes written, the header's 61 included; also after `release()`."""
        return self._position

    @property
    def base_timestamp(self) -> int:
        """The first record's timestamp; -1 when empty."""
        return self._base_timestamp

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp of the records; -1 when empty."""
        return self._max_timestamp

    def records_view(self) -> memoryview:
        """The records as they were written, without the header: what a codec compresses."""
        return self._require_view()[RECORD_BATCH_OVERHEAD : self._position]

    def seal(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        attributes: int = 0,
        compressed: bytes | None = None,
        is_transactional: bool = False,
    ) -> tuple[list[bytes | memoryview], int]:
        """Fill in the header; nothing can be appended any more.

        Called again for a retry with another producer id, epoch or sequence, when no transport holds a view
        of the bytes of the attempt before: without compression the header is written into the same buffer.

        Args:
            producer_id: The idempotent producer's id, or -1.
            producer_epoch: Its epoch, or -1.
            base_sequence: The sequence of the first record, or -1.
            attributes: The codec's id in the low three bits; other bits as the protocol has them.
            compressed: The records as compressed by that codec, or None to send them as they are.
            is_transactional: Whether the batch belongs to a transaction.

        Returns:
            The buffers to write, in order, and their size together.

        Raises:
            ValueError: The batch is empty, or codec and `compressed` contradict each other.
            RuntimeError: The buffer was given back.
        """
        view = self._require_view()
        if not self._count:
            raise ValueError("a batch without records cannot be sealed")
        if bool(attributes & _CODEC_MASK) != (compressed is not None):
            raise ValueError("compressed records go together with a codec in the attributes, and only so")
        self._limit = self._position
        records_size = self._position - RECORD_BATCH_OVERHEAD if compressed is None else len(compressed)
        size = RECORD_BATCH_OVERHEAD + records_size
        header = view if compressed is None else memoryview(bytearray(RECORD_BATCH_OVERHEAD))
        _HEADER.pack_into(
            header,
            0,
            0,
            size - _LOG_OVERHEAD,
            -1,
            2,
            0,
            attributes | _TRANSACTIONAL if is_transactional else attributes,
            self._count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self._count,
        )
        crc32c = load_crc32c() if _crc32c is None else _crc32c
        if compressed is None:
            _CRC.pack_into(header, _CRC_AT, crc32c(view[_CRC_COVERS_FROM:size]))
            return [view[:size]], size
        _CRC.pack_into(header, _CRC_AT, crc32c(compressed, crc32c(header[_CRC_COVERS_FROM:])))
        return [header.tobytes(), compressed], size

    def release(self) -> None:
        """Let go of the buffer: it goes back to its owner, and this batch never touches it again.

        The counters stay readable. Safe to call again.
        """
        self._limit = 0
        self._buffer = None
        self._view = None

    def iter_records(self) -> Iterator[Record]:
        """Read the records back, in order; for splitting a batch, not for speed."""
        view = self._require_view()[: self._position]
        position: int = RECORD_BATCH_OVERHEAD
        for _ in range(self._count):
            record, position = read_record(view, position, self._base_timestamp)
            yield record

    def record_at(self, index: int) -> Record:
        """Read one record back: timestamp, key, value, headers.

        Raises:
            IndexError: The batch has no such record.
        """
        if not 0 <= index < self._count:
            raise IndexError(f"record {index} of a batch of {self._count}")
        for _, record in zip(range(index + 1), self.iter_records(), strict=False):
            found = record
        return found

    @cython.cfunc
    def _require_view(self) -> memoryview:
        if self._view is None:
            raise RuntimeError("the batch's buffer was given back")
        return self._view
