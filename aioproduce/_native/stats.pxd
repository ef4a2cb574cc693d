cimport cython
from aioproduce._native.collector cimport untrack
from libc.math cimport ceil, log2, pow

cdef double _LOWEST
cdef Py_ssize_t _SUB_BUCKETS, _BUCKETS


cdef class Windows:
    cdef readonly Py_ssize_t samples
    cdef readonly double seconds


# All without the collector: they refer to numbers and to one another, downwards. Each topic has dozens.
@cython.no_gc
cdef class _Sample:
    cdef double began_at, last_at, total, highest
    cdef long long count
    cdef dict counts, former
    cdef reset(self, double now)


@cython.no_gc
cdef class _Windowed:
    cdef Windows _windows
    cdef double _seconds
    cdef _Sample _latest
    cdef list _samples
    cdef dict _former
    cdef Py_ssize_t _current
    cdef _Sample _sample(self, double now)
    cdef list _fresh(self, double now)
    cdef long long _count(self, double now) except? -1
    cdef double _total(self, double now) except? -1
    cdef double _elapsed(self, double now) except? -1


@cython.final
@cython.no_gc
cdef class Meter(_Windowed):
    cdef readonly double total
    cpdef record(self, double value, double now)


@cython.no_gc
cdef class Spread(_Windowed):
    cdef readonly long long count
    cdef readonly double total, highest
    cpdef record(self, double value, double now)
    cpdef record_sum(self, double total, long long count, double highest, double now)


@cython.final
@cython.no_gc
cdef class Distribution(Spread):
    pass


cpdef Py_ssize_t bucket_of(double value) except? -1
cpdef double upper_end(Py_ssize_t bucket) except? -1
