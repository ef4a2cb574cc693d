cimport cython
from aioproduce._native.sensors cimport RequestMetrics
from aioproduce.core.effects cimport Send


cdef class CoreStep:
    cdef public object _now, _work_clock, _wake, _connect, _offload, _on_settled, _on_thrown_away, _failure
    cdef public bint _is_now_exact
    cdef public RequestMetrics _metrics
    cdef public object _alarm, _pulse
    cdef readonly dict connections
    cdef readonly object compression
    cdef public object sender
    cdef public double woken_at
    cdef public double _worked, _slept_at
    cdef public object _timer_at
    cdef public bint is_killed, is_dead, is_over

    @cython.locals(now=cython.double, began_at=cython.double, worked=cython.double, waited=cython.double)
    cpdef bint step(self) except -1
    cpdef ended_by(self, BaseException error)
    @cython.locals(send=Send)
    cdef _carry_out(self, object effect)
    @cython.locals(now=cython.double, began_at=cython.double)
    cpdef received(self, long long connection_id, bytes data)
    cpdef written_at_once(self, long long connection_id)
