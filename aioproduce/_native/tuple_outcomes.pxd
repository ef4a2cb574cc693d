cimport cython
from aioproduce._native._metadata cimport placed_metadata


@cython.final
cdef class TupleOutcomes:
    cdef object _metadata_type, _place_type
    cdef readonly object error  # makes the other library's exception of ours
    cdef bint _is_acknowledged
    # Of the record before: those of a batch are asked one after the other.
    cdef str _topic
    cdef int _partition
    cdef object _place

    cpdef object metadata(
        self, str topic, int partition, long long offset, long long timestamp, long long log_append_time,
        long long log_start_offset
    )
