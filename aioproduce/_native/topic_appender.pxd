cimport cython
from aioproduce._native.delivery cimport BatchResult, DeliveryFuture, make_delivery
from aioproduce._native.key_hash cimport _HASHES_NULL, partition_of
from aioproduce._native.record_batch cimport RecordBatchBuffer
from aioproduce._native.record_numbers cimport RecordNumbers


@cython.final
cdef class TopicAppender:
    cdef list _open
    cdef Py_ssize_t _partition_count
    cdef int _key_rule
    cdef list _line
    cdef Py_ssize_t _line_at, _sticky
    cdef long long _sticky_bytes, _sticky_left
    cdef RecordNumbers _numbers
    cdef bint _is_numbered

    cpdef open(self, Py_ssize_t partition, RecordBatchBuffer buffer, BatchResult result)
    cpdef close(self, Py_ssize_t partition)
    cpdef Py_ssize_t next_keyless(self) noexcept
    cpdef void count_keyless(self, Py_ssize_t size) noexcept
    cpdef DeliveryFuture append(
        self, Py_ssize_t partition, long long timestamp, bytes key, bytes value, object headers
    )
