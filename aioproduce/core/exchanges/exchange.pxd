cimport cython


cdef class Exchange:
    cdef public double timer_at
    cdef public bint awaits_connection

    cpdef advance(self, double now)
    cpdef bint answered(self, object response, double now) except -1
    cpdef lost(self, object loss, double now)
    cpdef handle_timer(self, double now)
