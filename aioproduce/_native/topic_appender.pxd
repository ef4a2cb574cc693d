# What the other compiled modules of this folder call in C; `topic_appender.py` is the source.

cimport cython
from aioproduce._native.delivery cimport DeliveryFuture


@cython.final
cdef class TopicAppender:
    cdef list _buffers
    cdef list _results
    cdef Py_ssize_t _partition_count
    cdef bint _ignore_keys
    cdef Py_ssize_t _sticky
    cdef long long _sticky_bytes
    cdef long long _sticky_left

    cpdef DeliveryFuture append(
        self, Py_ssize_t partition, long long timestamp, bytes key, bytes value, object headers
    )
