cimport cython


@cython.final
cdef class Send:
    cdef readonly long long connection_id
    cdef readonly object buffers
