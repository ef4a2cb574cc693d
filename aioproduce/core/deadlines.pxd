cimport cython


@cython.final
cdef class _Entry:
    cdef readonly double at
    cdef readonly long long insertion
    cdef readonly object key


@cython.final
cdef class Deadlines:
    cdef readonly list _heap
    cdef readonly dict _live
    cdef long long _insertions

    @cython.locals(entry=_Entry)
    cpdef at(self, object key)
    @cython.locals(entry=_Entry)
    cpdef schedule(self, object key, double at)
    @cython.locals(entry=_Entry)
    cpdef reschedule(self, object key, double at)
    cpdef cancel(self, object key)
    cpdef clear(self)
    @cython.locals(heap=list, entry=_Entry)
    cpdef next_at(self)
    @cython.locals(heap=list, due=list, entry=_Entry)
    cpdef list pop_due(self, double now)
    @cython.locals(entry=_Entry)
    cdef _insert(self, object key, double at)
    cdef _compact(self)
