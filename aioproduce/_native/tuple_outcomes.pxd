# The class of `tuple_outcomes.py` as C knows it.

cimport cython


cdef int _CREATE_TIME
cdef int _LOG_APPEND_TIME


@cython.final
cdef class TupleOutcomes:
    cdef object _metadata_type
    cdef object _place_type
    cdef object _translate
    cdef bint _is_acknowledged
    cdef str _topic
    cdef int _partition
    cdef object _place

    cpdef object metadata(
        self,
        str topic,
        int partition,
        long long offset,
        long long timestamp,
        long long log_append_time,
        long long log_start_offset,
    )
    cpdef BaseException error(self, BaseException error)
