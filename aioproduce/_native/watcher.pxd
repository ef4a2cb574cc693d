cimport cython
from aioproduce._native.am_send cimport set_am_send
from cpython.ref cimport Py_INCREF, PyObject


cdef int _NEW, _PARKED, _CANCELLED, _CALLBACK
cdef Py_ssize_t _WAKES_PER_TURN
cdef long long _AWAITS_PER_TURN, _awaits


@cython.no_gc
cdef class Watched:
    cpdef bint done(self) except -1
    cdef _runtime_of(self)
    cdef _value(self)
    cdef _attach(self, Watcher watcher)
    cdef _detach(self, Watcher watcher)


# Without the collector, as what refers to it is without it.
@cython.final
@cython.no_gc
cdef class Watcher:
    cdef Watcher _next
    cdef Watched _watched
    cdef object _callback, _context, _cancelled_with
    cdef unsigned char _state, _is_quiet, _is_blocking

    cdef bint is_callback(self) noexcept
    cdef _advance(self)


@cython.final
cdef class Wakeups:
    cdef object _runtime
    cdef list _watchers
    cdef Py_ssize_t _position
    cdef bint _is_begun

    cdef add(self, Watcher watcher)
    cdef schedule(self)
    cdef run_some(self)
    cdef _tell(self, Watcher watcher)


cpdef Watcher linked(Watcher first, Watcher watcher)
cpdef Watcher unlinked(Watcher first, Watcher watcher)
cpdef Watcher make_wait(Watched watched, bint is_quiet)
cdef BaseException thrown(object kind, object error, object traceback)
cpdef begin_wait(Watched watched, object foreign, bint is_quiet)
cpdef Watcher make_callback(Watched watched, object callback, object context)


# `Watcher.__next__()` as `await` calls it: see am_send.pxd.
cdef inline int watcher_am_send(object self, object value, PyObject **result) except -1:
    result[0] = NULL
    cdef object outcome = (<Watcher>self)._advance()
    Py_INCREF(outcome)
    result[0] = <PyObject *>outcome
    return 1 if outcome is self else 0
