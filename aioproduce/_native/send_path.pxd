cimport cython
from aioproduce._native.am_send cimport set_am_send
from aioproduce._native.topic_appender cimport TopicAppender
from aioproduce._native.watcher cimport Watcher, begin_wait, thrown
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_INCREF, PyObject

from aioproduce._native.delivery cimport DeliveryFuture
from cpython.time cimport monotonic, time as wall_time


cdef int _NEW, _RUNNING, _DONE
cdef long long _SENDS_PER_CLOCK, _MAX_PARTITION, _MAX_TIMESTAMP, _forks
cdef double _TURN
cdef int NO_PARTITION


cdef class SendPath:
    cdef dict _appenders
    cdef object _append, _is_running, _on_turn
    cdef unsigned long _thread
    cdef long long _forks
    cdef bint _is_plain
    cdef long long _sends
    cdef double _began_at
    cdef object _wall_ms

    cpdef bint _turn_is_due(self) except -1
    cpdef _put_turn_off(self)
    cdef _begin_turn(self)
    cdef DeliveryFuture _accept(self, SendCall call)


@cython.final
cdef class SendCall:
    cdef SendPath _path
    cdef object _topic, _value, _key, _partition, _timestamp, _headers, _timeout, _on_delivery
    # What it waits in: the long way's coroutine, or the wait for the acknowledgement.
    cdef object _inner
    # What `_step()` came to.
    cdef object _given
    cdef unsigned char _state, _is_awaiting

    cdef bint _step(self, object sent) except -1
    cdef bint _wait(self) except -1
    cdef _slowly(self)
    cdef _end(self)
    cdef _take(self)


cdef SendCall make_call(
    SendPath path, object topic, object value, object key, object partition, object timestamp, object headers,
    object timeout, object on_delivery, bint is_awaiting
)


# `SendCall.send()` as `await` calls it: see am_send.pxd.
cdef inline int send_call_am_send(object self, object value, PyObject **result) except -1:
    result[0] = NULL
    cdef SendCall call = <SendCall>self
    cdef bint is_suspended = call._step(value)
    cdef object given = call._given
    call._given = None
    Py_INCREF(given)
    result[0] = <PyObject *>given
    return 1 if is_suspended else 0


cdef _reused(SendCall call)
cdef _never_awaited(bint is_awaiting)
