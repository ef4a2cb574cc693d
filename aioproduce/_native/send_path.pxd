# The classes of `send_path.py` as C knows them.

cimport cython
from cpython.ref cimport Py_INCREF, PyObject

from aioproduce._native.delivery cimport DeliveryFuture


# Numbers in C: as names of the module each use would be a look-up and an object.
cdef int _NEW
cdef int _RUNNING
cdef int _DONE
cdef long long _SENDS_PER_CLOCK
cdef long long _MAX_PARTITION
cdef long long _MAX_TIMESTAMP
cdef double _TURN
cdef int NO_PARTITION
cdef long long _forks


cdef class SendPath:
    cdef dict _appenders
    cdef object _is_running
    cdef object _on_next_turn
    cdef unsigned long _thread
    cdef long long _forks
    cdef bint _is_plain
    cdef long long _sends
    cdef double _began_at
    cdef object _wall_ms

    cpdef bint turn_is_due(self) except -1
    cpdef put_turn_off(self)
    cdef DeliveryFuture _accept(self, SendCall call)


@cython.final
cdef class SendCall:
    cdef SendPath _path
    cdef object _topic
    cdef object _value
    cdef object _key
    cdef object _partition
    cdef object _timestamp
    cdef object _headers
    cdef object _timeout
    cdef object _on_delivery
    cdef object _inner
    cdef object _given
    cdef unsigned char _state
    cdef unsigned char _is_awaiting

    cdef bint _step(self, object sent) except -1
    cdef bint _wait(self) except -1
    cdef _slowly(self)
    cdef _end(self)
    cdef _take(self)


cdef SendCall make_call(
    SendPath path,
    object topic,
    object value,
    object key,
    object partition,
    object timestamp,
    object headers,
    object timeout,
    object on_delivery,
    bint is_awaiting,
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
