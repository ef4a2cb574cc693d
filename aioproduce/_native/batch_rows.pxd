cimport cython
from aioproduce._native._memory cimport ints_in, longs_in, view_at
from aioproduce._native.columns cimport ByteColumn, HeaderColumn, LongColumn


# Each byte of a number is compared with them: undeclared, a comparison would make two objects.
cdef int _NULL, _MOST_SHIFT, _NO_HEADERS


@cython.final
cdef class BatchRows:
    cdef memoryview _view
    cdef unsigned char *_data
    cdef Py_ssize_t _end, _at, _part_at
    cdef bint _has_keys, _has_headers
    cdef readonly ByteColumn values, keys
    cdef readonly HeaderColumn headers
    cdef readonly LongColumn timestamps

    cdef _read_all(
        self, Py_ssize_t record_count, long long first_timestamp,
        bytearray value_places, bytearray value_sizes, bytearray key_places, bytearray key_sizes,
        bytearray header_places, bytearray header_sizes, bytearray times
    )
    cdef Py_ssize_t _varint(self) except? -1
    cdef Py_ssize_t _part(self, Py_ssize_t end) except? -2
