cimport cython

from aioproduce._native._metadata cimport record_metadata
from aioproduce._native.tuple_outcomes cimport TupleOutcomes
from aioproduce._native.watcher cimport Wakeups, Watched, Watcher, begin_wait, linked, make_callback, unlinked


cdef int _PENDING, _SUCCEEDED, _FAILED, _SPLIT
# The class of each outcome; a C variable, too.
cdef object RecordMetadata


@cython.final
cdef class UnobservedFailures:
    cdef object _runtime, _topic, _error
    cdef int _partition
    cdef long long count


cdef class BatchResult:
    cdef readonly str topic
    cdef readonly int partition, status
    cdef readonly long long base_offset, log_append_time
    cdef long long _log_start_offset
    cdef readonly BaseException error
    cdef readonly object runtime
    cdef TupleOutcomes _outcomes
    cdef dict _record_errors
    cdef list _children, _watched, _callbacks
    cdef UnobservedFailures _unobserved
    cdef Wakeups _late
    cdef object _wait  # the runtime's own way to wait for a delivery, or None
    cdef object _group  # what `stored_send` keeps with the batch, or None

    cdef _check_pending(self)
    cdef BaseException _error_at(self, int index)
    cdef _metadata_of(
        self, Py_ssize_t index, long long timestamp, Py_ssize_t key_size, Py_ssize_t value_size
    )
    cdef _observe(self, long long count)
    cdef _watch(self, DeliveryFuture future)
    cdef _fire(self)
    cdef _tell_late(self, Watcher watcher)


# 64 bytes, the size of a block of CPython's allocator: a million live ones are 61 MiB.
# Without the collector: a million live deliveries would cost each of its passes. No cycle outlives the record: what
# a delivery refers to (its watchers) it drops when it is settled, which `delivery.timeout.ms` bounds.
@cython.final
@cython.no_gc
cdef class DeliveryFuture(Watched):
    cdef BatchResult _result
    cdef long long _timestamp
    # The watchers, a linked list; once cancelled, the message that `cancel()` was given.
    cdef object _held
    cdef int _index, _key_size, _value_size
    cdef unsigned char _is_watched, _is_cancelled, _is_observed

    cdef _follow_split(self)
    cdef Watcher _take_watchers(self)
    cdef _metadata(self)
    cdef BaseException _outcome(self)
    cdef _observe(self)


cdef tuple part_of(BatchResult result, Py_ssize_t index)
cpdef DeliveryFuture make_delivery(
    BatchResult result, Py_ssize_t index, long long timestamp, Py_ssize_t key_size, Py_ssize_t value_size
)
