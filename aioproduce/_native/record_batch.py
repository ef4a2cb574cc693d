# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Record batches of message format v2, written straight into a buffer of the pool.

The core makes a `RecordBatchBuffer` per batch. `try_append()` is called once per record, by `record_numbers` and
`bulk_append` as `put_record()`; `seal()` once per attempt to send the batch. The layout is that of KIP-98, with
headers (KIP-82):

    61 bytes of header, filled by seal():       then each record:
    base offset, length, leader epoch, magic,   length, attributes, timestamp delta, offset delta,
    CRC-32C, attributes, ..., record count      key, value, headers; lengths and deltas are zigzag varints

1. The buffer never changes its size while a RecordBatchBuffer holds it: `_pin` forbids it (a resize raises
   BufferError), so the address from `__init__` stays valid until `release()`.
2. A record is written whole or not at all: a record that does not fit, or is refused, changes nothing.
3. Nothing is appended after the first `seal()`: a transport may hold a view of the bytes.
4. Offsets count from 0 without gaps. The index that `try_append()` returns is the record's offset delta: the
   record's offset is the broker's base offset plus this index.
5. Sizes are in bytes. For an address and a size in C, the size -1 means null.
"""

from __future__ import annotations

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

if not cython.compiled:
    from aioproduce._native._memory import array_at, bytes_at, copy, pin, unpin

BytesLike: TypeAlias = bytes | bytearray | memoryview
RECORD_BATCH_OVERHEAD = 61
"""Bytes of a batch before its first record."""

NO_TIMESTAMP = -1
"""Kafka's timestamp of a record without one."""

_CRC_COVERS_FROM = 21
_CRC_AT = 17
_MAGIC = 2
_CODEC_MASK = 0x07
_TRANSACTIONAL = 0x10
# The length field does not count the base offset and itself.
_LOG_OVERHEAD = 12
# The format has a signed 32-bit length in bytes for a batch.
_MAX_BATCH_SIZE = 2**31 - 1
# The most bytes of one record in addition to key, value and headers: length (5), attributes (1), timestamp delta
# (10), offset delta (5), key length (5), value length (5), header count (5).
_MAX_RECORD_OVERHEAD = 36

_crc32c: Any = None


