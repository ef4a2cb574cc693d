cimport cython


@cython.final
cdef class InFlightRequest:
    cdef readonly object api
    cdef readonly int version
    cdef readonly long long correlation_id
    cdef readonly object asker
    cdef readonly double sent_at
    cdef public double deadline
    cdef readonly bint expects_response


@cython.final
cdef class Completed:
    cdef readonly InFlightRequest request
    cdef readonly object response
