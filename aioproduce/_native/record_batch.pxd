cimport cython
from aioproduce._native._memory cimport array_at, bytes_at, copy, export, pin, unpin


# Without the collector: it refers to bytes only. Thousands are open where there are thousands of partitions.
@cython.final
@cython.no_gc
cdef class RecordBatchBuffer:
    cdef bytearray _buffer
    cdef Py_buffer _pin
    cdef unsigned char *_data
    cdef Py_ssize_t _limit, _exports
    cdef bint _is_pinned
    cdef readonly Py_ssize_t size, record_count, largest_record
    cdef readonly long long base_timestamp, max_timestamp

    cpdef Py_ssize_t try_append(self, long long timestamp, object key, object value, object headers=*) except -2
    cdef memoryview _view(self)
    cdef _unpin_unused(self)
    cpdef tuple seal(
        self, long long producer_id=*, int producer_epoch=*, long long base_sequence=*, int attributes=*,
        bytes compressed=*, bint is_transactional=*
    )


cdef Py_ssize_t put_record(
    RecordBatchBuffer records, long long timestamp, unsigned char *key, Py_ssize_t key_size, unsigned char *value,
    Py_ssize_t value_size, unsigned char *headers, Py_ssize_t headers_size
) noexcept
cdef Py_ssize_t unsigned_size(unsigned long long value) noexcept
cdef Py_ssize_t put_unsigned(unsigned char *target, Py_ssize_t position, unsigned long long value) noexcept
cdef void put_number(
    unsigned char *target, Py_ssize_t position, Py_ssize_t size, long long value
) noexcept
cdef Py_ssize_t part_size(Py_ssize_t size) noexcept
cdef Py_ssize_t put_part(
    unsigned char *target, Py_ssize_t position, unsigned char *source, Py_ssize_t size
) noexcept

cpdef bytes encode_headers(object headers)
cdef bytes _bytes_of(object value, str field)
cdef bytes _header_name(object name)
cdef list _encoded_headers(object headers)
cdef Py_ssize_t _encoded_headers_size(list[bytes] encoded) except? -1
