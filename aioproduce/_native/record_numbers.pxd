# What the other compiled modules of this folder call in C; `record_numbers.py` is the source.

cimport cython

from aioproduce._native.record_batch cimport RecordBatchBuffer


# Numbers in C: as names of the module each use would be a look-up and an object.
cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _NUMBER_SIZE
cdef Py_ssize_t _COUNT_SIZE


@cython.final
cdef class RecordNumbers:
    cdef bytes _header
    cdef unsigned long long _next
    cdef bytearray _room
    cdef unsigned char *_at
    cdef Py_ssize_t _size
    cdef Py_ssize_t _taken

    cdef _take_none(self)
    cdef take_headers(self, unsigned char *headers, Py_ssize_t size)
    cdef void put_next(self) noexcept
    cpdef Py_ssize_t append(
        self, RecordBatchBuffer records, long long timestamp, bytes key, bytes value, object headers
    ) except -2
