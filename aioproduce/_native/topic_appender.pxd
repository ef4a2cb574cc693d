# What the other compiled modules of this folder call in C; `topic_appender.py` is the source.

cimport cython
from aioproduce._native.delivery cimport DeliveryFuture
from aioproduce._native.record_numbers cimport RecordNumbers


@cython.final
cdef class TopicAppender:
    cdef list _buffers
    cdef list _results
    cdef Py_ssize_t _partition_count
    cdef int _key_rule
    cdef list _line
    cdef Py_ssize_t _line_at
    cdef Py_ssize_t _sticky
    cdef long long _sticky_bytes
    cdef long long _sticky_left
    cdef RecordNumbers _numbers
    cdef bint _is_numbered

    cdef Py_ssize_t next_keyless(self) noexcept
    cdef void count_keyless(self, Py_ssize_t size) noexcept
    cpdef DeliveryFuture append(
        self, Py_ssize_t partition, long long timestamp, bytes key, bytes value, object headers
    )
