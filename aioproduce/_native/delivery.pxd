# What the other compiled modules of this folder call in C; `delivery.py` is the source.

cimport cython

from aioproduce._native.tuple_outcomes cimport TupleOutcomes
from aioproduce._native.watcher cimport Wakeups, Watched, Watcher


cdef int _PENDING
cdef int _SUCCEEDED
cdef int _FAILED
cdef int _SPLIT
# What each outcome is made of: likewise.
cdef object RecordMetadata


cdef class BatchResult:
    cdef str _topic
    cdef int _partition
    cdef int _status
    cdef long long _base_offset
    cdef long long _log_append_time
    cdef long long _log_start_offset
    cdef BaseException _error
    cdef object _runtime
    cdef TupleOutcomes _outcomes
    cdef dict _record_errors
    cdef list _children
    cdef list _watched
    cdef list _callbacks
    cdef long long _unobserved
    cdef Wakeups _late
    cdef object _wait

    cdef _check_pending(self)
    cdef BaseException _error_at(self, int index)
    cdef _watch(self, DeliveryFuture future)
    cdef _fire(self)
    cdef _tell_late(self, Watcher watcher)


# 64 bytes, the size of a block of CPython's allocator: a million live ones are 61 MiB.
@cython.final
@cython.no_gc
cdef class DeliveryFuture(Watched):
    cdef BatchResult _result
    cdef long long _timestamp
    cdef object _held
    cdef int _index
    cdef int _key_size
    cdef int _value_size
    cdef unsigned char _is_watched
    cdef unsigned char _is_cancelled
    cdef unsigned char _is_observed

    cdef _follow_split(self)
    cdef Watcher _take_watchers(self)
    cdef _metadata(self)
    cdef BaseException _outcome(self)
    cdef _observe(self)


cpdef DeliveryFuture make_delivery(
    BatchResult result, Py_ssize_t index, long long timestamp, Py_ssize_t key_size, Py_ssize_t value_size
)
