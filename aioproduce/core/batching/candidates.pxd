cimport cython


@cython.final
cdef class BrokerLoads:
    cdef public double _availability_timeout, _now, _next_refresh
    cdef public dict _blocked_since
    cdef readonly long long refreshes

    cpdef pass_time(self, object waiting, double now)
    cpdef blocked(self, object node, double now)
    cpdef drained(self, object node)
