cimport cython
from aioproduce._native.delivery cimport BatchResult, DeliveryFuture, _PENDING, _SPLIT, make_delivery
from libc.math cimport floor, ldexp, log2


cdef class Latencies:
    cdef readonly long long count, size
    cdef readonly double highest
    cdef double _total
    cdef dict _counts

    cpdef add_run(self, long long count, long long size, double lowest, double step)


cdef Py_ssize_t _bucket_of(double value) noexcept
cdef double _upper_end(Py_ssize_t bucket) noexcept


@cython.final
cdef class _Batch:
    cdef Stopwatch _stopwatch
    cdef BatchResult _result
    cdef list _runs
    cdef long long _count

    cdef _divide(self)
    cdef _begin(self)


@cython.final
cdef class Stopwatch:
    cdef object _clock, _on_settled
    cdef dict _batches
    cdef readonly long long sent, acknowledged, failed
    cdef readonly dict errors
    cdef readonly list sinks, steady_sinks

    cdef _fail(self, long long count, BaseException error)
    cdef _acknowledge(self, list runs)