def load_crc32c() -> Callable[..., int]:
    """Load the checksum library: 20 ms, mostly `importlib.metadata`, from which it reads its own version.

    The start of a producer calls this, so that neither the import of this module nor the first batch pays for it.
    """
    global _crc32c
    from crc32c import crc32c

    _crc32c = crc32c
    return crc32c


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag_delta(value: cython.longlong, base: cython.longlong) -> cython.ulonglong:
    # Modulo 2**64, as Java's long, with unsigned numbers: a signed overflow is undefined in C, and the
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
def unsigned_size(value: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_unsigned(
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
def put_number(
    target: cython.p_uchar, position: cython.Py_ssize_t, size: cython.Py_ssize_t, value: cython.longlong
) -> cython.void:
    # A big-endian number of that size: `struct` takes twenty times as long to write a header.
    index: cython.Py_ssize_t
    for index in range(size):
        target[position + size - 1 - index] = value & 0xFF
        value >>= 8


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def part_size(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    # A length and the bytes; null is a length alone. The zigzag of a number from 0 on is its double.
    if size < 0:
        return 1
    length: cython.ulonglong = size
    return unsigned_size(length << 1) + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_part(
    target: cython.p_uchar, position: cython.Py_ssize_t, source: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if size < 0:
        target[position] = 1
        return position + 1
    length: cython.ulonglong = size
    return copy(target, put_unsigned(target, position, length << 1), source, size)


def _bytes_of(value: object, field: str) -> bytes:
    # An exact bytes object, also from a subclass: the typed C variables accept no other.
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]  # it raises, then
    except TypeError:
        raise SerializationError(
            f"a record's {field} must be bytes, bytearray, memoryview or None here, not "
            f"{type(value).__name__}: encode it first, or give the producer a {field}_serializer",
            field=field,
        ) from None


def _header_name(name: object) -> bytes:
    if not isinstance(name, str):
        raise InvalidHeadersError(f"a header's name must be str, not {type(name).__name__}")
    try:
        if type(name) is not str:
            return str.encode(name, "utf-8")
        text: str = name
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidHeadersError(f"a header's name cannot be written as UTF-8: {error}") from None


def _encoded_headers(headers: object) -> list[bytes | None]:
    """Check headers; return name, value, name, value, ... as exact bytes."""
    pair: tuple[object, ...]
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
        value: object = pair[1]
        if value is None or type(value) is bytes:
            encoded.append(value)
            continue
        try:
            encoded.append(bytes(memoryview(value)))  # type: ignore[arg-type]  # it raises, then
        except TypeError:
            raise InvalidHeadersError(
                f"the value of header {pair[0]!r} must be bytes or None, not {type(value).__name__}"
            ) from None
    return encoded


def _encoded_headers_size(encoded: list[bytes | None]) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = unsigned_size(len(encoded) // 2 * 2)
    part: bytes | None
    for part in encoded:
        size += 1 if part is None else part_size(len(part))
    return size


def encode_headers(headers: Sequence[tuple[str, BytesLike | None]] | None) -> bytes:
    """Return headers in a record's encoding, their count first; empty bytes without headers.

    Raises:
        InvalidHeadersError: if they are not pairs of a name and a value.
    """
    if headers is None:
        return b""
    encoded = _encoded_headers(headers)
    if not encoded:
        return b""
    part: bytes | None
    written = bytearray(_encoded_headers_size(encoded))
    target: cython.p_uchar = array_at(written)
    position: cython.Py_ssize_t = put_unsigned(target, 0, len(encoded) // 2 * 2)
    for part in encoded:
        if part is None:
            position = put_part(target, position, target, -1)
        else:
            position = put_part(target, position, bytes_at(part), len(part))
    return bytes(written)


def record_size_upper_bound(
    key: BytesLike | None,
    value: BytesLike | None,
    headers: Sequence[tuple[str, BytesLike | None]] | None = None,
) -> int:
    """Return the most bytes that a record can need in any batch, with its length prefix.

    Raises:
        SerializationError: if the key or the value is not bytes-like.
        InvalidHeadersError: if the headers are not pairs of a name and a value.
    """
    size = _MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key) if type(key) is bytes else len(_bytes_of(key, "key"))
    if value is not None:
        size += len(value) if type(value) is bytes else len(_bytes_of(value, "value"))
    if headers:
        size += _encoded_headers_size(_encoded_headers(headers))
    return size


@cython.no_gc
@cython.cclass
class RecordBatchBuffer:
    """One batch of records in a buffer of another owner.

    Args:
        buffer: The buffer for the header's 61 bytes and the records.
        capacity: How many bytes of the buffer may be used; all of them by default.

    Attributes:
        record_count: The number of appended records.
        size: Bytes written, with the header's 61. This and the other numbers stay readable after `release()`.
        base_timestamp: The first record's timestamp; -1 if empty.
        max_timestamp: The highest timestamp of the records; -1 if empty.
        largest_record: Bytes of the largest record, with its length prefix; 0 if empty.

    Example:
        >>> batch = RecordBatchBuffer(bytearray(16384))
        >>> batch.try_append(1_700_000_000_000, b"key", b"value", None)
        0
        >>> buffers, size = batch.seal()
        >>> size == sum(len(part) for part in buffers) == batch.size
        True
    """

    def __init__(self, buffer: bytearray, capacity: int | None = None) -> None:
        limit = len(buffer) if capacity is None else capacity
        if not RECORD_BATCH_OVERHEAD <= limit <= min(len(buffer), _MAX_BATCH_SIZE):
            raise ValueError(
                f"capacity must be from {RECORD_BATCH_OVERHEAD} to the buffer's {len(buffer)} bytes "
                f"(and below 2 GiB), not {limit}"
            )
        self._pin = pin(buffer)
        self._is_pinned = True
        self._exports = 0
        self._buffer: bytearray | None = buffer
        self._data = array_at(buffer)
        self.size = RECORD_BATCH_OVERHEAD
        self._limit = limit
        self.record_count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.largest_record = 0

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
            value: Bytes-like or None; anything but bytes is copied once more.
            headers: A list or tuple of `(name, value)`, or None.

        Returns:
            The record's index in the batch; -1 if it does not fit or the batch is sealed or released. Then
            nothing changed.

        Raises:
            SerializationError: if the key or the value is not bytes-like.
            InvalidHeadersError: if the headers are not pairs of a name and a value.
            InvalidTimestampError: if the timestamp is negative and not -1.
            OverflowError: if the timestamp does not fit 64 bits.
        """
        key_at: cython.p_uchar = self._data
        value_at: cython.p_uchar = self._data
        headers_at: cython.p_uchar = self._data
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        headers_size: cython.Py_ssize_t = 0
        if not cython.compiled and not -(2**63) <= timestamp < 2**63:
            raise OverflowError("the timestamp does not fit 64 bits")
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise InvalidTimestampError(f"a timestamp must not be negative, except -1 for none: {timestamp}")
        if key is not None:
            key_bytes: bytes = key if type(key) is bytes else _bytes_of(key, "key")
            key_at = bytes_at(key_bytes)
            key_size = len(key_bytes)
        if value is not None:
            value_bytes: bytes = value if type(value) is bytes else _bytes_of(value, "value")
            value_at = bytes_at(value_bytes)
            value_size = len(value_bytes)
        if headers is not None:
            encoded: bytes = encode_headers(headers)  # type: ignore[arg-type]  # it says what is wrong
            headers_at = bytes_at(encoded)
            headers_size = len(encoded)
        # The caller's objects ran their last code above (`__buffer__` may): own state is read from here on.
        return put_record(self, timestamp, key_at, key_size, value_at, value_size, headers_at, headers_size)

    def copy_into(self, buffer: bytearray) -> RecordBatchBuffer:
        """Copy the records into another buffer; nothing more can be appended to the copy.

        Raises:
            ValueError: if the buffer is too small.
            RuntimeError: if this batch's buffer was released.
        """
        copied = RecordBatchBuffer(buffer, self.size)
        buffer[: self.size] = self._view()[: self.size]
        copied.size = self.size
        copied.record_count = self.record_count
        copied.base_timestamp = self.base_timestamp
        copied.max_timestamp = self.max_timestamp
        copied.largest_record = self.largest_record
        return copied

    def records_view(self) -> memoryview:
        """Return a view of the records without the header, for a codec."""
        return self._view()[RECORD_BATCH_OVERHEAD : self.size]

    def seal(
        self,
        producer_id: cython.longlong = -1,
        producer_epoch: cython.int = -1,
        base_sequence: cython.longlong = -1,
        attributes: cython.int = 0,
        compressed: bytes | None = None,
        is_transactional: cython.bint = False,
    ) -> tuple[tuple[bytes | memoryview, ...], int]:
        """Write the header. Nothing can be appended after that.

        A retry with another producer id, epoch or sequence calls it again. No transport may hold a view of the
        earlier attempt's bytes then: without compression the header is written into the same buffer.

        Args:
            producer_id: The idempotent producer's id, or -1.
            producer_epoch: Its epoch, or -1.
            base_sequence: The sequence of the first record, or -1.
            attributes: The codec's id in the low three bits; other bits as in the protocol.
            compressed: The records compressed by that codec; None sends them uncompressed.
            is_transactional: Whether the batch belongs to a transaction.

        Returns:
            The buffers to write, in order, and their size together.

        Raises:
            ValueError: if the batch is empty, or the codec and `compressed` contradict each other.
            RuntimeError: if the buffer was released.
        """
        view = self._view()
        if not self.record_count:
            raise ValueError("a batch without records cannot be sealed")
        if bool(attributes & _CODEC_MASK) != (compressed is not None):
            raise ValueError("compressed records go together with a codec in the attributes, and only so")
        self._limit = self.size
        records_size = self.size - RECORD_BATCH_OVERHEAD if compressed is None else len(compressed)
        size = RECORD_BATCH_OVERHEAD + records_size
        header = self._buffer if compressed is None else bytearray(RECORD_BATCH_OVERHEAD)
        assert header is not None
        target: cython.p_uchar = array_at(header)
        put_number(target, 0, 8, 0)  # the base offset: the broker's
        put_number(target, 8, 4, size - _LOG_OVERHEAD)
        put_number(target, 12, 4, -1)  # the leader epoch: the broker's
        target[16] = _MAGIC
        put_number(target, 21, 2, attributes | _TRANSACTIONAL if is_transactional else attributes)
        put_number(target, 23, 4, self.record_count - 1)
        put_number(target, 27, 8, self.base_timestamp)
        put_number(target, 35, 8, self.max_timestamp)
        put_number(target, 43, 8, producer_id)
        put_number(target, 51, 2, producer_epoch)
        put_number(target, 53, 4, base_sequence)
        put_number(target, 57, 4, self.record_count)
        crc32c = load_crc32c() if _crc32c is None else _crc32c
        if compressed is None:
            put_number(target, _CRC_AT, 4, crc32c(view[_CRC_COVERS_FROM:size]))
            # Compiled, the batch is its own buffer: no view, which the garbage collector would look at.
            return ((self,) if cython.compiled else (view[:size],)), size  # type: ignore[return-value]
        put_number(target, _CRC_AT, 4, crc32c(compressed, crc32c(memoryview(header)[_CRC_COVERS_FROM:])))
        return (bytes(header), compressed), size

    def release(self) -> None:
        """Release the buffer to its owner. This batch never touches it again. A second call does nothing."""
        self._limit = 0
        if self._buffer is not None:
            self._buffer = None
            self._unpin_unused()

    def __len__(self) -> int:
        """Return `size`: a transport asks a buffer for its length."""
        return self.size

    if cython.compiled:

        def __getbuffer__(self, view: cython.pointer[Py_buffer], flags: cython.int) -> None:  # noqa: F821  # C has it
            self._view()
            export(view, self, self._data, self.size, flags)  # noqa: F821  # C has it, too
            self._exports += 1

        def __releasebuffer__(self, view: cython.pointer[Py_buffer]) -> None:  # noqa: F821  # C has it, too
            self._exports -= 1
            self._unpin_unused()

    def __dealloc__(self) -> None:
        # Nobody reads it: who does refers to it.
        if self._is_pinned:
            unpin(self._pin)

    def _unpin_unused(self) -> None:
        # The memory stays where it is for anyone who still reads it, even after `release()`.
        if self._buffer is None and not self._exports and self._is_pinned:
            self._is_pinned = False
            unpin(self._pin)

    def iter_records(self) -> Iterator[Record]:
        """Yield the records in order, to split a batch; not fast."""
        view = self._view()[: self.size]
        position: int = RECORD_BATCH_OVERHEAD
        for _ in range(self.record_count):
            record, position = read_record(view, position, self.base_timestamp)
            yield record

    def _view(self) -> memoryview:
        if self._buffer is None:
            raise RuntimeError("the batch's buffer was given back")
        return memoryview(self._buffer)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_record(
    records: RecordBatchBuffer,
    timestamp: cython.longlong,
    key: cython.p_uchar,
    key_size: cython.Py_ssize_t,
    value: cython.p_uchar,
    value_size: cython.Py_ssize_t,
    headers: cython.p_uchar,
    headers_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a checked and encoded record, as `try_append()` does, in C; no other function writes records.

    Headers are the result of `encode_headers()`: empty bytes if there are none.
    """
    base: cython.longlong = records.base_timestamp if records.record_count else timestamp
    delta: cython.ulonglong = _zigzag_delta(timestamp, base)
    offset: cython.ulonglong = records.record_count
    body: cython.Py_ssize_t = 1 + unsigned_size(delta) + unsigned_size(offset << 1)
    body += part_size(key_size) + part_size(value_size) + (headers_size if headers_size else 1)
    length: cython.ulonglong = body
    size: cython.Py_ssize_t = unsigned_size(length << 1) + body
    position: cython.Py_ssize_t = records.size
    if position + size > records._limit:
        return -1
    # It fits: from here on nothing can fail.
    position = put_unsigned(records._data, position, length << 1)
    records._data[position] = 0
    position = put_unsigned(records._data, position + 1, delta)
    position = put_unsigned(records._data, position, offset << 1)
    position = put_part(records._data, position, key, key_size)
    position = put_part(records._data, position, value, value_size)
    if headers_size:
        copy(records._data, position, headers, headers_size)
    else:
        records._data[position] = 0
    records.base_timestamp = base
    if timestamp > records.max_timestamp:
        records.max_timestamp = timestamp
    if size > records.largest_record:
        records.largest_record = size
    records.size += size
    records.record_count += 1
    return records.record_count - 1
