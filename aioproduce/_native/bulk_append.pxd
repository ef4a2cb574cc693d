cimport cython
from aioproduce._native._memory cimport bytes_at, ints_in, longs_in
from aioproduce._native.columns cimport FOUND, ByteColumn, HeaderColumn, LongColumn
from aioproduce._native.key_hash cimport _HASHES_NULL, partition_at
from aioproduce._native.record_batch cimport RecordBatchBuffer, put_record
from aioproduce._native.record_numbers cimport RecordNumbers
from aioproduce._native.record_span cimport RecordSpan
from aioproduce._native.topic_appender cimport TopicAppender


@cython.final
cdef class BulkAppender:
    cdef TopicAppender _appender
    cdef Py_ssize_t _partition
    cdef bytes _headers
    # By partition the place of its batch in the span, from 1; 0 for one that no row of this call went to.
    cdef bytearray _places
    cdef list _touched
    cdef RecordSpan _span
    # The appender's state during a call.
    cdef list _open
    cdef Py_ssize_t _partition_count, _open_count
    cdef bint _is_in_line, _is_numbered
    cdef RecordNumbers _numbers, _own_numbers
    # The row at hand.
    cdef bint _is_keyless
    cdef unsigned char *_key_at
    cdef Py_ssize_t _key_size
    cdef unsigned char *_headers_at
    cdef Py_ssize_t _headers_size
    cdef long long _timestamp

    cdef _close(self)
    cdef Py_ssize_t _append(
        self, RecordSpan span, ByteColumn values, ByteColumn keys, HeaderColumn headers,
        LongColumn partitions, LongColumn timestamps, Py_ssize_t start, Py_ssize_t stop
    ) except -1
    cdef bint _read(
        self, ByteColumn keys, HeaderColumn headers, LongColumn timestamps, Py_ssize_t row
    ) except -1
    cdef _begin(self, bint has_headers)
    cdef _take_headers(self)
    cdef _take_number(self, bint has_headers)
    cdef int _begun(self, Py_ssize_t partition, Py_ssize_t index) except -1
