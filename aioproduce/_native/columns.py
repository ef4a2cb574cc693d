# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Columns of rows to be sent: keys and values as lists of bytes or as the buffers of Arrow arrays, and numbers.

Made by `producer.bulk` and `producer.arrow`, read row by row in C by `bulk_append` (`columns.pxd`).

Invariants:

1. Arrow's memory is not believed: that a buffer is long enough is checked when a column is made, and every offset
   against the buffer that it points into before a byte is read.
2. A column keeps the memory that it points into.
3. `locate()` is asked for rows of the column only; `at()` checks that itself.

One source, two builds: compiled by Cython as it stands (pure Python mode), or interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproduce._native._record_reading import decode_headers

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
    from aioproduce._native.record_writer import part_size, put_part, put_unsigned, unsigned_size
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython

    if cython.compiled:
        from cython.cimports.aioproduce._native.record_writer import (
            part_size,
            put_part,
            put_unsigned,
            unsigned_size,
        )
    else:
        from aioproduce._native.record_writer import part_size, put_part, put_unsigned, unsigned_size

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyByteArray_AS_STRING,
    )
    from cython.cimports.cpython.bytes import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyBytes_AS_STRING,
    )
    from cython.cimports.cpython.memoryview import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        PyMemoryView_GET_BUFFER,
    )

NULL = -1
"""The size of a null."""

FOUND = 0
NOT_BYTES = 1
MALFORMED = 2
"""What `locate()` answers."""

_INT = 4
_LONG = 8


@cython.cfunc
def _bytes_at(view: memoryview) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)  # type: ignore[no-any-return]
    else:
        return view  # type: ignore[return-value]


