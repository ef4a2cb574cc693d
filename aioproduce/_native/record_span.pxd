cimport cython
from aioproduce._native._memory cimport ints_in, longs_in
from aioproduce._native._metadata cimport record_metadata
from aioproduce._native.delivery cimport BatchResult, DeliveryFuture, make_delivery
from aioproduce._native.record_batch cimport RecordBatchBuffer


@cython.final
cdef class RecordSpan:
    cdef Py_ssize_t _count
    cdef readonly list results
    # One batch takes all, from `_first_index` on; or, routed, `_places` (in `results`) and `_indices` tell.
    cdef Py_ssize_t _first_index
    cdef bint _is_routed, _has_keys, _has_timestamps
    cdef bytearray _places, _indices, _key_sizes, _value_sizes
    cdef long long _timestamp
    cdef bytearray _timestamps

    cdef tuple _entry(self, Py_ssize_t index)
    cdef trim(self, Py_ssize_t count)


cdef long long _unzigzag(unsigned long long raw) noexcept
cdef long long _signed(unsigned long long value) noexcept
