cimport cython
from aioproduce._native._memory cimport array_at, bytes_at, ints_in, is_aligned, part_at, view_at, view_ints, view_longs
from aioproduce._native.record_batch cimport part_size, put_part, put_unsigned, unsigned_size


# Each row is compared with them: undeclared, a comparison would make two objects.
cdef int FOUND, NOT_BYTES, MALFORMED, _NULL


cdef class _Rows:
    cdef list _kept
    cdef Py_ssize_t _length, _row
    cdef bint _has_validity
    cdef unsigned char *_validity

    cdef bint is_null(self, Py_ssize_t index) noexcept


@cython.final
cdef class ByteColumn(_Rows):
    cdef list _items
    cdef bint _is_large
    cdef int *_offsets
    cdef long long *_large_offsets
    cdef unsigned char *_data
    cdef Py_ssize_t _data_size
    # Where rows lie anywhere in the data: their places and sizes.
    cdef bint _is_placed
    cdef bytearray _places, _sizes
    # The row that `locate()` found.
    cdef unsigned char *_at
    cdef Py_ssize_t _size

    cdef int locate(self, Py_ssize_t index) noexcept
    cdef int _locate_place(self, Py_ssize_t index) noexcept


@cython.final
cdef class LongColumn(_Rows):
    cdef long long *_values


@cython.final
cdef class HeaderColumn(_Rows):
    cdef int *_offsets
    cdef ByteColumn _names, _values
    # Where all rows' headers are encoded already: how wide a row is, and the rows.
    cdef Py_ssize_t _width
    cdef unsigned char *_encoded
    # Where rows are encoded anywhere in some bytes.
    cdef ByteColumn _placed
    # The row that `locate()` found, and where it was encoded.
    cdef unsigned char *_at
    cdef Py_ssize_t _size
    cdef bytearray _room

    cdef int locate(self, Py_ssize_t index) except -1
    cdef int _encode(self, Py_ssize_t index) except -1
