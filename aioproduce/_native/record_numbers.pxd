cimport cython
from aioproduce._native._memory cimport array_at, bytes_at, copy, part_at
from aioproduce._native.record_batch cimport RecordBatchBuffer, encode_headers, put_record, put_unsigned

cdef Py_ssize_t _HEADER_SIZE, _NUMBER_SIZE, _COUNT_SIZE


@cython.final
cdef class RecordNumbers:
    cdef bytes _header  # ours, without its number
    cdef readonly unsigned long long next
    # Headers as a record has them, the count first and ours last: `_size` bytes at `_at`; the user's were `_taken`.
    cdef bytearray _room
    cdef unsigned char *_at
    cdef Py_ssize_t _size, _taken

    cdef _take_none(self)
    cdef take_headers(self, unsigned char *headers, Py_ssize_t size)
    cdef void put_next(self) noexcept
    cpdef Py_ssize_t append(
        self, RecordBatchBuffer records, long long timestamp, bytes key, bytes value, object headers
    ) except -2
