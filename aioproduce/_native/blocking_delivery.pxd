# What `hand_over` does with the deliveries of threads, in C; `blocking_delivery.py` is the source.

cimport cython

from aioproduce._native.delivery cimport BatchResult, DeliveryFuture


@cython.final
@cython.no_gc
cdef class BlockingDelivery:
    cdef object _owner
    cdef str _topic
    cdef bytes _key
    cdef bytes _value
    cdef object _headers
    cdef object _on_delivery
    cdef BatchResult _result
    cdef BaseException _error
    cdef object _watch
    cdef long long _timestamp
    cdef double _handed_at
    cdef int _partition
    cdef int _index
    cdef int _key_size
    cdef int _value_size
    cdef unsigned char _is_observed

    cdef accept(self, DeliveryFuture delivery)
    cdef _attach(self, DeliveryFuture delivery)
    cdef bint _is_settled(self) except -1
    cdef BatchResult _batch(self)
    cdef Py_ssize_t _index_in_batch(self) except -1
    cdef BaseException _outcome(self, object timeout)
    cdef _metadata(self)


cdef BlockingDelivery new_delivery(
    object owner, str topic, bytes key, bytes value, object headers, Py_ssize_t partition, long long timestamp,
    object on_delivery
)
