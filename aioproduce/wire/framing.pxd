cimport cython


@cython.final
cdef class FrameReader:
    cdef public Py_ssize_t _max_frame_size, _partial_size
    cdef public bytearray _partial
    cdef public object _error

    cpdef list feed(self, bytes data)
    cdef Py_ssize_t _feed_partial(self, bytes data, list frames) except -1
    @cython.locals(size=cython.Py_ssize_t, length=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef _cut(self, bytes data, Py_ssize_t at, list frames)
    cdef Py_ssize_t _checked(self, long long length) except -1
