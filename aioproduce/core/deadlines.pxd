cimport cython


@cython.final
cdef class Deadlines:
    cdef readonly list _heap
    cdef readonly dict _live
    cdef long long _insertions

    @cython.locals(entry=tuple)
    cpdef at(self, object key)
    @cython.locals(entry=tuple)
    cpdef schedule(self, object key, double at)
    @cython.locals(entry=tuple)
    cpdef reschedule(self, object key, double at)
    cpdef cancel(self, object key)
    cpdef clear(self)
    @cython.locals(heap=list, entry=tuple)
    cpdef next_at(self)
    @cython.locals(heap=list, due=list, entry=tuple)
    cpdef list pop_due(self, double now)
    @cython.locals(entry=tuple)
    cdef _insert(self, object key, double at)
    cdef _compact(self)
