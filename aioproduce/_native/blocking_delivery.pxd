cimport cython

from aioproduce._native.delivery cimport BatchResult, DeliveryFuture, _FAILED, _SPLIT, _SUCCEEDED, make_delivery, part_of


# Without the collector, as DeliveryFuture and for the same reason. What it refers to and could refer back (who
# waits, the callback) it drops when it is settled.
@cython.final
@cython.no_gc
cdef class BlockingDelivery:
    cdef readonly str topic
    cdef readonly double _handed_at  # by `time.monotonic()`
    cdef object _owner
    # The record, until it is accepted; the batch that it is in from then on; or why it never was accepted.
    cdef bytes _key, _value
    cdef object _headers, _on_delivery
    cdef BatchResult _result
    cdef BaseException _error
    cdef object _watch
    cdef long long _timestamp
    cdef int _partition, _index, _key_size, _value_size
    cdef unsigned char _is_observed

    cpdef _accept(self, DeliveryFuture delivery)
    cdef _attach(self, DeliveryFuture delivery)
    cdef bint _is_settled(self) except -1
    cdef bint _has_failed(self) except -1
    cdef BatchResult _batch(self)
    cdef Py_ssize_t _index_in_batch(self) except -1
    cdef BaseException _outcome(self, object timeout)
    cdef _metadata(self)


cpdef BlockingDelivery new_delivery(
    object owner, str topic, bytes key, bytes value, object headers, Py_ssize_t partition, long long timestamp,
    object on_delivery
)
