cimport cython


@cython.final
cdef class BufferLease:
    cdef public BufferPool _pool
    cdef public bytearray buffer
    cdef readonly Py_ssize_t size

    cpdef release(self)


@cython.final
cdef class BufferWaiter:
    cdef readonly Py_ssize_t size
    cdef public object state
    cdef public Py_ssize_t gathered
    cdef public bytearray _buffer
    cdef public object _notify


@cython.final
cdef class OwnMemory:
    cdef public bytearray buffer

    cpdef release(self)


@cython.final
cdef class BufferPool:
    cdef readonly Py_ssize_t total, poolable_size
    cdef public object _allocate, _waiters
    cdef public Py_ssize_t _unallocated, _reserved
    cdef public list _free
    cdef public set _granted
    cdef public bint _is_closed, _is_serving, _is_written_off

    cpdef BufferLease try_allocate(self, Py_ssize_t size)
    cdef _take_back(self, bytearray buffer, Py_ssize_t size)
    cdef bint _gather(self, BufferWaiter waiter) except -1
    cdef _refund(self, BufferWaiter waiter)
    cdef _free_up(self, Py_ssize_t size)
    cdef BufferLease _make_lease(self, Py_ssize_t size)
