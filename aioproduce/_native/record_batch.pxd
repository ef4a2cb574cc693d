# What the other compiled modules of this folder call in C; `record_batch.py` is the source.

cimport cython


@cython.final
cdef class RecordBatchBuffer:
    cdef bytearray _buffer
    cdef memoryview _view
    cdef unsigned char *_data
    cdef Py_ssize_t _position
    cdef Py_ssize_t _limit
    cdef Py_ssize_t _count
    cdef long long _base_timestamp
    cdef long long _max_timestamp
    cdef readonly Py_ssize_t largest_record

    cpdef Py_ssize_t try_append(self, long long timestamp, object key, object value, object headers=*) except -2
    cdef memoryview _require_view(self)
