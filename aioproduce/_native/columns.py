# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Columns of rows to send: keys and values as lists of bytes or buffers of Arrow arrays, numbers, and headers.

`producer.bulk` and `producer.arrow` make them. `bulk_append` reads them row by row in C (`columns.pxd`).

Invariants:

1. Arrow's memory is not trusted. The length of a buffer is checked when a column is made. Every offset is checked
   against the buffer that it points into before a byte is read.
2. A column keeps the memory that it points into.
3. Callers of `locate()` pass rows of the column only; `at()` checks its row itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce._native._record_reading import decode_headers

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

if not cython.compiled:
    from aioproduce._native._memory import (
        array_at,
        bytes_at,
        ints_in,
        is_aligned,
        part_at,
        view_at,
        view_ints,
        view_longs,
    )
    from aioproduce._native.record_batch import part_size, put_part, put_unsigned, unsigned_size

_NULL = -1
"""The size of a null."""

FOUND = 0
NOT_BYTES = 1
MALFORMED = 2
"""The answer of `locate()` for a malformed row."""

_INT = 4
_LONG = 8


class _Rows:
    """The base of columns: a number of rows, some of them null, and the memory that they keep.

    Lengths stay Python integers until they are checked: C integers could overflow.
    """

    def _set_rows(self, length: int, row: int, validity: object) -> None:
        """Begin an Arrow array of `length` rows from `row` on; `validity` has a bit for each, None: no nulls."""
        if length < 0 or row < 0:
            raise ValueError(f"an Arrow array of {length} rows from {row} on: neither is ever negative")
        self._kept: list[memoryview] = []
        self._length = length
        self._row = row
        self._has_validity = validity is not None
        if validity is not None:
            self._validity = view_at(self._hold(validity, 1, (row + length + 7) // 8))

    def _hold(self, buffer: object, entry: int, count: int) -> memoryview:
        """Return a buffer's bytes, of at least `count` entries of `entry` bytes, aligned for reads by address."""
        view = memoryview(buffer)  # type: ignore[arg-type]  # it raises, then
        if not view.c_contiguous:
            raise ValueError("an Arrow buffer is contiguous memory; this one is not")
        view = view.cast("B")
        if len(view) < entry * count:
            raise ValueError(
                f"an Arrow buffer of {len(view)} bytes is too short for {count} entries of {entry} bytes"
            )
        if not is_aligned(view, entry):
            view = memoryview(bytes(view))  # Arrow recommends aligned memory, but does not guarantee it
        self._kept.append(view)
        return view

    def is_null(self, index: cython.Py_ssize_t) -> cython.bint:
        index += self._row
        return self._has_validity and not (self._validity[index >> 3] >> (index & 7)) & 1

    def __len__(self) -> int:
        return self._length


class ByteColumn(_Rows):
    """Keys or values, one per row: a list of bytes and None, or an Arrow array of (large) binary or string.

    Args:
        items: The list; None for an Arrow array, whose parts `ByteColumn.of_arrow()` sets.
    """

    _offsets: cython.p_int
    _large_offsets: cython.p_longlong
    _data: cython.p_uchar

    def __init__(self, items: list[object] | None = None) -> None:
        self._items = items
        self._is_large = False
        self._is_placed = False
        self._data_size = 0
        self._set_rows(0, 0, None)
        self._at = bytes_at(b"")
        self._size = _NULL

    @staticmethod
    def of_arrow(
        length: int, row: int, validity: object, offsets: object, data: object, *, is_large: bool
    ) -> ByteColumn:
        """Make a column of an Arrow array from its buffers.

        Args:
            length: The number of rows.
            row: The array's own offset: its first row in the buffers.
            validity: A bit for each row; None if there are no nulls.
            offsets: The begin of each row, and the end of the last.
            data: The bytes; None if there are none.
            is_large: Whether the offsets have 64 bits, not 32.

        Raises:
            ValueError: if a buffer is too short for so many rows.
        """
        column = ByteColumn()
        column._set_rows(length, row, validity)
        column._is_large = is_large
        if length and is_large:
            column._large_offsets = view_longs(column._hold(offsets, _LONG, row + length + 1))
        elif length:
            column._offsets = view_ints(column._hold(offsets, _INT, row + length + 1))
        if data is not None:
            view = column._hold(data, 1, 0)
            column._data = view_at(view)
            column._data_size = len(view)
        return column

    @staticmethod
    def of_places(length: int, data: memoryview, places: bytearray, sizes: bytearray) -> ByteColumn:
        """Make a column of rows that lie anywhere in some bytes, for example of the records of a batch.

        Args:
            length: The number of rows.
            data: The bytes.
            places: The begin of each row, as C ints.
            sizes: The bytes of each row, or _NULL, as C ints.

        Raises:
            ValueError: if there are fewer places or sizes than rows.
        """
        column = ByteColumn()
        column._set_rows(length, 0, None)
        column._take_places(length, data, places, sizes)
        return column

    def _take_places(self, length: int, data: memoryview, places: bytearray, sizes: bytearray) -> None:
        if min(len(places), len(sizes)) < _INT * length:
            raise ValueError(f"{length} rows need as many places and sizes")
        view = self._hold(data, 1, 0)
        self._data = view_at(view)
        self._data_size = len(view)
        self._places = places
        self._sizes = sizes
        self._is_placed = True

    def __len__(self) -> int:
        return self._length if self._items is None else len(self._items)

    def at(self, index: int) -> Any:
        """Return one row as an object: bytes or None; from a list, its item.

        Raises:
            IndexError: if there is no such row.
            ValueError: if the array's offsets point outside its data.
        """
        if self._items is not None:
            return self._items[index]
        if not 0 <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        if self.locate(index) != FOUND:
            raise ValueError(f"row {index}: the Arrow array's offsets point outside of its data")
        if self._size < 0:
            return None
        return bytes(self._at[: self._size]) if self._size else b""

    def locate(self, index: cython.Py_ssize_t) -> cython.int:
        """Find a row below `_length`: its bytes are `_size` (or _NULL) from `_at` on."""
        begin: cython.longlong
        end: cython.longlong
        items = self._items
        if items is not None:
            item = items[index]
            if item is None:
                self._size = _NULL
                return FOUND
            if type(item) is not bytes:
                return NOT_BYTES
            exact: bytes = item
            self._size = len(exact)
            self._at = bytes_at(exact)
            return FOUND
        if self._is_placed:
            return self._locate_place(index)
        if self._has_validity and self.is_null(index):
            self._size = _NULL
            return FOUND
        index += self._row
        if self._is_large:
            begin = self._large_offsets[index]
            end = self._large_offsets[index + 1]
        else:
            begin = self._offsets[index]
            end = self._offsets[index + 1]
        if begin < 0 or end < begin or end > self._data_size:
            return MALFORMED
        self._size = end - begin
        if self._size:
            self._at = part_at(self._data, begin, self._size)
        return FOUND

    def _locate_place(self, index: cython.Py_ssize_t) -> cython.int:
        begin: cython.longlong = ints_in(self._places)[index]
        size: cython.longlong = ints_in(self._sizes)[index]
        if begin < 0 or size < _NULL or begin + size > self._data_size:
            return MALFORMED
        self._size = size
        if size > 0:
            self._at = part_at(self._data, begin, size)
        return FOUND


class LongColumn(_Rows):
    """Numbers, one per row: an Arrow array of int64 by its buffers.

    Args:
        length: The number of rows.
        row: The array's own offset.
        validity: A bit for each row; None if there are no nulls.
        values: The numbers.

    Raises:
        ValueError: if a buffer is too short for so many rows.
    """

    def __init__(self, length: int, row: int, validity: object, values: object) -> None:
        self._set_rows(length, row, validity)
        if length:
            self._values = view_longs(self._hold(values, _LONG, row + length))

    def at(self, index: int) -> int | None:
        """Return one row; None for null.

        Raises:
            IndexError: if there is no such row.
        """
        if not 0 <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        if self.is_null(index):
            return None
        number: cython.longlong = self._values[self._row + index]
        return number


class HeaderColumn(_Rows):
    """Headers, a list per row: an Arrow list (or map) by its offsets, names and values.

    Args:
        length: The number of rows.
        row: The list array's own offset.
        validity: A bit for each row, or None; a null row has no headers.
        offsets: The begin of each row's headers in `names` and `values`, 32 bits each.
        names: Each header's name, never null.
        values: Each header's value.

    Raises:
        ValueError: if a buffer is too short for so many rows.
    """

    _encoded: cython.p_uchar

    def __init__(
        self, length: int, row: int, validity: object, offsets: object, names: ByteColumn, values: ByteColumn
    ) -> None:
        self._set_rows(length, row, validity)
        self._names = names
        self._values = values
        self._room = bytearray()
        self._placed: ByteColumn | None = None
        self._at = bytes_at(b"")
        self._size = 0
        self._width = 0
        if length:
            self._offsets = view_ints(self._hold(offsets, _INT, row + length + 1))

    @staticmethod
    def of_places(length: int, data: memoryview, places: bytearray, sizes: bytearray) -> HeaderColumn:
        """Make a column of headers that are encoded anywhere in some bytes; see `ByteColumn.of_places()`.

        A row of no bytes has no headers.

        Raises:
            ValueError: if there are fewer places or sizes than rows.
        """
        column = HeaderColumn(0, 0, None, b"", ByteColumn(), ByteColumn())
        column._placed = ByteColumn.of_places(length, data, places, sizes)
        column._length = length
        return column

    @staticmethod
    def of_encoded(length: int, width: int, data: object) -> HeaderColumn:
        """Make a column of encoded headers with the same width in each row, for example of stamps.

        Args:
            length: The number of rows.
            width: Bytes of each row's headers, as `record_batch.encode_headers()` writes them.
            data: The rows, one after the other.

        Raises:
            ValueError: if a row has no bytes, or the buffer is too short for so many rows.
        """
        if length < 0 or width <= 0:
            raise ValueError(
                f"{length} rows of headers of {width} bytes each: they are encoded, so of some bytes"
            )
        column = HeaderColumn(0, 0, None, b"", ByteColumn(), ByteColumn())
        column._encoded = view_at(column._hold(data, 1, length * width))
        column._length = length
        column._width = width
        return column

    def at(self, index: int) -> list[tuple[str, bytes | None]] | None:
        """Return one row's headers as objects; None for null.

        Raises:
            IndexError: if there is no such row.
            ValueError: if the array's offsets point outside its data, or a name is null.
        """
        if not 0 <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        found: cython.int = self.locate(index)
        if found == NOT_BYTES:
            raise ValueError(f"row {index}: a header's name is null")
        if found != FOUND:
            raise ValueError(f"row {index}: the Arrow array's offsets point outside of its headers")
        if self.is_null(index):
            return None
        return decode_headers(bytes(self._at[: self._size])) if self._size else []

    def locate(self, index: cython.Py_ssize_t) -> cython.int:
        """Find a row's encoded headers: `_size` bytes from `_at` on; 0 if there are none."""
        if self._width:
            self._size = self._width
            self._at = part_at(self._encoded, index * self._width, self._width)
            return FOUND
        placed = self._placed
        if placed is not None:
            found: cython.int = placed._locate_place(index)
            self._at = placed._at
            self._size = placed._size
            return found
        return self._encode(index)

    def _encode(self, index: cython.Py_ssize_t) -> cython.int:
        each: cython.Py_ssize_t
        self._size = 0
        if self.is_null(index):
            return FOUND
        begin: cython.Py_ssize_t = self._offsets[self._row + index]
        end: cython.Py_ssize_t = self._offsets[self._row + index + 1]
        if begin < 0 or end < begin or end > self._names._length or end > self._values._length:
            return MALFORMED
        if begin == end:
            return FOUND
        count: cython.ulonglong = end - begin
        size: cython.Py_ssize_t = unsigned_size(count << 1)
        for each in range(begin, end):
            if self._names.locate(each) != FOUND or self._values.locate(each) != FOUND:
                return MALFORMED
            if self._names._size < 0:
                return NOT_BYTES
            size += part_size(self._names._size) + part_size(self._values._size)
        if len(self._room) < size:
            self._room = bytearray(2 * size)
        self._at = array_at(self._room)
        position: cython.Py_ssize_t = put_unsigned(self._at, 0, count << 1)
        for each in range(begin, end):
            self._names.locate(each)
            self._values.locate(each)
            position = put_part(self._at, position, self._names._at, self._names._size)
            position = put_part(self._at, position, self._values._at, self._values._size)
        self._size = size
        return FOUND
