cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)

cpdef void untrack(object leaf) noexcept