@cython.cfunc
def _ints_at(view: memoryview) -> cython.p_int:
    if cython.compiled:
        return cython.cast(cython.p_int, PyMemoryView_GET_BUFFER(view).buf)  # type: ignore[no-any-return]
    else:
        return view[: len(view) // _INT * _INT].cast("i")


@cython.cfunc
def _longs_at(view: memoryview) -> cython.p_longlong:
    if cython.compiled:
        return cython.cast(cython.p_longlong, PyMemoryView_GET_BUFFER(view).buf)  # type: ignore[no-any-return]
    else:
        return view[: len(view) // _LONG * _LONG].cast("q")


def _view_of(buffer: object, entry: int, count: int) -> memoryview:
    """The bytes of a buffer that holds `count` entries of `entry` bytes at least, fit to be read by address."""
    view = memoryview(buffer)  # type: ignore[arg-type]
    if not view.c_contiguous:
        raise ValueError("an Arrow buffer is contiguous memory; this one is not")
    view = view.cast("B")
    if len(view) < entry * count:
        raise ValueError(
            f"an Arrow buffer of {len(view)} bytes is too short for {count} entries of {entry} bytes"
        )
    if entry > 1 and _is_unaligned(view, entry):
        view = memoryview(bytes(view))  # Arrow recommends aligned memory, and promises none
    return view


@cython.cfunc
def _is_unaligned(view: memoryview, entry: cython.Py_ssize_t) -> cython.bint:
    if cython.compiled:
        address: cython.size_t = cython.cast(cython.size_t, PyMemoryView_GET_BUFFER(view).buf)
        return address % entry != 0
    else:
        return False


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_set(bits: cython.p_uchar, index: cython.Py_ssize_t) -> cython.bint:
    return (bits[index >> 3] >> (index & 7)) & 1 != 0


@cython.final
@cython.cclass
class ByteColumn:
    """Keys or values, one a row: a list of bytes and None, or an Arrow array of (large) binary or string.

    Args:
        items: The list; or None, and then the Arrow array's parts are told by `ByteColumn.of_arrow()`.
    """

    __slots__ = (
        "_at",
        "_data",
        "_data_size",
        "_has_validity",
        "_is_large",
        "_items",
        "_kept",
        "_large_offsets",
        "_length",
        "_offsets",
        "_row",
        "_size",
        "_validity",
    )

    _items: list[object] | None
    _kept: list[memoryview]
    _length: cython.Py_ssize_t
    _row: cython.Py_ssize_t
    _has_validity: cython.bint
    _is_large: cython.bint
    _validity: cython.p_uchar
    _offsets: cython.p_int
    _large_offsets: cython.p_longlong
    _data: cython.p_uchar
    _data_size: cython.Py_ssize_t
    _at: cython.p_uchar
    _size: cython.Py_ssize_t

    def __init__(self, items: list[object] | None = None) -> None:
        self._items = items
        self._kept = []
        self._length = 0
        self._row = 0
        self._has_validity = False
        self._is_large = False
        self._data_size = 0
        self._size = NULL
        if not cython.compiled:
            self._at = bytearray()

    @staticmethod
    def of_arrow(
        length: int, row: int, validity: object, offsets: object, data: object, *, is_large: bool
    ) -> ByteColumn:
        """An array by its buffers.

        Args:
            length: How many rows.
            row: The array's own offset: its first row in the buffers.
            validity: A bit for each row, or None where there are no nulls.
            offsets: Where each row begins, and the end of the last.
            data: The bytes, or None where there are none.
            is_large: Whether the offsets have 64 bits, not 32.

        Raises:
            ValueError: a buffer is too short for so many rows.
        """
        column = ByteColumn()
        column._set(length, row, validity, offsets, data, is_large)
        return column

    def _set(
        self, length: int, row: int, validity: object, offsets: object, data: object, is_large: bool
    ) -> None:
        if length < 0 or row < 0:
            raise ValueError(f"an Arrow array of {length} rows from {row} on: neither is ever negative")
        self._length = length
        self._row = row
        self._is_large = is_large
        if validity is not None:
            view = _view_of(validity, 1, (row + length + 7) // 8)
            self._kept.append(view)
            self._validity = _bytes_at(view)
            self._has_validity = True
        if length:
            view = _view_of(offsets, _LONG if is_large else _INT, row + length + 1)
            self._kept.append(view)
            if is_large:
                self._large_offsets = _longs_at(view)
            else:
                self._offsets = _ints_at(view)
        if data is not None:
            view = _view_of(data, 1, 0)
            self._kept.append(view)
            self._data = _bytes_at(view)
            self._data_size = len(view)

    def __len__(self) -> int:
        return self._length if self._items is None else len(self._items)

    def at(self, index: int) -> Any:
        """One row as an object: bytes or None; of a list whatever is there.

        Raises:
            IndexError: there is no such row.
            ValueError: the array's offsets point outside its data.
        """
        if self._items is not None:
            return self._items[index]
        if not 0 <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        if self.locate(index) != FOUND:
            raise ValueError(f"row {index}: the Arrow array's offsets point outside of its data")
        if self._size < 0:
            return None
        if cython.compiled:
            return self._at[: self._size] if self._size else b""
        else:
            return bytes(self._at)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def locate(self, index: cython.Py_ssize_t) -> cython.int:
        """Find a row below `_length`: its bytes are `_size` (or NULL) from `_at` on."""
        begin: cython.longlong
        end: cython.longlong
        exact: bytes
        items = self._items
        if items is not None:
            item = items[index]
            if item is None:
                self._size = NULL
                return FOUND
            if type(item) is not bytes:
                return NOT_BYTES
            exact = item
            self._size = len(exact)
            if cython.compiled:
                self._at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(exact))
            else:
                self._at = exact  # type: ignore[assignment]
            return FOUND
        index += self._row
        if self._has_validity and not _is_set(self._validity, index):
            self._size = NULL
            return FOUND
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
            if cython.compiled:
                self._at = cython.address(self._data[begin])
            else:
                self._at = self._data[begin:end]
        elif not cython.compiled:
            self._at = b""  # type: ignore[assignment]
        return FOUND


@cython.final
@cython.cclass
class LongColumn:
    """Numbers, one a row: an Arrow array of int64 by its buffers.

    Args:
        length: How many rows.
        row: The array's own offset.
        validity: A bit for each row, or None where there are no nulls.
        values: The numbers.

    Raises:
        ValueError: a buffer is too short for so many rows.
    """

    __slots__ = ("_has_validity", "_kept", "_length", "_row", "_validity", "_values")

    _kept: list[memoryview]
    _length: cython.Py_ssize_t
    _row: cython.Py_ssize_t
    _has_validity: cython.bint
    _validity: cython.p_uchar
    _values: cython.p_longlong

    def __init__(self, length: int, row: int, validity: object, values: object) -> None:
        if length < 0 or row < 0:
            raise ValueError(f"an Arrow array of {length} rows from {row} on: neither is ever negative")
        self._kept = []
        self._length = length
        self._row = row
        self._has_validity = False
        if validity is not None:
            view = _view_of(validity, 1, (row + length + 7) // 8)
            self._kept.append(view)
            self._validity = _bytes_at(view)
            self._has_validity = True
        if length:
            view = _view_of(values, _LONG, row + length)
            self._kept.append(view)
            self._values = _longs_at(view)

    def __len__(self) -> int:
        return self._length

    def at(self, index: int) -> int | None:
        """One row, None for null.

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        number: cython.longlong
        if self.is_null(index):
            return None
        number = self._values[self._row + index]
        return number

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_null(self, index: cython.Py_ssize_t) -> cython.bint:
        return self._has_validity and not _is_set(self._validity, self._row + index)


@cython.final
@cython.cclass
class HeaderColumn:
    """Headers, a list of them a row: an Arrow list (or map) by its offsets, names and values.

    Args:
        length: How many rows.
        row: The list array's own offset.
        validity: A bit for each row, or None; a null row has no headers.
        offsets: 32 bits each: where each row's headers begin in `names` and `values`.
        names: Each header's name, never null.
        values: Each header's value.

    Raises:
        ValueError: a buffer is too short for so many rows.
    """

    __slots__ = (
        "_at",
        "_encoded",
        "_has_validity",
        "_kept",
        "_length",
        "_names",
        "_offsets",
        "_room",
        "_row",
        "_size",
        "_validity",
        "_values",
        "_width",
    )

    _kept: list[memoryview]
    _length: cython.Py_ssize_t
    _row: cython.Py_ssize_t
    _has_validity: cython.bint
    _validity: cython.p_uchar
    _offsets: cython.p_int
    _names: ByteColumn
    _values: ByteColumn
    _room: bytearray
    _at: cython.p_uchar
    _size: cython.Py_ssize_t
    # Where all rows' headers are encoded already: how wide a row is, and the rows.
    _width: cython.Py_ssize_t
    _encoded: cython.p_uchar

    def __init__(
        self, length: int, row: int, validity: object, offsets: object, names: ByteColumn, values: ByteColumn
    ) -> None:
        if length < 0 or row < 0:
            raise ValueError(f"an Arrow array of {length} rows from {row} on: neither is ever negative")
        self._kept = []
        self._length = length
        self._row = row
        self._names = names
        self._values = values
        self._room = bytearray()
        self._size = 0
        self._width = 0
        self._has_validity = False
        if not cython.compiled:
            self._at = self._room
        if validity is not None:
            view = _view_of(validity, 1, (row + length + 7) // 8)
            self._kept.append(view)
            self._validity = _bytes_at(view)
            self._has_validity = True
        if length:
            view = _view_of(offsets, _INT, row + length + 1)
            self._kept.append(view)
            self._offsets = _ints_at(view)

    @staticmethod
    def of_encoded(length: int, width: int, data: object) -> HeaderColumn:
        """Headers that are encoded already, and as wide in each row: a stamp, say.

        Args:
            length: How many rows.
            width: Bytes of each row's headers, as `record_batch.encode_headers()` writes them.
            data: The rows, one behind the other.

        Raises:
            ValueError: a row has no bytes, or the buffer is too short for so many rows.
        """
        column = HeaderColumn(0, 0, None, b"", ByteColumn(), ByteColumn())
        column._set_encoded(length, width, data)
        return column

    def _set_encoded(self, length: int, width: int, data: object) -> None:
        if length < 0 or width <= 0:
            raise ValueError(
                f"{length} rows of headers of {width} bytes each: they are encoded, so of some bytes"
            )
        view = _view_of(data, 1, length * width)
        self._kept.append(view)
        self._encoded = _bytes_at(view)
        self._length = length
        self._width = width

    def __len__(self) -> int:
        return self._length

    def at(self, index: int) -> list[tuple[str, bytes | None]] | None:
        """One row's headers as objects, None for null.

        Raises:
            IndexError: there is no such row.
            ValueError: the array's offsets point outside its data, or a name is null.
        """
        if not 0 <= index < self._length:
            raise IndexError(f"row {index} of {self._length}")
        if self._width:
            if cython.compiled:
                row: cython.p_uchar = cython.address(self._encoded[index * self._width])
                return decode_headers(bytes(row[: self._width]))
            else:
                return decode_headers(bytes(self._encoded[index * self._width : (index + 1) * self._width]))
        if self._has_validity and not _is_set(self._validity, self._row + index):
            return None
        begin: int = self._offsets[self._row + index]
        end: int = self._offsets[self._row + index + 1]
        if not 0 <= begin <= end <= min(len(self._names), len(self._values)):
            raise ValueError(f"row {index}: the Arrow array's offsets point outside of its headers")
        headers = []
        for each in range(begin, end):
            name = self._names.at(each)
            if name is None:
                raise ValueError(f"row {index}: a header's name is null")
            headers.append((name.decode(), self._values.at(each)))
        return headers

    @cython.cfunc
    @cython.exceptval(-1)
    def locate(self, index: cython.Py_ssize_t) -> cython.int:
        """A row's headers, encoded: they are `_size` bytes from `_at` on, or 0 where there are none."""
        if self._width:
            self._size = self._width
            if cython.compiled:
                self._at = cython.address(self._encoded[index * self._width])
            else:
                self._at = self._encoded[index * self._width : (index + 1) * self._width]
            return FOUND
        return self._encode(index)

    @cython.cfunc
    @cython.exceptval(-1)
    def _encode(self, index: cython.Py_ssize_t) -> cython.int:
        begin: cython.Py_ssize_t
        end: cython.Py_ssize_t
        each: cython.Py_ssize_t
        size: cython.Py_ssize_t
        position: cython.Py_ssize_t
        count: cython.ulonglong
        self._size = 0
        index += self._row
        if self._has_validity and not _is_set(self._validity, index):
            return FOUND
        begin = self._offsets[index]
        end = self._offsets[index + 1]
        if begin < 0 or end < begin or end > self._names._length or end > self._values._length:
            return MALFORMED
        if begin == end:
            return FOUND
        count = end - begin
        size = unsigned_size(count << 1)
        for each in range(begin, end):
            if self._names.locate(each) != FOUND or self._names._size < 0:
                return MALFORMED
            if self._values.locate(each) != FOUND:
                return MALFORMED
            size += part_size(self._names._size) + part_size(self._values._size)
        if len(self._room) < size:
            self._room = bytearray(2 * size)
        if cython.compiled:
            self._at = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._room))
        else:
            self._at = self._room
        position = put_unsigned(self._at, 0, count << 1)
        for each in range(begin, end):
            self._names.locate(each)
            self._values.locate(each)
            position = put_part(self._at, position, self._names._at, self._names._size)
            position = put_part(self._at, position, self._values._at, self._values._size)
        self._size = size
        if not cython.compiled:
            self._at = self._room[:size]
        return FOUND
