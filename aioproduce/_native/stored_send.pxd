cimport cython
from aioproduce._native.am_send cimport set_am_send
from aioproduce._native.delivery cimport BatchResult, DeliveryFuture
from aioproduce._native.send_path cimport SendCall, SendPath, make_call
from aioproduce._native.watcher cimport Watcher, begin_wait, thrown
from cpython.ref cimport Py_INCREF, PyObject


cdef int _NEW, _SENDING, _WAITING, _DONE


cdef class StoredPath:
    cdef SendPath _front_path
    cdef public object _failure


@cython.final
cdef class StoredCall:
    cdef StoredPath _path
    cdef SendCall _call
    cdef DeliveryFuture _delivery
    # The wait for the acknowledgement.
    cdef object _inner
    # What `_step()` came to.
    cdef object _given
    cdef unsigned char _state

    cdef bint _step(self, object sent) except -1
    cdef _begin_wait(self, DeliveryFuture delivery)
    cdef bint _wait(self, object sent) except -1
    cdef SpooledDelivery _stored(self)
    cdef _end(self)
    cdef _take(self)


@cython.final
cdef class SpooledDelivery:
    cdef object _group
    cdef long long _index


cdef StoredCall make_stored_call(StoredPath path, SendCall sending)
cdef _reused()
cdef SpooledDelivery make_spooled(object group, long long index)


# `StoredCall.send()` as `await` calls it: see am_send.pxd.
cdef inline int stored_call_am_send(object self, object value, PyObject **result) except -1:
    result[0] = NULL
    cdef StoredCall call = <StoredCall>self
    cdef bint is_suspended = call._step(value)
    cdef object given = call._given
    call._given = None
    Py_INCREF(given)
    result[0] = <PyObject *>given
    return 1 if is_suspended else 0
